import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { describe, expect } from 'vitest';
import { isShareToken } from '#protocol/ids';
import { readReason } from '#protocol/entries';
import {
  createdShareTokenSchema,
  packageSchema,
  revocationSchema,
  revocationStatusSchema,
} from '#protocol/schemas/lifecycle';
import { setAllowlisted, setLane } from '#sql/tenants/administration';
import { revokeApiKey } from '#sql/tenants/api-keys';
import { agentItem, outcomeEnvelope } from '../../fixtures/agent.js';
import { eraseProof } from '../../fixtures/erase.js';
import { headersFor, type Reply } from '../../fixtures/engine.js';
import { revocationBody } from '../../fixtures/lifecycle.js';
import { valuesHolding } from '../../fixtures/marks.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { engineTest, keyIdOf, replacedIn, type Setup } from './setup.js';

type Fields = Record<string, unknown>;

const ABSENT_ID = '0190f3c8a1b27d3e8f4a5b6c7d8e9f00';
const PACKAGES = '/v1/packages';
const SHARES = '/v1/share-tokens';

let setup: Setup;
let proofId: string;
/** Proofs that have no passport, certificate or trust. */
let bare: string[];
let logged = '';

const it = engineTest({
  scopes: ['lifecycle'],
  waitMs: 1_000,
  log: pino({ level: 'trace' }, { write: (line) => void (logged += line) }),
});

it.beforeAll(({ setup: opened }) => {
  setup = opened;
});
it.beforeEach(async () => {
  const { registry } = setup;
  proofId = await setup.admitOne();
  const outcome = outcomeEnvelope(proofId, { result: 'failed' });
  bare = await registry.admitAll([
    registry.item({ action: 'DELETE_AUDIT_LOG' }),
    agentItem(registry, outcome),
  ]);
});

const revoke = (fields: Fields = {}, about = proofId, headers = {}): Promise<Reply> =>
  setup.post(`/v1/proofs/${about}/revocations`, revocationBody(fields), headers);
const readRevocation = (kind = 'proof'): Promise<Reply> =>
  setup.get(`/v1/proofs/${proofId}/revocations/${kind}`);
const share = (fields: Fields = {}, headers = {}): Promise<Reply> => {
  const schema_version = 'svc.lifecycle.share_token_request/1.0';
  const body = { schema_version, artifact_kind: 'proof', proof_id: proofId, ...fields };
  return setup.post(SHARES, body, headers);
};
const unshare = (tokenHash: string): Promise<Reply> => {
  const path = `${SHARES}/${tokenHash}`;
  return setup.engine.call({ method: 'DELETE', path, headers: headersFor(setup.key) });
};
const pack = (proof_ids: string[]): Promise<Reply> =>
  setup.post(PACKAGES, { schema_version: 'svc.lifecycle.package_request/1.0', proof_ids });

const pointersIn = ({ json }: Reply): string[] =>
  (json['errors'] as { pointer: string }[]).map(({ pointer }) => pointer);

/** The share tokens of all pages of the list. */
async function listShares(limit: number, headers = {}): Promise<Fields[]> {
  const found: Fields[] = [];
  let cursor = '';
  do {
    const path = `${SHARES}?limit=${limit}${cursor && `&cursor=${cursor}`}`;
    const reply = await setup.get(path, headers);
    expect(reply.status).toBe(200);
    const members = reply.json['share_tokens'] as Fields[];
    expect(members.length).toBeLessThanOrEqual(limit);
    found.push(...members);
    cursor = (reply.json['next_cursor'] as string | null) ?? '';
  } while (cursor !== '');
  return found;
}

