import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { idsOf } from '#protocol/ids';
import { historySchema, type PublicTrustChain } from '#protocol/schemas/facade';
import { TRUST_CHAIN_SEQUENCE } from '#protocol/status';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { formatTime } from '#protocol/time';
import { callAt, comparable } from '../../fixtures/public-call.js';
import { START, TestSnapshot } from '../../fixtures/snapshot.js';
import { KINDS, unknown, membersOf, ViewsWorld } from '../../fixtures/views-world.js';

const views = new ViewsWorld();
const {
  plain,
  denied,
  revoked,
  certificateRevoked,
  passportExpired,
  partsExpired,
  failed,
  call,
  verdictOn,
  historyOn,
  chainOn,
  leafOf,
  snapshot,
} = views;
beforeAll(() => views.open());
afterAll(() => views.close());

const ID = { certificate: 'cert_', passport: 'pass_', trust: 'trust_' } as const;
const POSITIVE = { certificate: 'VERIFIED', passport: 'PASS', trust: 'TRUST_ESTABLISHED' } as const;

describe('alias path without /verify', () => {
  it.each(KINDS)('answers for a $kind like the path with /verify', async ({ kind, ids }) => {
    const wanted = [plain, revoked, certificateRevoked, denied, failed, unknown].flatMap((proof) =>
      ids.map((prefix) => prefix + proof),
    );
    for (const id of [...wanted, plain, `exec_${plain}`, 'x', 'history', '%00', '%ff', 'a%2Fb']) {
      for (const method of ['GET', 'HEAD']) {
        const alias = await call(`/api/public/${kind}/${id}`, { method });
        const verify = await call(`/api/public/verify/${kind}/${id}`, { method });
        expect(comparable(alias)).toEqual(comparable(verify));
        expect(alias.status).toBe(200);
      }
    }
    const etag = String((await call(`/api/public/${kind}/${ids[0]}${plain}`)).headers.etag);
    const again = await call(`/api/public/${kind}/${ids[0]}${plain}`, {
      headers: { 'If-None-Match': etag },
    });
    expect(again.status).toBe(304);
  });
});

describe('history view', () => {
  it.each(KINDS)('lists the events in the published record of a $kind', async ({ kind, ids }) => {
    const { leafIndex, acceptedAt } = leafOf(plain);
    for (const prefix of ids) {
      const history = await historyOn(kind, prefix + plain);
      expect(history).toEqual({
        schema_version: 'svc.public_verification.history/1.0',
        ...membersOf(await verdictOn(kind, prefix + plain)),
        events: [
          { event: 'accepted', at: formatTime(acceptedAt) },
          { event: 'appended', leaf_index: leafIndex },
          { event: 'verified', at: formatTime(START), log_size: 9 },
        ],
      });
      expect(history.verification_status).toBe(POSITIVE[kind]);
    }
  });

  it('of a proof leads to the log entry that revokes a denial', async () => {
    const world = new TestSnapshot();
    const { registry } = world;
    const proof = registry.addProof({ effect: 'DENY' });
    registry.revoke(proof);
    registry.verify();
    await world.publisher().runCycle();
    const server = await world.serve(world.publicServer());
    const { body } = await callAt(server, `/api/public/proof/${proof}/history`);
    const { events, verification_status } = historySchema.parse(body);
    expect(verification_status).toBe('REVOKED');
    const revoked = events.find((event) => event.event === 'revoked')!;
    const entry = await callAt(server, `/log/entry/${revoked.leaf_index}`);
    const { reason_hash } = revoked;
    expect(entry.body).toMatchObject({ type: 'status', proof_id: proof, reason_hash });
    await world.close();
    for (const id of [unknown, `cert_${plain}`, `pass_${plain}`]) {
      const { body: none } = await call(`/api/public/proof/${id}/history`);
      expect(none).toMatchObject({ artifact_kind: 'proof', identifier: id, events: [] });
    }
    for (const path of ['', '/', '/trust-chain', '/history/']) {
      expect((await call(`/api/public/proof/${plain}${path}`)).status).toBe(404);
    }
  });

  it('limits an expiry event to the expired artifact and its dependents', async () => {
    const listed: Record<string, unknown> = {};
    for (const kind of ['passport', 'certificate', 'trust'] as const) {
      const { events } = await historyOn(kind, ID[kind] + partsExpired);
      listed[kind] = events.flatMap((event) => (event.event === 'expired' ? event.artifacts : []));
      expect(events.filter(({ event }) => event === 'expired')).toHaveLength(
        kind === 'passport' ? 0 : 1,
      );
    }
    expect(listed).toEqual({
      passport: [],
      certificate: ['certificate'],
      trust: ['certificate', 'trust'],
    });
  });

  it('lists a failed check and asserts no validity', async () => {
    for (const kind of ['passport', 'certificate', 'trust'] as const) {
      const history = await historyOn(kind, ID[kind] + failed);
      expect(history.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
      expect(history.events.at(-1)).toMatchObject({ event: 'failed' });
    }
  });
});

describe('chain view', () => {
  it.each(KINDS)('has for each stage of a $kind the verdict on that id', async ({ kind, ids }) => {
    for (const proof of [plain, revoked, certificateRevoked, passportExpired, partsExpired]) {
      for (const prefix of ids) {
        const facade = await verdictOn(kind, prefix + proof);
        const chain = await chainOn(kind, prefix + proof);
        expect(chain).toMatchObject({
          schema_version: 'svc.public_verification.trust_chain/1.0',
          ...membersOf(facade),
          ...facade.trust_chain,
        });
        expect(chain.links.map(({ stage }) => stage)).toEqual(TRUST_CHAIN_SEQUENCE);
        await expectLinksToLead(proof, chain);
      }
    }
  });

  async function expectLinksToLead(proof: string, { links }: PublicTrustChain): Promise<void> {
    const ids = idsOf(proof);
    const nothing = { verification_status: null, can_assert_validity: false };
    expect(links[0]).toEqual({ stage: 'execution', identifier: ids.execution_id, ...nothing });
    expect(links[1]).toEqual({ stage: 'evidence', identifier: ids.registry_entry_id, ...nothing });
    const others = [
      ['proof', ids.proof_id],
      ['passport', ids.passport_id],
      ['certificate', ids.certificate_id],
      ['trust', ids.trust_id],
    ] as const;
    for (const [i, [kind, id]] of others.entries()) {
      const { verification } = await verdictOn(kind, id);
      expect(links[i + 2]).toMatchObject({
        identifier: id,
        verification_status: verification.verification_status,
        can_assert_validity: verification.can_assert_validity,
      });
    }
  }

  it('is empty for a proof that failed verification', async () => {
    expect(await chainOn('certificate', `cert_${failed}`)).toMatchObject({
      verification_status: 'BACKEND_LOOKUP_REQUIRED',
      lookup: { matched_on: 'certificate_id' },
      available: false,
      sequence: [],
      links: [],
    });
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
  ])('do not include %s', async (path) => {
    const { status, body } = await call(path.replace('%p', plain));
    expect(status).toBe(404);
    expect(body).toMatchObject({ code: 'route_not_found' });
  });

  it('are percent-decoded once, with or without a query string', async () => {
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

  it('return an ETag that covers the whole body', async () => {
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
      // Another proof changes only the evidence, which contains the new checkpoint.
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
