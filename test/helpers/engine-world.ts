import { createPdfRenderer, PDF_DEFAULTS } from '#api/engine/pdf/pool';
import { connect } from '#runtime/postgres/connect';
import { createTenant, setAllowlisted, setLane } from '#sql/tenants/administration';
import { TenantConnections } from '#sql/db/tenant-connections';
import { testLog, type TestLog } from './checkpoints.js';
import { freshDatabase, type TestDatabase } from './database.js';
import {
  headersFor,
  issueKey,
  startEngine,
  without,
  type Call,
  type TestEngine,
} from './engine.js';
import { openRegistry, TENANT, type TestRegistry } from './registry.js';

/** Engines in the conditions that operations are asked under, all real and on real databases. */
export interface EngineWorld {
  db: TestDatabase;
  registry: TestRegistry;
  log: TestLog;
  /** All is well. */
  engine: TestEngine;
  /** A key with every scope. */
  key: string;
  /** Its database cannot be reached. */
  dbDown: TestEngine;
  /** Its database refuses what it asks: the engine's own fault. */
  broken: TestEngine & { key: string };
  /** Nobody has activated a policy. */
  noPolicy: TestEngine & { key: string };
  /** One request a second. */
  limited: TestEngine;
  /** Nothing more is accepted. */
  full: TestEngine;
  /** Answers 202 rather than wait. */
  shortWait: TestEngine;
  /** Takes no batches in. */
  batchless: TestEngine;
  /** Has memory for one batch of 4 MiB. */
  narrow: TestEngine;
  /** Lends tenants no connections, and waits 50 ms for a lock. */
  busy: TestEngine;
  /** Renders nothing. */
  pdfDisabled: TestEngine;
  /** Waits for no rendering. */
  impatient: TestEngine;
  close(): Promise<void>;
}

export async function openEngineWorld(): Promise<EngineWorld> {
  const db = await freshDatabase();
  const registry = await openRegistry(db);
  const [brokenDb, lawlessDb] = await Promise.all([freshDatabase(), freshDatabase()]);
  const brokenRegistry = await openRegistry(brokenDb);
  const brokenKey = await issueKey(brokenRegistry, { scopes: ['admin'] });
  await brokenDb.sql`revoke all on svc.api_key from svc_engine`;

  const lawlessAdmin = lawlessDb.as('svc_admin');
  await createTenant(lawlessAdmin, { tenantId: TENANT, environment: 'sandbox' });
  await setAllowlisted(lawlessAdmin, TENANT, true);
  await setLane(lawlessAdmin, 'sandbox', true);
  const noPolicy = { ...registry, admin: lawlessAdmin, engine: lawlessDb.as('svc_engine') };

  // A port on which nobody listens.
  const nowhere = connect('postgres://svc_engine:none@127.0.0.1:1/none', {
    application: 'test',
    max: 1,
    connectTimeoutMs: 1_000,
  });
  const log = testLog(db);
  const generous = { logVkey: log.vkey, rateLimit: 100_000, batchLimit: 1024 * 1024 };
  const engine = await startEngine(registry, generous);
  const dbDown = await startEngine(registry, { sql: nowhere });
  const broken = await startEngine(brokenRegistry);
  const bare = await startEngine(noPolicy);
  const limited = await startEngine(registry, { rateLimit: 1 });
  const full = await startEngine(registry, { maxQueuedAdmissions: 0 });
  const shortWait = await startEngine(registry, { ...generous, waitMs: 50 });
  shortWait.worker.rests = true;
  const batchless = await startEngine(registry, { ...generous, batchesOfOneTenant: 0 });
  const narrow = await startEngine(registry, {
    ...generous,
    batchesAtOnce: 1,
    batchLimit: 4 * 1024 * 1024,
  });
  const impatientSql = connect(db.urlFor('svc_engine'), {
    application: 'test',
    max: 4,
    lockTimeoutMs: 50,
  });
  const none = { sql: impatientSql, total: 0, perTenant: 0, maxWaiting: 0, timeoutMs: 1 };
  const busy = await startEngine(registry, {
    ...generous,
    sql: impatientSql,
    tenantSql: new TenantConnections(none),
  });
  const noThreads = createPdfRenderer({ threads: 0, queued: 0, timeoutMs: 1_000 });
  const noTime = createPdfRenderer({ ...PDF_DEFAULTS, timeoutMs: 1 });
  const pdfDisabled = await startEngine(registry, { ...generous, pdf: noThreads });
  const impatient = await startEngine(registry, { ...generous, pdf: noTime });
  const engines = [
    engine,
    dbDown,
    broken,
    bare,
    limited,
    full,
    shortWait,
    batchless,
    narrow,
    busy,
    pdfDisabled,
    impatient,
  ];
  return {
    db,
    registry,
    log,
    engine,
    key: await issueKey(registry, { scopes: ['admin'] }),
    dbDown,
    broken: { ...broken, key: brokenKey },
    noPolicy: { ...bare, key: await issueKey(noPolicy, { scopes: ['admin'] }) },
    limited,
    full,
    shortWait,
    batchless,
    narrow,
    busy,
    pdfDisabled,
    impatient,
    close: async () => {
      await Promise.all(engines.map((one) => one.close()));
      await Promise.all([noThreads.close(), noTime.close()]);
      await Promise.all([nowhere.end({ timeout: 1 }), impatientSql.end({ timeout: 1 })]);
      await Promise.all([db, brokenDb, lawlessDb].map((one) => one.drop()));
    },
  };
}

/** Ids of proofs that were just admitted, or denied for an action that is. */
export function admitted(world: EngineWorld, action = 'BOOK_RESERVATION'): Promise<string> {
  const { registry } = world;
  return registry.admitAll([registry.item({ action })]).then(([id = '']) => id);
}

/** The same, verified and under a checkpoint that covers all that is known of it. */
export async function established(world: EngineWorld, action?: string): Promise<string> {
  const id = await admitted(world, action);
  await world.registry.verifyAll();
  await world.log.publish();
  return id;
}

export function get(world: EngineWorld, path: string, headers: Record<string, string> = {}): Call {
  const keyed = without(headersFor(world.key), 'Content-Type');
  return { method: 'GET', path, headers: { ...keyed, ...headers } };
}

export function post(
  world: EngineWorld,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Call {
  return {
    method: 'POST',
    path,
    headers: { ...headersFor(world.key), ...headers },
    body: JSON.stringify(body),
  };
}