describe('POST /v1/proofs/{proof_id}/revocations', () => {
  it('revokes each kind of artifact: 201', async () => {
    for (const artifact_kind of ['proof', 'passport', 'certificate', 'trust']) {
      const leaf_index = await setup.treeSize();
      const reply = await revoke({ artifact_kind });
      expect(reply.status).toBe(201);
      const expected = { proof_id: proofId, artifact_kind, status: 'REVOKED', leaf_index };
      expect(revocationSchema.parse(reply.json)).toMatchObject(expected);
      expect(reply.headers.location).toBe(`/v1/proofs/${proofId}/revocations/${artifact_kind}`);
      expect(reply.headers['cache-control']).toBe('no-store');
      const again = await setup.get(reply.headers.location!);
      expect([again.status, again.bytes]).toEqual([200, reply.bytes]);
    }
  });

  it('appends one entry for concurrent and repeated requests', async () => {
    const before = await setup.treeSize();
    const replies = await Promise.all(
      Array.from({ length: 8 }, (_, n) => revoke({ reason: `reason ${n}` })),
    );
    expect(replies.map(({ status }) => status).sort()).toEqual([
      ...Array<number>(7).fill(200),
      201,
    ]);
    const again = await revoke({ reason: 'another', actor: 'me' });
    expect([again.status, again.headers['idempotent-replayed']]).toEqual([200, 'true']);
    expect(new Set([...replies, again].map(({ bytes }) => bytes.toString())).size).toBe(1);
    expect(await setup.treeSize()).toBe(before + 1);
  });

  it('logs only the salted hash of the reason', async () => {
    const salts = new Set<string>();
    for (const kind of ['proof', 'trust']) {
      const { json } = await revoke({ artifact_kind: kind });
      const [entry] = await setup.db.sql<{ body: Buffer }[]>`
        select body from svc.log_entry where leaf_index = ${Number(json['leaf_index'])}`;
      expect(entry!.body.toString()).not.toMatch(/it was wrong|auditor/);
      const [stored] = await setup.db.sql<{ document: Buffer }[]>`
        select document from svc.revocation_reason
        where reason_hash = ${Buffer.from(String(json['reason_hash']), 'hex')}`;
      const reason = readReason(stored!.document);
      expect(reason).toMatchObject({ reason: 'it was wrong', actor: 'auditor' });
      salts.add(reason!.salt);
    }
    expect(salts.size).toBe(2);
  });

  it('succeeds when the environment is paused and the tenant is not on the allowlist', async () => {
    const { registry } = setup;
    await setLane(registry.admin, 'sandbox', false);
    await setAllowlisted(registry.admin, TENANT, false);
    const reply = await revoke();
    await setLane(registry.admin, 'sandbox', true);
    await setAllowlisted(registry.admin, TENANT, true);
    expect(reply.status).toBe(201);
  });

  it('responds with 202 while the append is pending, and then with the same revocation', async () => {
    const { engine } = setup;
    engine.worker.isPaused = true;
    const reply = await revoke();
    expect(reply.status).toBe(202);
    expect(revocationStatusSchema.parse(reply.json)).toMatchObject({ state: 'pending' });
    expect(reply.headers['retry-after']).toBe('1');
    const pending = await readRevocation();
    expect([pending.status, pending.json]).toEqual([202, reply.json]);
    engine.worker.isPaused = false;
    await engine.worker.work();
    expect((await setup.get(reply.headers.location!)).status).toBe(200);
    expect((await revoke()).status).toBe(200);
  });

  it('revokes nothing when the API key of the request is revoked before the append', async () => {
    const { engine, registry } = setup;
    const stolen = await setup.keyFor({ scopes: ['lifecycle'] });
    engine.worker.isPaused = true;
    const first = revoke({}, proofId, headersFor(stolen));
    await expect.poll(() => engine.worker.revocations.length, { interval: 5 }).toBe(1);
    const second = revoke({ reason: 'it was stolen' });
    // Nothing shows that the second request waits, so the test waits for a fixed time.
    await sleep(200);
    await revokeApiKey(registry.admin, keyIdOf(stolen));
    engine.worker.isPaused = false;
    await engine.worker.work();
    expectProblem(await first, 403, 'api_key_revoked');
    expect((await second).status).toBe(201);
    expect((await readRevocation()).bytes).toEqual((await second).bytes);
  });

  it('responds with 500 when a logged revocation was rewritten', async () => {
    expect((await revoke({ artifact_kind: 'trust' })).status).toBe(201);
    const rewritten = `body = ${replacedIn('trust', 'proof')}`;
    await setup.whileAltered('log_entry', rewritten, `revokes = '${proofId}'`, async () => {
      for (const artifact_kind of ['proof', 'trust', 'certificate']) {
        expectProblem(await revoke({ artifact_kind }), 500, 'integrity_failure');
        expectProblem(await readRevocation(artifact_kind), 500, 'integrity_failure');
      }
    });
    expect((await revoke({ artifact_kind: 'trust' })).status).toBe(200);
  });

  it('rejects artifacts that a denial or an outcome does not have: 422', async () => {
    for (const id of bare) {
      for (const artifact_kind of ['passport', 'certificate', 'trust']) {
        const reply = await revoke({ artifact_kind }, id);
        expectProblem(reply, 422, 'artifact_absent');
        expect(pointersIn(reply)).toEqual(['/artifact_kind']);
      }
      expect((await revoke({}, id)).status).toBe(201);
    }
  });
});

