import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import {
  historySchema,
  trustChainSchema,
  trustPackageSchema,
} from '#protocol/schemas/public-views';
import { callAt, comparable } from '../../fixtures/public-call.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';
import { KINDS, unknown, ViewsWorld } from '../../fixtures/views-world.js';

const views = new ViewsWorld();
const { snapshot, plain, denied, call } = views;
beforeAll(() => views.open());
afterAll(() => views.close());

describe('view of an unresolved identifier', () => {
  const CASES = KINDS.flatMap(({ kind, history, chain, ids }) =>
    [history, chain, ...(kind === 'trust' ? (['package'] as const) : [])].map((view) => ({
      kind,
      view,
      ids,
    })),
  );

  it.each(CASES)('asserts no validity on $kind/…/$view', async ({ kind, view, ids }) => {
    const asked = [
      ...[unknown, denied].flatMap((proof) => ids.map((prefix) => prefix + proof)),
      plain,
      `exec_${plain}`,
      `${ids[0]}${plain.toUpperCase()}`,
      'x',
      'a b',
      '愛',
      'x'.repeat(4000),
      '\0',
      'a/b',
    ];
    for (const requested of asked) {
      const path = `/api/public/${kind}/${encodeURIComponent(requested)}/${view}`;
      const { status, headers, body } = await call(path);
      expect(status).toBe(200);
      expect(headers.etag).toBeUndefined();
      const members = {
        artifact_kind: kind,
        identifier: requested,
        lookup: { requested, matched_on: null },
        verification_status: 'BACKEND_LOOKUP_REQUIRED',
        can_assert_validity: false,
      };
      const history = {
        schema_version: 'svc.public_verification.history/1.0',
        ...members,
        events: [],
      };
      const chain = {
        schema_version: 'svc.public_verification.trust_chain/1.0',
        ...members,
        available: false,
        sequence: [],
        links: [],
      };
      const facade = (await call(`/api/public/${kind}/${encodeURIComponent(requested)}`)).body;
      const schema_version = 'svc.public_verification.trust_package/1.0';
      const all = { schema_version, ...members, facade, history, chain, evidence: null };
      const [expected, schema] =
        view === 'package'
          ? [all, trustPackageSchema]
          : view.endsWith('chain')
            ? [chain, trustChainSchema]
            : [history, historySchema];
      expect(body).toEqual(expected);
      expect(schema.parse(body)).toEqual(body);
    }
  });
});

describe('view paths', () => {
  it.each([
    `/api/public/proof/%p`,
    `/api/public/trust-asset/asset_%p`,
    `/api/public/certificate/cert_%p/chain`,
    `/api/public/certificate/cert_%p/package`,
    `/api/public/trust/trust_%p/history`,
    `/api/public/trust/trust_%p/constructor`,
    `/api/public/trust/trust_%p/PACKAGE`,
    `/api/public/trust/trust_%p/`,
    `/api/public/trust/trust_%p/package/`,
    `/api/public/trust/trust_%p%2Fpackage/x`,
    `/api/public/trust//package`,
    `/api/public/trust`,
    `/api/public/Trust/trust_%p`,
    `/api/public-trust/trust_%p/package`,
    `/api/public/constructor/x`,
    `/api/public/verify/trust/trust_%p/package`,
  ])('exclude %s', async (path) => {
    const { status, body } = await call(path.replace('%p', plain));
    expect(status).toBe(404);
    expect(body).toMatchObject({ code: 'route_not_found' });
  });

  it('are decoded once, with or without a query', async () => {
    const encoded = `trust_${plain}`.replace(/./g, (c) => `%${c.charCodeAt(0).toString(16)}`);
    const direct = await call(`/api/public/trust/trust_${plain}/chain`);
    for (const path of [
      `/api/public/trust/${encoded}/chain`,
      `/api/public/trust/trust_${plain}/chain?x=y`,
      `${views.server.url}/api/public/trust/trust_${plain}/chain`,
    ]) {
      expect(comparable(await call(path))).toEqual(comparable(direct));
    }
    const twice = encoded.replaceAll('%', '%25');
    expect((await call(`/api/public/trust/${twice}/chain`)).body).toMatchObject({
      identifier: encoded,
      lookup: { matched_on: null },
    });
  });

  it('have an ETag over the whole body', async () => {
    const world = new TestSnapshot();
    const proof = world.registry.addProof();
    world.registry.verify();
    const publisher = world.publisher();
    await publisher.runCycle();
    const publicServer = world.publicServer();
    const from = await world.serve(publicServer);
    const views = ['', '/timeline', '/chain', '/package'];
    const tags = async (): Promise<string[]> => {
      const found: string[] = [];
      for (const view of views) {
        const path = `/api/public/trust/trust_${proof}${view}`;
        const { headers } = await callAt(from, path);
        expect(headers['cache-control']).toBe('public, max-age=1');
        expect(headers.etag).toMatch(/^"[^"]+"$/);
        found.push(headers.etag!);
        const again = await callAt(from, path, { headers: { 'If-None-Match': headers.etag! } });
        expect(again.status).toBe(304);
        expect(again.text).toBe('');
      }
      expect(new Set(found).size).toBe(views.length);
      return found;
    };
    const withoutGeneration = (tag: string): string => tag.replace(/^"\d+-/, '"');
    const republish = async (): Promise<void> => {
      world.registry.verify();
      await publisher.runCycle();
      await publicServer.poller.refresh();
    };
    try {
      const first = await tags();
      world.registry.addProof();
      await republish();
      const grown = await tags();
      // Another proof changes only the evidence, which has the new checkpoint.
      const [before, after] = [first, grown].map((all) => all.map(withoutGeneration));
      expect(after!.slice(0, 3)).toEqual(before!.slice(0, 3));
      expect(after![3]).not.toBe(before![3]);
      for (const [i, tag] of grown.entries()) expect(tag).not.toBe(first[i]);
      world.registry.revoke(proof, 'trust');
      await republish();
      const revokedTags = await tags();
      for (const [i, tag] of revokedTags.entries()) expect(tag).not.toBe(grown[i]);
    } finally {
      await world.close();
    }
  });

  it('answer 503 when the log cannot be read', async () => {
    const broken: SnapshotSource = {
      ...directorySource(snapshot.directory),
      logFile: () => Promise.reject(new Error('the disk is gone')),
    };
    const from = await snapshot.serve(snapshot.publicServer({ source: broken }));
    const { status, body } = await callAt(from, `/api/public/trust/trust_${plain}/package`);
    expect(status).toBe(503);
    expect(body).toMatchObject({ code: 'snapshot_unreadable' });
    expect((await callAt(from, `/api/public/trust/trust_${plain}/chain`)).status).toBe(200);
  });
});
