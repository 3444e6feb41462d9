import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fromHex, utf8 } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import { replaySchema, type Replay } from '#protocol/schemas/replay';
import { nativeSha256 } from '#runtime/crypto/node';
import { manifestOf } from '#policy/policy-set';
import type { Transaction } from '#sql/db/transaction';
import { unpackAep } from '#sql/proofs/packed-aep';
import { readPolicySet, storePolicySet, type PolicyFiles } from '#sql/admissions/policies';
import { readPinnedIntake } from '#sql/admissions/pinned-intake';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
} from '../../fixtures/engine.js';
import { eraseProof } from '../../fixtures/erase.js';
import { admittedProof, exportedProof } from '../../fixtures/exported.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';

const REQUEST = 'svc.verification.replay_request/1.0';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let log: TestLog;
let key: string;

async function open(): Promise<void> {
  db = await freshDatabase();
  registry = await openRegistry(db);
  log = testLog(db);
  engine = await startEngine(registry, { logVkey: log.vkey });
  key = await issueKey(registry, { scopes: ['admit', 'export', 'verify'] });
}
async function close(): Promise<void> {
  await engine.close();
  await db.drop();
}

function post(body: unknown, apiKey = key, tenant = TENANT): Promise<Reply> {
  return engine.call({
    path: '/v1/proofs/replay',
    headers: headersFor(apiKey, tenant),
    body: JSON.stringify(body),
  });
}

const byId = (proof_id: string, policy_digest?: string) => ({
  schema_version: REQUEST,
  proof_id,
  ...(policy_digest === undefined ? {} : { policy_digest }),
});

async function replayOf(body: unknown): Promise<Replay> {
  const reply = await post(body);
  expect(reply.status, reply.bytes.toString()).toBe(200);
  return replaySchema.parse(reply.json);
}

const admitOne = (action?: string) => admittedProof(registry, action);

const exported = (id: string) => exportedProof({ registry, log, engine, key }, id);