describe('POST /v1/share-tokens', () => {
  it('shows a new random token once: 201', async () => {
    const replies = await Promise.all(Array.from({ length: 20 }, () => share()));
    const tokens = replies.map((reply) => {
      expect([reply.status, reply.headers['cache-control']]).toEqual([201, 'no-store']);
      const created = createdShareTokenSchema.parse(reply.json);
      expect(isShareToken(created.share_token)).toBe(true);
      const token_hash = createHash('sha256').update(created.share_token).digest('hex');
      const expected = { artifact_kind: 'proof', proof_id: proofId, expires_at: null, token_hash };
      expect(created).toMatchObject(expected);
      return created.share_token;
    });
    // Tokens are random: at no position do all of them have the same character.
    for (let at = 'share_'.length; at < tokens[0]!.length; at += 1) {
      expect(new Set(tokens.map((token) => token[at])).size).toBeGreaterThan(1);
    }
  });

  it('stores the token neither in the database nor in the logs', async () => {
    const token = String((await share()).json['share_token']);
    // The database must not store a token that a client sends in place of the hash.
    for (const path of [token, token.replace('_', '%5f')]) {
      expectProblem(await unshare(path), 404, 'share_token_not_found');
    }
    const secret = token.slice('share_'.length);
    const hash = createHash('sha256').update(token).digest('hex');
    expect(await valuesHolding(setup.db.sql, [hash])).not.toEqual([]);
    const forms = [
      secret,
      Buffer.from(token).toString('hex'),
      Buffer.from(secret, 'base64url').toString('hex'),
    ];
    expect(await valuesHolding(setup.db.sql, forms)).toEqual([]);
    for (const form of forms) expect(logged).not.toContain(form);
    expect(logged).toContain(SHARES);
  });

  it('rejects artifacts that a denial or an outcome does not have: 422', async () => {
    for (const proof_id of bare) {
      expect((await share({ proof_id })).status).toBe(201);
      expectProblem(await share({ proof_id, artifact_kind: 'trust' }), 422, 'artifact_absent');
    }
  });
});

