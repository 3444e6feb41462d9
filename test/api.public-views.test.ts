import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import type { PublicContext } from '#api/public/context';
import { chainOf } from '#api/public/views/chain';
import { historyOf } from '#api/public/views/history';
import { facadeOf } from '#api/public/views/published';
import { trustPackageOf } from '#api/public/views/trust-package';
import { fromHex } from '#protocol/bytes';
import { openCheckpoint } from '#protocol/checkpoint';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { idsOf } from '#protocol/ids';
import { facadeSchema, type Facade } from '#protocol/schemas/facade';
import {
  historySchema,
  trustChainSchema,
  trustPackageSchema,
  type PublicHistory,
  type PublicTrustChain,
  type PublicTrustPackage,
} from '#protocol/schemas/public-views';
import { encodeRecord, recordBody, type RecordTexts } from '#protocol/snapshot/record';
import { canAssertValidity, TRUST_CHAIN_SEQUENCE, type ArtifactKind } from '#protocol/status';
import { parseTlogProof } from '#protocol/tlog-proof';
import { formatTime } from '#protocol/time';
import { nativeSha256, nativeVerify } from '#runtime/crypto';
import type { HttpServer } from '#runtime/http-server';
import { callAt, sameness, type Call, type Reply } from './helpers/public-call.js';
import { ORIGIN, proofIdAt, START, TestSnapshot } from './helpers/snapshot.js';

const snapshot = new TestSnapshot();
const { registry, clock } = snapshot;
let server: HttpServer;
/** Proofs by what became of them. */
let plain: string;
let denied: string;
let revoked: string;
let certificateRevoked: string;
let passportExpired: string;
let partsExpired: string;
let failed: string;
/** Has the hashes of the plain one. */
let twin: string;
const unknown = proofIdAt(1_700_000_000_000, 'unknown');

beforeAll(async () => {
  plain = registry.addProof();
  denied = registry.addProof({ effect: 'DENY' });
  revoked = registry.addProof();
  certificateRevoked = registry.addProof();
  passportExpired = registry.addProof();
  partsExpired = registry.addProof();
  failed = registry.addProof();
  const { aepHash, proofRecordHash } = leafOf(plain);
  twin = registry.addProof({ aepHash, proofRecordHash });
  registry.verify();
  const publisher = snapshot.publisher({ windowProofs: 1 });
  await publisher.tick();
  clock.at += 1000;
  registry.revoke(revoked);
  registry.revoke(certificateRevoked, 'certificate');
  registry.verify();
  registry.judge(passportExpired, { expired: ['passport'] });
  registry.judge(partsExpired, { expired: ['certificate', 'trust'] });
  registry.judge(failed, { outcome: 'fail' });
  await publisher.tick();
  server = await snapshot.serve(snapshot.facade());
});
afterAll(() => snapshot.close());

const call = (path: string, options?: Call): Promise<Reply> => callAt(server, path, options);

/** The views of each kind that has any, and the ids that it is found by. */
const KINDS = [
  {
    kind: 'certificate',
    history: 'history',
    chain: 'trust-chain',
    ids: ['cert_', 'certref_', 'asset_'],
  },
  {
    kind: 'passport',
    history: 'history',
    chain: 'trust-chain',
    ids: ['pass_', 'passref_', 'execpass_'],
  },
  { kind: 'trust', history: 'timeline', chain: 'chain', ids: ['trust_', 'trustref_', 'asset_'] },
] as const;
type Kind = (typeof KINDS)[number]['kind'];
const ID = { certificate: 'cert_', passport: 'pass_', trust: 'trust_' } as const;
const POSITIVE = { certificate: 'VERIFIED', passport: 'PASS', trust: 'TRUST_ESTABLISHED' } as const;

async function verdictOn(kind: Kind | 'proof', id: string): Promise<Facade> {
  const { body } = await call(`/api/public/verify/${kind}/${id}`);
  return facadeSchema.parse(body);
}

async function historyOn(kind: Kind, id: string): Promise<PublicHistory> {
  const path = KINDS.find((one) => one.kind === kind)!.history;
  const { status, body } = await call(`/api/public/${kind}/${id}/${path}`);
  expect(status).toBe(200);
  const history = historySchema.parse(body);
  expect(history).toEqual(body);
  return history;
}