/** Changes stored rows as a superuser, with every trigger off. */
async function byHand(change: (tx: Transaction) => Promise<unknown>): Promise<void> {
  await db.sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`;
    await change(tx as unknown as Transaction);
  });
}

/** Rewrites the texts of the set that decides, under the digest that they had. */
async function changeTexts(change: (files: PolicyFiles) => void): Promise<void> {
  const [row] = await db.sql<{ digest: Buffer; files: PolicyFiles }[]>`
    select digest, files from svc.policy_set`;
  if (row === undefined) throw new Error('no policy set is stored');
  change(row.files);
  await byHand(
    (tx) => tx`
    update svc.policy_set set files = ${tx.json(row.files as never)} where digest = ${row.digest}`,
  );
}

describe('replay after tampering', () => {
  beforeEach(open);
  afterEach(close);

  it('reports the policy digest and the decision when a policy text was changed', async () => {
    const id = await admitOne();
    const before = await replayOf(byId(id));
    await changeTexts((files) => {
      files.policies['sandbox-tenants-may-act'] += '\n// changed';
    });
    const harmless = await replayOf(byId(id));
    expect(harmless.result).toBe('divergence');
    expect(harmless.differences.map(({ pointer }) => pointer)).toEqual(['/policy/digest']);
    expect(harmless.differences[0]?.recorded).toBe(before.policy_digest);

    await changeTexts((files) => {
      files.policies['audit-log-is-kept'] = 'forbid (principal, action, resource);';
    });
    const denying = await replayOf(byId(id));
    expect(denying.result).toBe('divergence');
    expect(denying.differences).toMatchObject([
      { pointer: '/decision/effect', recorded: 'ADMIT', replayed: 'DENY' },
      { pointer: '/decision/reasons', replayed: ['audit-log-is-kept'] },
      { pointer: '/policy/digest' },
      { pointer: '/valid_until/certificate', recorded: null },
      { pointer: '/valid_until/passport', recorded: null },
      { pointer: '/valid_until/trust', recorded: null },
    ]);
  });

  it('denies under unusable policy texts', async () => {
    const id = await admitOne();
    await changeTexts((files) => {
      files.policies['sandbox-tenants-may-act'] = 'permit (principal, action';
    });
    const replay = await replayOf(byId(id));
    expect(replay.result).toBe('divergence');
    expect(replay.differences.map(({ pointer }) => pointer)).toContain('/policy/digest');
    expect(replay.differences).toContainEqual({
      pointer: '/decision/effect',
      recorded: 'ADMIT',
      replayed: 'DENY',
    });
  });

  it('reports engine_version_differs when another engine decided', async () => {
    const id = await admitOne();
    const intake = await readPinnedIntake(registry.engine, registry.tenantNo, id);
    const set = await readPolicySet(registry.engine, intake!.policyDigest);
    const other = { engine_version: '0.0.1', engine_sha256: '00'.repeat(32) };
    const manifest = manifestOf(set!.files, other);
    const digest = Buffer.from(fromHex(hashHex(nativeSha256, utf8(manifest))));
    await storePolicySet(registry.admin, { ...set!, manifest, digest });
    await byHand(
      (tx) => tx`
      update svc.intake set policy_digest = ${digest}
      where replace(proof_id::text, '-', '') = ${id}`,
    );
    const replay = await replayOf(byId(id));
    expect(replay.result).toBe('engine_version_differs');
    expect(replay.differences).toEqual([
      {
        pointer: '/policy/digest',
        recorded: set!.digest.toString('hex'),
        replayed: digest.toString('hex'),
      },
    ]);

    const recorded = { ...(await exported(await admitOne())) };
    const older = { ...recorded.aep, policy: { ...recorded.aep.policy, engine_version: '0.0.1' } };
    expect(await replayOf({ ...recorded, aep: older })).toMatchObject({
      result: 'engine_version_differs',
      differences: [{ pointer: '/policy/engine_version', recorded: '0.0.1' }],
      engine: { recorded_version: '0.0.1' },
    });
  });

  it('does not trust the engine version of a changed manifest', async () => {
    const id = await admitOne();
    await changeTexts((files) => {
      files.policies['sandbox-tenants-may-act'] += '\n// changed';
    });
    await byHand(
      (tx) => tx`
      update svc.policy_set set manifest =
        regexp_replace(manifest, '"engine_version":"[^"]*"', '"engine_version":"0.0.1"')`,
    );
    const replay = await replayOf(byId(id));
    expect(replay.result).toBe('divergence');
    expect(replay.differences.map(({ pointer }) => pointer)).toEqual(['/policy/digest']);
  });

  it.each([
    ['accepted_at', `accepted_at = accepted_at + interval '1 second'`, '/accepted_at'],
    ['salt', `salt = decode(repeat('00', 32), 'hex')`, '/salt'],
    ['fixture_hash', `fixture_hash = decode(repeat('00', 32), 'hex')`, '/evidence/fixture_hash'],
    ['environment', `environment = 'live'`, '/environment'],
    [
      'validity',
      `validity = '{"proof":9,"certificate":null,"passport":null,"trust":null}'`,
      '/valid_until/proof',
    ],
    ['request', `request = '{}'`, '/request_hash'],
    ['request', `request = 'x'`, '/request_hash'],
  ])('names what was changed in the intake: %s', async (_, assignment, pointer) => {
    const id = await admitOne();
    await byHand((tx) =>
      tx.unsafe(`update svc.intake set ${assignment} where replace(proof_id::text, '-', '') = $1`, [
        id,
      ]),
    );
    const replay = await replayOf(byId(id));
    expect(replay.result).toBe('divergence');
    expect(replay.differences.map((difference) => difference.pointer)).toContain(pointer);
  });

  it('detects a changed AEP although the other columns were changed to match', async () => {
    const rewrite = (proofId: string, change: (text: string) => string) =>
      byHand(async (tx) => {
        const [row] = await tx<{ aep: Buffer }[]>`
          select aep from svc.proof where replace(proof_id::text, '-', '') = ${proofId}`;
        const text = change(unpackAep(row!.aep).toString());
        return tx`
          update svc.proof set aep = convert_to(${text}, 'UTF8')
          where replace(proof_id::text, '-', '') = ${proofId}`;
      });
    const id = await admitOne();
    await rewrite(id, (text) => text.replace('"effect":"ADMIT"', '"effect":"DENY"'));
    expect((await replayOf(byId(id))).differences).toEqual([
      { pointer: '/decision/effect', recorded: 'DENY', replayed: 'ADMIT' },
    ]);
    const other = await admitOne();
    await byHand(
      (tx) => tx`
      update svc.intake set salt = decode(repeat('00', 32), 'hex')
      where replace(proof_id::text, '-', '') = ${other}`,
    );
    await rewrite(other, (text) =>
      text.replace(/"salt":"[0-9a-f]+"/, `"salt":"${'00'.repeat(32)}"`),
    );
    expect((await replayOf(byId(other))).differences).toMatchObject([
      { pointer: '', recorded: { aep_hash: expect.any(String) as string } },
    ]);
  });

  it.each(['null', 'no JSON'])('does not treat %s in place of an AEP as erased', async (text) => {
    const id = await admitOne();
    await byHand(
      (tx) => tx`
      update svc.proof set aep = convert_to(${text}, 'UTF8')
      where replace(proof_id::text, '-', '') = ${id}`,
    );
    expect(await replayOf(byId(id))).toMatchObject({
      result: 'divergence',
      differences: [{ pointer: '', recorded: text }],
    });
  });

  it('compares a proof without its AEP with the log', async () => {
    const id = await admitOne();
    await byHand(
      (tx) => tx`
      update svc.proof set aep = null, signature = null
      where replace(proof_id::text, '-', '') = ${id}`,
    );
    expect(await replayOf(byId(id))).toMatchObject({ result: 'match', differences: [] });
  });

  it('responds with payload_erased for an erased proof', async () => {
    const id = await admitOne();
    await eraseProof(db, id);
    const reply = await engine.call({
      path: '/v1/proofs/replay',
      headers: headersFor(key),
      body: JSON.stringify(byId(id)),
    });
    expect(reply.json).toMatchObject({ status: 410, code: 'payload_erased' });
  });
});