it('GET /v1/share-tokens > lists hashes in pages, newest first, and never tokens', async () => {
  const own = await setup.tenant('lister', ['lifecycle']);
  const lister = await setup.db.sql`select tenant_no from svc.tenant where tenant_id = 'lister'`;
  const { tenant_no: no } = lister[0] as { tenant_no: number };
  await setup.byHand(
    (tx) => tx`update svc.log_entry set tenant_no = ${no} where proof_id = ${proofId}::uuid`,
  );
  const hashes: unknown[] = [];
  for (let n = 0; n < 7; n += 1) hashes.push((await share({}, own)).json['token_hash']);
  // Tokens of the same millisecond need a stable order, so that no page skips or repeats a token.
  await setup.byHand(
    (tx) => tx`update svc.share_token set created_at = '2026-11-20T12:00:00.000Z'
        where token_hash in (select token_hash from svc.share_token where tenant_no = ${no} limit 4)`,
  );
  const seen = await listShares(2, own);
  expect(seen.map(({ token_hash }) => token_hash).sort()).toEqual([...hashes].sort());
  expect(seen).toEqual(await listShares(200, own));
  const times = seen.map(({ created_at }) => created_at);
  expect(times).toEqual([...times].sort().reverse());
  expect(JSON.stringify(seen)).not.toMatch(/share_[A-Za-z0-9_-]{43}/);
});

it('DELETE /v1/share-tokens/{token_hash} > revokes permanently, and may be repeated', async () => {
  const hash = String((await share()).json['token_hash']);
  const revokedAt = async () =>
    (await listShares(200)).find(({ token_hash }) => token_hash === hash)?.['revoked_at'];
  expect(await revokedAt()).toBeNull();
  const reply = await unshare(hash);
  expect([reply.status, reply.bytes.length]).toEqual([204, 0]);
  const first = await revokedAt();
  expect(first).not.toBeNull();
  const replies = await Promise.all([1, 2, 3].map(() => unshare(hash)));
  expect(replies.map(({ status }) => status)).toEqual([204, 204, 204]);
  expect(await revokedAt()).toBe(first);
});

describe('POST /v1/packages', () => {
  const proofs = (count: number) =>
    setup.registry.admitAll(Array.from({ length: count }, () => setup.registry.item()));

  it('creates a package with its members in the given order: 201', async () => {
    const [a = '', b = '', c = ''] = await proofs(3);
    const reply = await pack([c, a, b]);
    expect(reply.status).toBe(201);
    const made = packageSchema.parse(reply.json);
    expect(made.proof_ids).toEqual([c, a, b]);
    expect(reply.headers.location).toBe(`${PACKAGES}/${made.package_id}`);
    const read = await setup.get(reply.headers.location!);
    expect([read.status, read.json]).toEqual([200, made]);
  });

  it('returns the existing package for the same members in the same order: 200', async () => {
    const ids = await proofs(2);
    const replies = await Promise.all([1, 2, 3, 4].map(() => pack(ids)));
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 200, 200, 201]);
    expect(new Set(replies.map(({ bytes }) => bytes.toString())).size).toBe(1);
    const repeat = replies.find(({ status }) => status === 200);
    expect(repeat?.headers['idempotent-replayed']).toBe('true');
    expect((await pack([...ids].reverse())).status).toBe(201);
    expectProblem(await pack([proofId, proofId]), 400, 'invalid_field');
  });

  it('keeps a package whose member is erased, but rejects the member in new packages', async () => {
    const own = await proofs(2);
    const made = await pack(own);
    await eraseProof(setup.db, own[1]!);
    const again = await pack(own);
    expect([again.status, again.bytes]).toEqual([200, made.bytes]);
    const reply = await pack([proofId, own[1]!]);
    expectProblem(reply, 422, 'package_member_unfit');
    expect(pointersIn(reply)).toEqual(['/proof_ids/1']);
  });

  it('rejects members that are not the tenant’s admissions: 422 with JSON pointers', async () => {
    const reply = await pack([proofId, bare[0]!, ABSENT_ID, bare[1]!]);
    expectProblem(reply, 422, 'package_member_unfit');
    expect(pointersIn(reply)).toEqual(['/proof_ids/1', '/proof_ids/2', '/proof_ids/3']);
    const members = await setup.db.sql`
      select from svc.package_member where proof_id = ${bare[0]!}::uuid`;
    expect(members).toEqual([]);
  });
});
