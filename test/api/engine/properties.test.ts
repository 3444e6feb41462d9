import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS } from '#api/engine/operations';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { callArbitrary, type Credentials } from '../../fixtures/call-arbitrary.js';
import { testLog } from '../../fixtures/checkpoints.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { headersFor, issueKey, startEngine, type TestEngine } from '../../fixtures/engine.js';
import { openRegistry, TENANT } from '../../fixtures/registry.js';
import type { Known } from '../../fixtures/schema-arbitrary.js';
import { readOpenApi, type ServedOpenApi } from '../../fixtures/served-openapi.js';

/** For a longer search: PROPERTY_RUNS=2000; to see the same again: PROPERTY_SEED=the printed one. */
const RUNS = Number(process.env['PROPERTY_RUNS'] ?? 12);
const SEED = Number(process.env['PROPERTY_SEED'] ?? Date.now() % 2 ** 31);
const TIMEOUT_MS = 20_000 + RUNS * 1_000;

let db: TestDatabase;
let engine: TestEngine;
let api: ServedOpenApi;
let known: Known;
let credentials: Credentials;
/** Documents that the engine itself gave out, for the operations that take them. */
let genuine: Record<string, unknown[]>;
/** How often each operation was answered with each status. */
const answered = new Map<string, Map<number, number>>();

beforeAll(async () => {
  db = await freshDatabase();
  const registry = await openRegistry(db);
  engine = await startEngine(registry, { rateLimit: 1_000_000 });
  const key = await issueKey(registry, { scopes: ['admin'] });
  const actions = ['BOOK_RESERVATION', 'DELETE_AUDIT_LOG', 'PAY', 'SEND_MAIL'];
  const items = actions.map((action) => registry.item({ action }));
  const admittedIds = await registry.admitAll([...items, ...items.map(() => registry.item())]);
  await registry.verifyAll();
  await testLog(db).publish();
  // A proof that is not verified yet.
  const late = await registry.admitAll([registry.item()]);
  const ids = [...admittedIds, ...late];

  await createTenant(registry.admin, { tenantId: 'other', environment: 'sandbox' });
  await setAllowlisted(registry.admin, 'other', true);
  const stranger = await issueKey(registry, { tenantId: 'other', scopes: ['admin'] });
  credentials = {
    good: headersFor(key),
    others: [
      headersFor(await issueKey(registry, { scopes: ['read'] })),
      headersFor(stranger, 'other'),
      headersFor(stranger),
      headersFor('svc_sk_nonsense'),
      {},
    ],
  };
  const make = async (path: string, body: object): Promise<Record<string, unknown>> => {
    const reply = await engine.call({ path, headers: headersFor(key), body: JSON.stringify(body) });
    return reply.json;
  };
  const made = await make('/v1/packages', {
    schema_version: 'svc.lifecycle.package_request/1.0',
    proof_ids: [ids[0], ids[4]],
  });
  const share = await make('/v1/share-tokens', {
    schema_version: 'svc.lifecycle.share_token_request/1.0',
    artifact_kind: 'proof',
    proof_id: ids[0],
  });
  const batch = await make('/v1/batches', [
    {
      ...(JSON.parse(Buffer.from(items[0]!.request).toString()) as object),
      intent_id: 'of a batch',
    },
  ]);
  known = {
    tenant_id: [TENANT],
    proof_id: ids,
    parent_proof_id: ids,
    package_id: [made['package_id']],
    batch_id: [batch['batch_id']],
    token_hash: [share['token_hash']],
    action: actions,
    artifact_kind: ['proof', 'passport', 'certificate', 'trust'],
  };
  const exported = await engine.call({
    method: 'GET',
    path: `/v1/proofs/${ids[0] ?? ''}/export`,
    headers: headersFor(key),
  });
  expect(exported.status).toBe(200);
  genuine = { verifyProof: [exported.json], replayProof: [exported.json] };
  api = await readOpenApi(engine.url);
  console.log(`PROPERTY_SEED=${SEED} PROPERTY_RUNS=${RUNS}`);
});

afterAll(async () => {
  for (const [id, statuses] of answered) {
    const counts = [...statuses].sort(([a], [b]) => a - b);
    console.log(id, counts.map(([status, count]) => `${status}×${count}`).join(' '));
  }
  await engine.close();
  await db.drop();
});

describe('random requests generated from the OpenAPI document', () => {
  it.each(OPERATIONS.map(({ spec }) => spec.id))(
    'get only documented responses and no 5xx from %s',
    async (id) => {
      const operation = api.operations.find((one) => one.id === id)!;
      const statuses = new Map<number, number>();
      answered.set(id, statuses);
      const calls = callArbitrary(api, operation, known, credentials, genuine[id]);
      await fc.assert(
        fc.asyncProperty(calls, async (call) => {
          const reply = await engine.call(call);
          statuses.set(reply.status, (statuses.get(reply.status) ?? 0) + 1);
          const faults = api.faultsOf(operation, reply);
          if (reply.status >= 500)
            faults.push(`answered ${reply.status} ${reply.bytes.toString()}`);
          expect(faults).toEqual([]);
        }),
        { numRuns: RUNS, seed: SEED, interruptAfterTimeLimit: TIMEOUT_MS - 5_000 },
      );
    },
    TIMEOUT_MS,
  );

  it('got both successes and problems', () => {
    const seen = (from: number, to: number) =>
      [...answered.values()].filter((statuses) =>
        [...statuses.keys()].some((status) => status >= from && status < to),
      ).length;
    expect(seen(200, 300)).toBeGreaterThan(OPERATIONS.length / 2);
    expect(seen(400, 500)).toBeGreaterThan(OPERATIONS.length / 2);
  });
});
