import { expect, test } from 'vitest';
import type { EngineContext } from '#api/engine/context';
import { proofExportSchema } from '#protocol/schemas/proof-export';
import type { Transaction } from '#sql/db/transaction';
import { treeSize } from '#sql/log/log';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { closeEnvelope, newRunId } from '../../fixtures/agent.js';
import { newApprover } from '../../fixtures/approvals.js';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';
import { freshDatabase, type TestDatabase, withoutTriggers } from '../../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  workBatches,
  type KeyOptions,
  type Reply,
  type TestEngine,
} from '../../fixtures/engine.js';
import { revocationBody } from '../../fixtures/lifecycle.js';
import { overlayBody } from '../../fixtures/overlays.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';
import { byId, verdictIn } from '../../fixtures/verify-call.js';

type Headers = Record<string, string | string[]>;
export type Body = string | Uint8Array | Record<string, unknown> | unknown[];

/** An engine with its own database, a tenant and an API key of that tenant. */
export type Setup = ReturnType<typeof setupOf>;

interface Options extends Partial<EngineContext> {
  scopes?: string[];
}

/** Creates tests that share one `setup` per file. After each test, the workers complete pending admissions. */
export function engineTest(options: Options = {}) {
  const it = test.extend<{ setup: Setup }>({
    setup: [({}, use) => withSetup(options, use), { scope: 'file' }],
  });
  it.afterEach(async ({ setup }: { setup?: Setup }) => {
    if (setup === undefined) return;
    const { engine, registry } = setup;
    engine.worker.isPaused = false;
    engine.worker.fails = null;
    await engine.worker.work();
    await workBatches(registry);
  });
  return it;
}

export async function withSetup(
  options: Options,
  use: (setup: Setup) => Promise<void>,
): Promise<void> {
  const { scopes = ['admin'], ...overrides } = options;
  const db = await freshDatabase();
  const registry = await openRegistry(db);
  const log = testLog(db);
  const engine = await startEngine(registry, { logVkey: log.vkey, ...overrides });
  const key = await issueKey(registry, { scopes });
  await use(setupOf(db, registry, log, engine, key));
  await engine.close();
  await db.drop();
}

function setupOf(
  db: TestDatabase,
  registry: TestRegistry,
  log: TestLog,
  engine: TestEngine,
  key: string,
) {
  const own = headersFor(key);
  const get = (path: string, headers: Headers = {}): Promise<Reply> =>
    engine.call({ method: 'GET', path, headers: { ...own, ...headers } });
  const post = (path: string, body: Body, headers: Headers = {}): Promise<Reply> =>
    engine.call({ path, headers: { ...own, ...headers }, body: bytesOf(body) });
  /** Verifies every leaf and signs a checkpoint. */
  const publish = async (): Promise<void> => {
    await registry.verifyAll();
    await log.publish();
  };
  /** Changes rows as a superuser with all triggers off. */
  const byHand = (change: (tx: Transaction) => Promise<unknown>): Promise<void> =>
    withoutTriggers(db, change);
  return {
    db,
    registry,
    log,
    engine,
    key,
    get,
    post,
    publish,
    byHand,
    /** The keys that a verifier of this engine's proofs pins. */
    pins: {
      aepKeys: [registry.admit.signer.publicKey],
      log: { vkey: log.vkey, origin: log.origin },
    },
    keyFor: (options?: KeyOptions) => issueKey(registry, options),
    /** Creates a tenant that may admit. Returns the request headers with its key. */
    async tenant(tenantId: string, scopes = ['admin']) {
      await createTenant(registry.admin, { tenantId, environment: 'sandbox' });
      await setAllowlisted(registry.admin, tenantId, true);
      return headersFor(await issueKey(registry, { tenantId, scopes }), tenantId);
    },
    /** Starts a second engine on this database for the duration of `work`. */
    async withEngine<T>(
      overrides: Partial<EngineContext>,
      work: (engine: TestEngine) => Promise<T>,
    ): Promise<T> {
      const other = await startEngine(registry, overrides);
      try {
        return await work(other);
      } finally {
        await other.close();
      }
    },
    execute: (body: Body = executeBody(), headers: Headers = {}) =>
      post('/v1/intents/execute', body, headers),
    /** Sends an admission and applies `change` before a worker processes it. */
    async whileItWaits(send: () => Promise<Reply>, change: () => Promise<unknown>) {
      const { worker } = engine;
      worker.isPaused = true;
      const waiting = send();
      await expect.poll(() => worker.jobs.length, { interval: 5 }).toBe(1);
      await change();
      await worker.work();
      worker.isPaused = false;
      return waiting;
    },
    async admitOne(action = 'BOOK_RESERVATION') {
      const [id = ''] = await registry.admitAll([registry.item({ action })]);
      return id;
    },
    /** Publishes, then exports a proof. */
    async exported(proofId: string) {
      await publish();
      return proofExportSchema.parse((await get(`/v1/proofs/${proofId}/export`)).json);
    },
    revoke: registry.revoke,
    /** Changes rows during `work`, and restores them, because a damaged log accepts no entries. */
    async whileAltered<T>(
      table: string,
      assignment: string,
      condition: string,
      work: () => Promise<T>,
    ): Promise<T> {
      await db.sql.unsafe(`drop table if exists public.kept;
        create table public.kept as select * from svc.${table} where ${condition}`);
      let places: string[] = [];
      await byHand(async (tx) => {
        const changed = await tx.unsafe<{ place: string }[]>(
          `update svc.${table} set ${assignment} where ${condition} returning ctid::text as place`,
        );
        expect(changed).not.toEqual([]);
        places = changed.map(({ place }) => place);
      });
      try {
        return await work();
      } finally {
        await byHand(async (tx) => {
          await tx.unsafe(
            `delete from svc.${table} where ctid = any(string_to_array($1, ' ')::tid[])`,
            [places.join(' ')],
          );
          await tx.unsafe(`insert into svc.${table} select * from public.kept`);
        });
      }
    },
    treeSize: () => treeSize(registry.engine),
  };
}