async function chainOn(kind: Kind, id: string): Promise<PublicTrustChain> {
  const path = KINDS.find((one) => one.kind === kind)!.chain;
  const { status, body } = await call(`/api/public/${kind}/${id}/${path}`);
  expect(status).toBe(200);
  const chain = trustChainSchema.parse(body);
  expect(chain).toEqual(body);
  return chain;
}

async function packageOn(id: string, from = server): Promise<PublicTrustPackage> {
  const { status, body } = await callAt(from, `/api/public/trust/${id}/package`);
  expect(status).toBe(200);
  const all = trustPackageSchema.parse(body);
  expect(all).toEqual(body);
  return all;
}

/** What every view of an artifact begins with. */
function membersOf(facade: Facade) {
  const { artifact_kind, identifier, lookup, verification } = facade;
  const { verification_status, can_assert_validity } = verification;
  return { artifact_kind, identifier, lookup, verification_status, can_assert_validity };
}

describe('an alias path', () => {
  it.each(KINDS)('of a $kind answers as its verify path does', async ({ kind, ids }) => {
    const wanted = [plain, revoked, certificateRevoked, denied, failed, unknown].flatMap((proof) =>
      ids.map((prefix) => prefix + proof),
    );
    for (const id of [...wanted, plain, `exec_${plain}`, 'x', 'history', '%00', '%ff', 'a%2Fb']) {
      for (const method of ['GET', 'HEAD']) {
        const alias = await call(`/api/public/${kind}/${id}`, { method });
        const verify = await call(`/api/public/verify/${kind}/${id}`, { method });
        expect(sameness(alias)).toEqual(sameness(verify));
        expect(alias.status).toBe(200);
      }
    }
    const etag = String((await call(`/api/public/${kind}/${ids[0]}${plain}`)).headers.etag);
    const again = await call(`/api/public/${kind}/${ids[0]}${plain}`, {
      headers: { 'If-None-Match': etag },
    });
    expect(again.status).toBe(304);
  });

  it('resolves proofs of any age', async () => {
    const { body } = await call(`/api/public/trust/trust_${plain}`);
    expect(body).toMatchObject({ verification: { verification_status: 'TRUST_ESTABLISHED' } });
  });
});

