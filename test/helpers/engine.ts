import { randomBytes } from 'node:crypto';
import { TENANT_CONNECTIONS, TenantConnections } from '#sql/db/tenant-connections';
import { ENGINE_DEFAULTS, type EngineContext } from '#api/engine/context';
import { createEngine } from '#api/engine/engine';
import { createPdfRenderer, PDF_DEFAULTS } from '#api/engine/pdf/pool';
import { unreadProblem } from '#api/engine/http/problem';
import { createOutcomeWaiter } from '#api/engine/admission/wait';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey } from '#protocol/api-key';
import { systemClock } from '#runtime/process/clock';
import { nativeSha256 } from '#runtime/crypto/node';
import { listen } from '#runtime/http/server';
import { logger } from '#runtime/process/log';
import { insertApiKey } from '#sql/tenants/administration';
import { leaseNextChunk, requeueExpiredLeases, resolveDuplicateItems } from '#sql/batches/chunks';
import { CHUNK_ITEMS } from '#sql/batches/accept';
import { settledRevocations } from '#sql/lifecycle/revocations';
import { readOutcomes } from '#sql/admissions/outcomes';
import { processAdmissions } from '#workers/admit/process';
import { settleRevocations } from '#workers/lifecycle/settle-revocations';
import { TENANT, type TestRegistry } from './registry.js';
import { send, type Call, type Reply } from './send.js';

export { send, type Call, type Reply };

export interface TestEngine {
  url: string;
  /** A request exactly as described: nothing is added to it. */
  call(call: Call): Promise<Reply>;
  /** A worker in this process: while it rests, jobs are remembered. */
  worker: {
    rests: boolean;
    jobs: string[][];
    revocations: string[][];
    batches: string[][];
    fails: Error | null;
    work(): Promise<void>;
  };
  close(): Promise<void>;
}

/** The real engine over HTTP, with the real admit pipeline behind it and no queue between. */
export async function startEngine(
  registry: TestRegistry,
  overrides: Partial<EngineContext> = {},
): Promise<TestEngine> {
  const log = logger('engine', 'silent');
  const sql = overrides.sql ?? registry.engine;
  const waiting = createOutcomeWaiter({ readOutcomes: (ids) => readOutcomes(sql, ids), log });
  const revocations = createOutcomeWaiter({
    readOutcomes: (ids) => settledRevocations(sql, ids),
    log,
  });
  const worker: TestEngine['worker'] = {
    rests: false,
    jobs: [],
    revocations: [],
    batches: [],
    fails: null,
    work: async () => {
      for (let ids = worker.jobs.shift(); ids !== undefined; ids = worker.jobs.shift()) {
        await processAdmissions(registry.admit, ids);
        waiting.wake(ids);
      }
      if (worker.batches.splice(0).length > 0) await workTurns(registry);
      for (const ids of worker.revocations.splice(0)) {
        await settleRevocations(registry.admit, ids);
        revocations.wake(ids);
      }
    },
  };
  const queue: EngineContext['queue'] = {
    add: async (ids) => {
      if (worker.fails !== null) throw worker.fails;
      worker.jobs.push([...ids]);
      if (!worker.rests) await worker.work();
      return 'job';
    },
    addBatches: async (ids) => {
      if (worker.fails !== null) throw worker.fails;
      worker.batches.push([...ids]);
      if (!worker.rests) await worker.work();
      return 'job';
    },
    addRevocations: async (ids) => {
      if (worker.fails !== null) throw worker.fails;
      worker.revocations.push([...ids]);
      if (!worker.rests) await worker.work();
      return 'job';
    },
    ping: () => (worker.fails === null ? Promise.resolve() : Promise.reject(worker.fails)),
  };
  const pdf = createPdfRenderer(PDF_DEFAULTS);
  const engine = createEngine({
    ...ENGINE_DEFAULTS,
    sql,
    tenantSql: new TenantConnections({ ...TENANT_CONNECTIONS, sql }),
    queue,
    waiting,
    revocations,
    log,
    clock: systemClock,
    pdf,
    publicUrl: 'https://registry.example',
    admissionsPaused: false,
    ...overrides,
  });
  const server = await listen(engine, {
    host: '127.0.0.1',
    port: 0,
    answerUnread: unreadProblem,
    messages: engine,
  });
  return {
    url: server.url,
    call: (call) => send(server.url, call),
    worker,
    close: async () => {
      await server.close(1_000);
      await pdf.close();
    },
  };
}

/** Works batches as workers do until none has anything pending, whoever else works them. */
export async function workBatches(registry: TestRegistry): Promise<void> {
  const { sql } = registry.admit;
  for (;;) {
    await workTurns(registry);
    const open = await sql`select from svc.batch_progress where pending > 0 limit 1`;
    if (open.length === 0) return;
    await requeueExpiredLeases(sql, 0);
  }
}

async function workTurns(registry: TestRegistry): Promise<void> {
  const { sql } = registry.admit;
  const turn = (): Promise<string[] | null> => leaseNextChunk(sql, CHUNK_ITEMS);
  for (let ids = await turn(); ids !== null; ids = await turn()) {
    await processAdmissions(registry.admit, ids);
  }
  await resolveDuplicateItems(sql, 100_000);
}

export interface KeyOptions {
  tenantId?: string;
  scopes?: string[];
  expiresAt?: number;
}

/** Issues an API key as `admin` does. */
export async function issueKey(registry: TestRegistry, options: KeyOptions = {}): Promise<string> {
  const keyId = apiKeyIdFrom(randomBytes(8));
  const secret = randomBytes(32);
  await insertApiKey(registry.admin, {
    keyId,
    tenantId: options.tenantId ?? TENANT,
    secretHash: apiKeySecretHash(nativeSha256, secret),
    scopes: options.scopes ?? ['admit', 'read'],
    reviewRef: 'test',
    expiresAt: options.expiresAt ?? null,
  });
  return formatApiKey({ keyId, secret });
}

/** The same without some of its members. */
export function without<T extends object>(whole: T, ...names: string[]): T {
  return Object.fromEntries(Object.entries(whole).filter(([name]) => !names.includes(name))) as T;
}

let counter = 0;

export function executeBody(overrides: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    schema_version: 'svc.runtime.intent_execute.request/1.0',
    intent_id: `http-${++counter}`,
    tenant_id: TENANT,
    action: 'BOOK_RESERVATION',
    ...overrides,
  };
}

export function headersFor(apiKey: string, tenantId = TENANT): Record<string, string> {
  return {
    'X-Svc-Api-Key': apiKey,
    'X-Svc-Tenant-Id': tenantId,
    'Content-Type': 'application/json',
  };
}
