import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fromHex, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { replaySchema, type Replay } from '#protocol/schemas/replay';
import { nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/package-root';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { acceptIntake } from '#sql/admissions/accept';
import { storePolicySet } from '#sql/admissions/policies';
import { processAdmissions } from '#workers/admit/process';
import { alterations } from '../../fixtures/altered.js';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
  without,
} from '../../fixtures/engine.js';
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

describe('POST /v1/proofs/replay', () => {
  beforeAll(open);
  afterAll(close);

  it('matches for every proof of the demo', async () => {
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

  it('matches for an agent admission and its outcome', async () => {
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

  it('matches for an export and names changes in one', async () => {
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

  it('reports the decision of another policy set', async () => {
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

  it('responds with 422 for an unknown policy set', async () => {
    const reply = await post(byId(await admitOne(), '00'.repeat(32)));
    expect(reply.status).toBe(422);
    expect(reply.json['code']).toBe('policy_unknown');
  });

  it('responds with 404 for other tenants’ and unknown proofs', async () => {
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

  it('names differences without values for a key without read scope', async () => {
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

  it('requires the scope, a valid body and at most 256 KiB', async () => {
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
