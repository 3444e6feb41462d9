import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { fromHex, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { replaySchema, type Replay } from '#protocol/schemas/replay';
import { nativeSha256 } from '#runtime/crypto';
import { packageRoot } from '#runtime/package-root';
import { makePolicySet, manifestOf, readPolicyFolder } from '#policy/policy-set';
import { createTenant, setAllowlisted } from '#sql/administration';
import { acceptIntake } from '#sql/intake';
import type { Transaction } from '#sql/db';
import { unpackAep } from '#sql/packed-aep';
import { readPolicySet, storePolicySet, type PolicyFiles } from '#sql/policies';
import { readPinnedIntake } from '#sql/pinned-intake';
import { processAdmissions } from '#workers/admit/process';
import { alterations } from './helpers/altered.js';
import { testLog, type TestLog } from './helpers/checkpoints.js';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
  without,
} from './helpers/engine.js';
import { eraseProof } from './helpers/erase.js';
import { openRegistry, TENANT, type TestRegistry } from './helpers/registry.js';

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

async function admitOne(action = 'BOOK_RESERVATION'): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item({ action })]);
  return id;
}

async function exported(id: string): Promise<ProofExport> {
  await registry.verifyAll();
  await log.publish();
  const reply = await engine.call({
    method: 'GET',
    path: `/v1/proofs/${id}/export`,
    headers: headersFor(key),
  });
  return proofExportSchema.parse(reply.json);
}

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