function bytesOf(body: Body): string | Uint8Array {
  return typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
}

/** Ids of one resource of each kind. `second` is another proof, for operations on several proofs. */
export type Resources = Record<
  | 'proof_id'
  | 'second'
  | 'package_id'
  | 'token_hash'
  | 'batch_id'
  | 'key_id'
  | 'overlay_id'
  | 'registration_hash'
  | 'run',
  string
>;

/**
 * Creates one resource of each kind for a tenant. Returns the ids, keyed by the parameter or member that takes the id.
 */
export async function fillTenant(
  { post, publish, registry }: Setup,
  tenantId: string,
  headers: Headers,
): Promise<Resources> {
  const make = async (path: string, body: Body): Promise<Reply['json']> => {
    const reply = await post(path, body, headers);
    expect(reply.status).toBeLessThan(300);
    return reply.json;
  };
  const body = () => executeBody({ tenant_id: tenantId });
  const admit = async () =>
    String((await make('/v1/intents/execute', body()))['registry_proof_id']);
  const [proof_id, second] = [await admit(), await admit()];
  const packaged = await make('/v1/packages', {
    schema_version: 'svc.lifecycle.package_request/1.0',
    proof_ids: [proof_id, second],
  });
  const shared = await make('/v1/share-tokens', {
    schema_version: 'svc.lifecycle.share_token_request/1.0',
    artifact_kind: 'proof',
    proof_id,
  });
  await make(
    `/v1/proofs/${proof_id}/revocations`,
    revocationBody({ artifact_kind: 'certificate' }),
  );
  const key = await make('/v1/keys', {
    schema_version: 'svc.tenant.api_key_request/1.0',
    scopes: ['read'],
  });
  const overlay = await make('/v1/overlays', overlayBody());
  const approver = await make('/v1/approvers', newApprover(tenantId).registration);
  const batch = await make('/v1/batches', [body()]);
  const run = newRunId();
  const close = closeEnvelope({ id: run, seq: 0 }, { tenant_id: tenantId });
  await make('/v1/agent/admissions', close);
  await workBatches(registry);
  await publish();
  return {
    proof_id,
    second,
    package_id: String(packaged['package_id']),
    token_hash: String(shared['token_hash']),
    batch_id: String(batch['batch_id']),
    key_id: String(key['key_id']),
    overlay_id: String(overlay['overlay_id']),
    registration_hash: String(approver['registration_hash']),
    run,
  };
}

export const keyIdOf = (apiKey: string): string => apiKey.slice(7, 19);

/** The SQL condition for the rows of one proof. */
export const ofProof = (proofId: string): string =>
  `replace(proof_id::text, '-', '') = '${proofId}'`;

/** An SQL expression for the body of a log entry in which a part is replaced. */
export const replacedIn = (from: string, to: string): string =>
  `convert_to(replace(convert_from(body, 'UTF8'), '${from}', '${to}'), 'UTF8')`;

/** The reply of `POST /v1/proofs/replay`, optionally under a given policy set. */
export const replayOf = (
  { post }: Setup,
  proofId: unknown,
  policyDigest?: string,
  headers?: Headers,
): Promise<Reply> => {
  const body = { ...byId(String(proofId)), schema_version: 'svc.verification.replay_request/1.0' };
  const under = policyDigest === undefined ? {} : { policy_digest: policyDigest };
  return post('/v1/proofs/replay', { ...body, ...under }, headers);
};

/** The verdict of `POST /v1/proofs/verify` on a submission. */
export const verdictOn = async ({ post }: Setup, body: object, headers?: Headers) =>
  verdictIn(await post('/v1/proofs/verify', { ...body }, headers));