describe('the history', () => {
  it.each(KINDS)('of a plain $kind is all that its body says', async ({ kind, ids }) => {
    const { leafIndex, acceptedAt } = leafOf(plain);
    for (const prefix of ids) {
      const history = await historyOn(kind, prefix + plain);
      expect(history).toEqual({
        schema_version: 'svc.public_verification.history/1.0',
        ...membersOf(await verdictOn(kind, prefix + plain)),
        events: [
          { event: 'accepted', at: formatTime(acceptedAt) },
          { event: 'appended', leaf_index: leafIndex },
          { event: 'verified', at: formatTime(START) },
        ],
      });
      expect(history.verification_status).toBe(POSITIVE[kind]);
    }
  });

  it('has a revocation of what an artifact rests on, and none of what rests on it', async () => {
    const leafIndex = registry.all.findIndex(
      (leaf) => leaf.kind === 'other' && Buffer.from(leaf.bytes).includes('"certificate"'),
    );
    const event = {
      event: 'revoked',
      at: formatTime(START + 1000),
      artifact: 'certificate',
      leaf_index: leafIndex,
      reason_hash: 'a'.repeat(64),
    };
    for (const kind of ['certificate', 'trust'] as const) {
      const history = await historyOn(kind, ID[kind] + certificateRevoked);
      expect(history.verification_status).toBe('REVOKED');
      expect(history.events.map(({ event }) => event)).toEqual([
        'accepted',
        'appended',
        'verified',
        'revoked',
      ]);
      expect(history.events.at(-1)).toEqual(event);
    }
    const passport = await historyOn('passport', `pass_${certificateRevoked}`);
    expect(passport.verification_status).toBe('PASS');
    expect(passport.events.map(({ event }) => event)).toEqual(['accepted', 'appended', 'verified']);
  });

  it('has an expiry for the artifacts that it ended', async () => {
    for (const kind of ['passport', 'certificate', 'trust'] as const) {
      const history = await historyOn(kind, ID[kind] + passportExpired);
      expect(history.verification_status).toBe('EXPIRED');
      expect(history.events.at(-1)).toMatchObject({ event: 'expired', artifacts: ['passport'] });
    }
  });

  it('has of an expiry only what concerns the artifact', async () => {
    const told: Record<string, unknown> = {};
    for (const kind of ['passport', 'certificate', 'trust'] as const) {
      const { events } = await historyOn(kind, ID[kind] + partsExpired);
      told[kind] = events.flatMap((event) => (event.event === 'expired' ? event.artifacts : []));
      expect(events.filter(({ event }) => event === 'expired')).toHaveLength(
        kind === 'passport' ? 0 : 1,
      );
    }
    expect(told).toEqual({
      passport: [],
      certificate: ['certificate'],
      trust: ['certificate', 'trust'],
    });
  });

  it('takes the time of no other finding for a verification, where nothing else is recorded', () => {
    const verified_at = formatTime(START);
    const told = (statuses: Parameters<typeof published>[1]): string[] => {
      const { facade, resolved } = published(plain, statuses);
      const verification = { ...facade.verification, verified_at };
      return historyOf({ ...facade, verification }, resolved).events.map(({ event }) => event);
    };
    expect(told({})).toEqual(['accepted', 'appended', 'verified']);
    for (const status of ['BACKEND_LOOKUP_REQUIRED', 'EXPIRED', 'REVOKED']) {
      for (const kind of ['proof', 'passport', 'certificate', 'trust'] as const) {
        expect(told({ [kind]: status })).toEqual(['accepted', 'appended']);
      }
    }
  });

  it('tells of a failure, and claims nothing else', async () => {
    for (const kind of ['passport', 'certificate', 'trust'] as const) {
      const history = await historyOn(kind, ID[kind] + failed);
      expect(history.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
      expect(history.events.at(-1)).toMatchObject({ event: 'failed' });
    }
  });
});

describe('the chain', () => {
  it.each(KINDS)(
    'of a $kind has, stage by stage, the verdict that is given on its id',
    async ({ kind, ids }) => {
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
    },
  );

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

  it('shows where it is broken', async () => {
    const { links } = await chainOn('passport', `pass_${certificateRevoked}`);
    expect(links.map((link) => link.verification_status)).toEqual([
      null,
      null,
      'VALID',
      'PASS',
      'REVOKED',
      'REVOKED',
    ]);
  });

  it('is none for what failed', async () => {
    expect(await chainOn('certificate', `cert_${failed}`)).toMatchObject({
      verification_status: 'BACKEND_LOOKUP_REQUIRED',
      lookup: { matched_on: 'certificate_id' },
      available: false,
      sequence: [],
      links: [],
    });
  });

  it('relays what was published, also where that makes no sense', () => {
    // No computation would come to this: a passport that stands on a proof that is revoked.
    const { facade, resolved } = published(plain, {
      proof: 'REVOKED',
      passport: 'PASS',
      certificate: 'EXPIRED',
      trust: 'VERIFIED',
    });
    expect(chainOf(facade, resolved).links.map((link) => link.verification_status)).toEqual([
      null,
      null,
      'REVOKED',
      'PASS',
      'EXPIRED',
      'VERIFIED',
    ]);
  });
});

describe('the trust package', () => {
  const expectedEvidence = async (proof: string) => {
    const { leafIndex } = leafOf(proof);
    return {
      log_entry: (await call(`/log/entry/${leafIndex}`)).body,
      leaf_index: leafIndex,
      tlog_proof: (await call(`/log/proof/${leafIndex}`)).text,
      keys: (await call('/api/public/keys')).body,
    };
  };

  it('is the verdict, the timeline, the chain and the evidence in one', async () => {
    for (const proof of [plain, certificateRevoked, passportExpired, failed]) {
      for (const prefix of ['trust_', 'trustref_', 'asset_']) {
        const id = prefix + proof;
        const facade = await verdictOn('trust', id);
        expect(await packageOn(id)).toEqual({
          schema_version: 'svc.public_verification.trust_package/1.0',
          ...membersOf(facade),
          facade,
          history: await historyOn('trust', id),
          chain: await chainOn('trust', id),
          evidence: await expectedEvidence(proof),
        });
      }
    }
  });

  it('proves by itself that the entry is in the log', async () => {
    const { evidence, facade } = await packageOn(`trust_${plain}`);
    const { index, path, checkpoint } = parseTlogProof(evidence!.tlog_proof);
    const { size, root } = openCheckpoint(
      checkpoint,
      evidence!.keys.log.vkey,
      ORIGIN,
      nativeVerify,
    );
    const entry = await call(`/log/entry/${index}`);
    const leaf = leafHash(nativeSha256, Buffer.from(entry.text));
    expect(verifyInclusion(nativeSha256, { index, size, leafHash: leaf, path, root })).toBe(true);
    expect(evidence!.log_entry).toMatchObject({
      type: 'proof',
      proof_id: plain,
      ...pick(facade.integrity as Record<string, unknown>, 'aep_hash', 'proof_record_hash'),
    });
  });

  it('is of one snapshot, whatever is published while it is put together', async () => {
    const world = new TestSnapshot();
    const proof = world.registry.addProof();
    world.registry.verify();
    const publisher = world.publisher();
    await publisher.tick();
    const gate = gated(directorySource(world.directory));
    const facade = world.facade({ source: gate.source });
    const from = await world.serve(facade);
    try {
      const before = await packageOn(`trust_${proof}`, from);
      gate.close();
      const asked = callAt(from, `/api/public/trust/trust_${proof}/package`);
      await gate.reached();
      world.registry.revoke(proof);
      world.registry.addProofs(300);
      world.registry.addKeyEntry('retire');
      world.registry.verify();
      await publisher.tick();
      gate.letFollowerPass();
      await facade.follower.refresh();
      expect(facade.follower.current!.opened.manifest.tree_size).toBe(304);
      gate.open();
      const reply = await asked;
      expect(reply.body).toEqual(before);
      expect(reply.headers['x-svc-tree-size']).toBe('2');

      const after = await packageOn(`trust_${proof}`, from);
      expect(after.verification_status).toBe('REVOKED');
      expect(after.history.events.at(-1)).toMatchObject({ event: 'revoked' });
      expect(after.chain.links.at(-1)).toMatchObject({ verification_status: 'REVOKED' });
      expect(after.evidence!.keys).not.toEqual(before.evidence!.keys);
      expect(after.evidence!.tlog_proof).toContain('\n304\n');
    } finally {
      gate.open();
      await world.close();
    }
  });

  it('gives out no entry that is not that of its proof', async () => {
    const facade = snapshot.facade();
    await facade.follower.refresh();
    const source = directorySource(snapshot.directory);
    const ctx = { source, sha256: nativeSha256 } as PublicContext;
    const right = published(plain, {});
    const made = trustPackageOf(ctx, facade.follower.current!, right.facade, right.resolved);
    expect((await made).evidence!.log_entry.proof_id).toBe(plain);
    // A record of one proof that says that its leaf is where another's is, or no proof's at all.
    for (const leaf_index of [leafOf(denied).leafIndex, leafOf(twin).leafIndex, 0]) {
      const wrong = published(plain, {}, { leaf_index });
      await expect(
        trustPackageOf(ctx, facade.follower.current!, wrong.facade, wrong.resolved),
      ).rejects.toThrow(`leaf ${leaf_index} is not the entry`);
    }
    for (const name of ['aep_hash', 'proof_record_hash']) {
      const wrong = published(plain, {}, { [name]: '0'.repeat(64) });
      await expect(
        trustPackageOf(ctx, facade.follower.current!, wrong.facade, wrong.resolved),
      ).rejects.toThrow('is not the entry');
    }
    source.close();
  });
});

describe('a view of what does not resolve', () => {
  const CASES = KINDS.flatMap(({ kind, history, chain, ids }) =>
    [history, chain, ...(kind === 'trust' ? (['package'] as const) : [])].map((view) => ({
      kind,
      view,
      ids,
    })),
  );

  it.each(CASES)('$kind/…/$view asserts nothing', async ({ kind, view, ids }) => {
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

describe('the paths of views', () => {
  it.each([
    `/api/public/proof/%p`,
    `/api/public/proof/%p/history`,
    `/api/public/trust-asset/asset_%p`,
    `/api/public/share/x`,
    `/api/public/certificate/cert_%p/chain`,
    `/api/public/certificate/cert_%p/timeline`,
    `/api/public/certificate/cert_%p/package`,
    `/api/public/passport/pass_%p/package`,
    `/api/public/trust/trust_%p/history`,
    `/api/public/trust/trust_%p/trust-chain`,
    `/api/public/trust/trust_%p/constructor`,
    `/api/public/trust/trust_%p/PACKAGE`,
    `/api/public/trust/trust_%p/`,
    `/api/public/trust/trust_%p/package/`,
    `/api/public/trust/trust_%p/package/x`,
    `/api/public/trust/trust_%p%2Fpackage/x`,
    `/api/public/trust//package`,
    `/api/public/trust/`,
    `/api/public/trust`,
    `/api/public/Trust/trust_%p`,
    `/api/publictrust/trust_%p`,
    `/api/public-trust/trust_%p/package`,
    `/api/public/constructor/x`,
    `/api/public/verify/trust/trust_%p/package`,
    `/api/public/verify/certificate/cert_%p/history`,
  ])('do not include %s', async (path) => {
    const { status, body } = await call(path.replace('%p', plain));
    expect(status).toBe(404);
    expect(body).toMatchObject({ code: 'route_not_found' });
  });

  it('are read like those of lookups: decoded once, with or without a query', async () => {
    const encoded = `trust_${plain}`.replace(/./g, (c) => `%${c.charCodeAt(0).toString(16)}`);
    const direct = await call(`/api/public/trust/trust_${plain}/chain`);
    for (const path of [
      `/api/public/trust/${encoded}/chain`,
      `/api/public/trust/trust_${plain}/chain?x=y`,
      `${server.url}/api/public/trust/trust_${plain}/chain`,
    ]) {
      expect(sameness(await call(path))).toEqual(sameness(direct));
    }
    const twice = encoded.replaceAll('%', '%25');
    expect((await call(`/api/public/trust/${twice}/chain`)).body).toMatchObject({
      identifier: encoded,
      lookup: { matched_on: null },
    });
  });

  it('answer GET, HEAD and OPTIONS only', async () => {
    for (const path of [
      `/api/public/trust/trust_${plain}`,
      `/api/public/trust/trust_${plain}/package`,
      `/api/public/certificate/cert_${plain}/history`,
      `/api/public/passport/pass_${plain}/trust-chain`,
    ]) {
      const get = await call(path);
      const head = await call(path, { method: 'HEAD' });
      expect({ ...head.headers, date: '' }).toEqual({ ...get.headers, date: '' });
      expect(head.text).toBe('');
      const allow = 'GET, HEAD, OPTIONS';
      expect((await call(path, { method: 'OPTIONS' })).headers.allow).toBe(allow);
      for (const method of ['POST', 'PUT', 'DELETE', 'PATCH']) {
        const reply = await call(path, { method });
        expect(reply.status).toBe(405);
        expect(reply.headers.allow).toBe(allow);
      }
    }
  });

  it('have a tag of all that they say', async () => {
    const world = new TestSnapshot();
    const proof = world.registry.addProof();
    world.registry.verify();
    const publisher = world.publisher();
    await publisher.tick();
    const facade = world.facade();
    const from = await world.serve(facade);
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
    const republish = async (): Promise<void> => {
      world.registry.verify();
      await publisher.tick();
      await facade.follower.refresh();
    };
    try {
      const first = await tags();
      world.registry.addProof();
      await republish();
      const grown = await tags();
      // Of another proof only the evidence knows, which is given under the new checkpoint.
      expect(grown.slice(0, 3)).toEqual(first.slice(0, 3));
      expect(grown[3]).not.toBe(first[3]);
      world.registry.revoke(proof, 'trust');
      await republish();
      const revokedTags = await tags();
      for (const [i, tag] of revokedTags.entries()) expect(tag).not.toBe(grown[i]);
    } finally {
      await world.close();
    }
  });

  it('are 503 without a snapshot that may assert anything', async () => {
    const before = clock.at;
    clock.at += 60 * 60 * 1000;
    try {
      for (const path of [
        `certificate/cert_${plain}`,
        `certificate/cert_${plain}/history`,
        `passport/pass_${plain}/trust-chain`,
        `trust/trust_${plain}/package`,
        'trust/x/timeline',
      ]) {
        const { status, headers, body } = await call(`/api/public/${path}`);
        expect(status).toBe(503);
        expect(headers['cache-control']).toBe('no-store');
        expect(body).toMatchObject({ code: 'snapshot_expired' });
      }
    } finally {
      clock.at = before;
    }
  });

  it('are 503 when the log cannot be read', async () => {
    const broken: SnapshotSource = {
      ...directorySource(snapshot.directory),
      logFile: () => Promise.reject(new Error('the disk is gone')),
    };
    const from = await snapshot.serve(snapshot.facade({ source: broken }));
    const { status, body } = await callAt(from, `/api/public/trust/trust_${plain}/package`);
    expect(status).toBe(503);
    expect(body).toMatchObject({ code: 'snapshot_unreadable' });
    expect((await callAt(from, `/api/public/trust/trust_${plain}/chain`)).status).toBe(200);
  });
});

function leafOf(proofId: string) {
  const leaf = registry.all.find((one) => one.kind === 'proof' && one.proofId === proofId);
  if (leaf?.kind !== 'proof') throw new Error(`no leaf of ${proofId}`);
  return leaf;
}

function pick(object: Record<string, unknown>, ...names: string[]): Record<string, unknown> {
  return Object.fromEntries(names.map((name) => [name, object[name]]));
}

/** A record of a proof as if it had been published with these statuses, and its trust artifact. */
function published(
  proofId: string,
  statuses: Partial<Record<ArtifactKind, string>>,
  integrity: Record<string, unknown> = {},
) {
  const part = (status = 'VERIFIED'): string =>
    `"verification":${JSON.stringify({ verification_status: status, can_assert_validity: canAssertValidity(status) })},"artifact":{`;
  const parts: RecordTexts['parts'] = {
    proof: part(statuses.proof),
    passport: part(statuses.passport),
    certificate: part(statuses.certificate),
    trust: part(statuses.trust),
  };
  const { leafIndex, aepHash, proofRecordHash } = leafOf(proofId);
  const rest = {
    trust_chain: { available: true, sequence: TRUST_CHAIN_SEQUENCE },
    references: idsOf(proofId),
    integrity: {
      leaf_index: leafIndex,
      aep_hash: aepHash,
      proof_record_hash: proofRecordHash,
      accepted_at: formatTime(START),
      ...integrity,
    },
  };
  const tail = `},${JSON.stringify(rest).slice(1)}`;
  const id = fromHex(proofId);
  const bytes = encodeRecord({ id: proofId, parts, tail });
  const resolved = {
    kind: 'trust',
    matchedOn: 'trust_id',
    record: { id, bytes, digest: new Uint8Array(16) },
    body: recordBody(bytes, id, 'trust')!,
  } as const;
  return { resolved, facade: facadeOf(resolved, `trust_${proofId}`) };
}

/** A source whose log files wait behind a gate. */
function gated(source: SnapshotSource) {
  let opened: Promise<void> = Promise.resolve();
  let open = (): void => undefined;
  let arrive = (): void => undefined;
  let passing = false;
  const arrival = new Promise<void>((resolve) => {
    arrive = resolve;
  });
  return {
    source: {
      ...source,
      logFile: async (path: string) => {
        if (!passing) {
          const wait = opened;
          arrive();
          await wait;
        }
        return source.logFile(path);
      },
    },
    close: () => {
      opened = new Promise((resolve) => {
        open = resolve;
      });
    },
    reached: () => arrival,
    letFollowerPass: () => {
      passing = true;
    },
    open: () => {
      open();
    },
  };
}