describe('replay of what was decided', () => {
  beforeAll(open);
  afterAll(close);

  it('matches for every proof of the demonstration', async () => {
    const text = await readFile(join(packageRoot, 'examples', 'agent-actions.ndjson'), 'utf8');
    const actions = text.split('\n').filter((line) => line !== '');
    expect(actions.length).toBeGreaterThan(10);
    const effects = new Set<string>();
    for (const line of actions) {
      const admitted = await engine.call({
        headers: headersFor(key),
        body: JSON.stringify(executeBody(JSON.parse(line) as Record<string, unknown>)),
      });
      const receipt = (admitted.json['receipt'] ?? admitted.json) as Record<string, string>;
      effects.add(receipt['status'] ?? '');
      const replay = await replayOf(byId(receipt['registry_proof_id'] ?? ''));
      expect(replay).toMatchObject({ result: 'match', differences: [], counterfactual: null });
      expect(replay.engine.recorded_version).toBe(replay.engine.running_version);
    }
    expect(effects).toEqual(new Set(['ADMITTED', 'DENIED']));
  });

  it('matches for an admission and an outcome of the agent lane', async () => {
    const admission = {
      schema_version: 'svc.agent.admission.envelope/1.0',
      kind: 'admission',
      tenant_id: TENANT,
      agent: { id: 'planner', framework: 'own' },
      action: 'BOOK_RESERVATION',
      tool: 'calendar',
      arguments_hash: 'ab'.repeat(32),
      requested_at: '2026-11-20T17:29:00.123Z',
      nonce: 'nonce-nonce-nonce-1',
    };
    const parent = await admitAgent(admission);
    const outcome = await admitAgent({
      ...without(admission, 'action', 'tool', 'arguments_hash'),
      kind: 'outcome',
      nonce: 'nonce-nonce-nonce-2',
      parent_proof_id: parent,
      result: 'succeeded',
    });
    for (const id of [parent, outcome]) {
      expect(await replayOf(byId(id))).toMatchObject({ result: 'match', differences: [] });
    }
  });

  it('matches for an export, and names what was changed in one', async () => {
    const document = await exported(await admitOne());
    const replay = await replayOf(document);
    expect(replay).toMatchObject({
      result: 'match',
      policy_digest: document.aep.policy.digest,
      input_hash: document.aep.policy.input_hash,
    });
    let seen = 0;
    for (const { what, document: aep } of alterations(document.aep, [['ADMIT', 'DENY']])) {
      const reply = await post({ ...document, aep });
      if (reply.status === 400) continue;
      expect(reply.status, what).toBe(200);
      const altered = replaySchema.parse(reply.json);
      expect(altered.result, what).not.toBe('match');
      const pointer = what.slice(0, what.indexOf(':')).replace('/reasons/0', '/reasons');
      for (const difference of altered.differences) {
        expect(difference.pointer.startsWith(pointer), `${what} ${difference.pointer}`).toBe(true);
      }
      expect(altered.differences.length).toBeGreaterThan(0);
      seen += 1;
    }
    expect(seen).toBeGreaterThan(25);
  });

  it('says what another policy set would have decided, and claims no match for it', async () => {
    const files = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
    const strict = await makePolicySet({
      ...files,
      policies: {
        ...files.policies,
        'no-bookings': `@sentence("Bookings are for people.")
          forbid (principal, action, resource == Svc::Operation::"BOOK_RESERVATION");`,
      },
      sentences: { ...files.sentences, 'no-bookings': 'Bookings are for people.' },
    });
    await storePolicySet(registry.admin, strict);
    const digest = strict.digest.toString('hex');
    const id = await admitOne();
    const replay = await replayOf(byId(id, digest));
    expect(replay).toMatchObject({
      result: 'match',
      counterfactual: {
        policy_digest: digest,
        decision: { effect: 'DENY', reasons: ['no-bookings'] },
        sentences: { 'no-bookings': 'Bookings are for people.' },
        differs: true,
      },
    });
    const same = await replayOf(byId(id, replay.policy_digest));
    expect(same.counterfactual).toMatchObject({
      decision: { effect: 'ADMIT', reasons: ['sandbox-tenants-may-act'] },
      differs: false,
    });
  });

  it('knows no policy set that was never stored', async () => {
    const reply = await post(byId(await admitOne(), '00'.repeat(32)));
    expect(reply.status).toBe(422);
    expect(reply.json['code']).toBe('policy_unknown');
  });

  it('has nothing of another tenant, and nothing that never was', async () => {
    await createTenant(registry.admin, { tenantId: 'other', environment: 'sandbox' });
    await setAllowlisted(registry.admin, 'other', true);
    const others = await issueKey(registry, { tenantId: 'other', scopes: ['verify'] });
    const document = await exported(await admitOne());
    for (const body of [document, byId(document.proof_id), byId(uuidv7().replaceAll('-', ''))]) {
      const reply = await post(body, others, 'other');
      expect(reply.status).toBe(404);
      expect(reply.json['code']).toBe('proof_not_found');
    }
  });

  it('names what differs to a key that may not read the proof, and shows it nothing', async () => {
    const item = registry.item({ intent_id: 'between-us' });
    const [id = ''] = await registry.admitAll([item]);
    const document = await exported(id);
    const wrong = {
      ...document,
      aep: {
        ...document.aep,
        subject: { kind: 'execute', intent_id: 'a guess', action: 'A_GUESS' },
        salt: '00'.repeat(32),
      },
    };
    const pointers = ['/salt', '/subject/action', '/subject/intent_id'];
    const told = async (scopes: string[]) => {
      const reply = await post(wrong, await issueKey(registry, { scopes }));
      return { text: reply.bytes.toString(), replay: replaySchema.parse(reply.json) };
    };
    const verifier = await told(['verify']);
    expect(verifier.replay.result).toBe('divergence');
    expect(verifier.replay.differences).toEqual(pointers.map((pointer) => ({ pointer })));
    for (const secret of ['between-us', 'BOOK_RESERVATION', document.aep.salt]) {
      expect(verifier.text).not.toContain(secret);
    }
    for (const scope of ['read', 'export']) {
      const { differences } = (await told(['verify', scope])).replay;
      expect(differences.map(({ pointer }) => pointer)).toEqual(pointers);
      expect(differences[2]).toMatchObject({ recorded: 'a guess', replayed: 'between-us' });
    }
  });

  it('needs the scope, a body of its own form, and no more than 256 KiB', async () => {
    const reader = await issueKey(registry, { scopes: ['admit', 'read', 'export'] });
    const id = await admitOne();
    expect((await post(byId(id), reader)).json['code']).toBe('scope_missing');
    expect((await post({ schema_version: REQUEST })).json['code']).toBe('missing_field');
    expect((await post({ ...byId(id), salt: 'x' })).json['code']).toBe('unknown_field');
    expect((await post({ ...byId(id), proof_id: ' '.repeat(256 * 1024) })).status).toBe(413);
  });

  async function admitAgent(body: unknown): Promise<string> {
    const request = utf8(JSON.stringify(body));
    const proofId = uuidv7().replaceAll('-', '');
    const item = { ...registry.item(), lane: 2 as const, proofId, request };
    const requestHash = fromHex(hashHex(nativeSha256, canonicalBytes(body as JsonValue)));
    await acceptIntake(registry.engine, [{ ...item, requestHash }]);
    await processAdmissions(registry.admit, [proofId]);
    return proofId;
  }
});

describe('replay of what was tampered with', () => {
  beforeEach(open);
  afterEach(close);

  it('names the policy digest when a text was changed by hand, and the decision with it', async () => {
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

  it('denies under texts that cannot be used', async () => {
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

  it('never calls it a match when another engine decided', async () => {
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

  it('does not take the word of a changed manifest on which engine decided', async () => {
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

  it('holds a changed AEP against the log, even when everything else was changed to fit', async () => {
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

  it.each(['null', 'no JSON'])(
    'does not take %s in place of an AEP for an erased one',
    async (text) => {
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
    },
  );

  it('compares with the log what is left of a proof that lost its AEP', async () => {
    const id = await admitOne();
    await byHand(
      (tx) => tx`
      update svc.proof set aep = null, signature = null
      where replace(proof_id::text, '-', '') = ${id}`,
    );
    expect(await replayOf(byId(id))).toMatchObject({ result: 'match', differences: [] });
  });

  it('says of an erased proof that nothing is left to decide on', async () => {
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
