import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import { openAdmitQueue, type AdmitQueue } from '#runtime/queue/queues';
import { setAllowlisted } from '#sql/tenants/administration';
import { acceptIntake } from '#sql/admissions/intake';
import { startAdmitWorker, WORKER_DEFAULTS, type AdmitWorker } from '#workers/admit/worker';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type TestEngine,
} from '../fixtures/engine.js';
import { TENANT } from '../fixtures/registry.js';
import { eventually } from '../fixtures/stack.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');
let key: string;
let queue: AdmitQueue;
let engine: TestEngine;
let worker: AdmitWorker | null = null;

const KEPT = 'admissions cannot be committed; they are kept and retried';

type Line = Record<string, unknown> & { msg: string };
let lines: Line[];
const log = pino(
  { level: 'debug' },
  { write: (line: string) => void lines.push(JSON.parse(line) as Line) },
);

beforeAll(async () => {
  key = await issueKey(registry);
  queue = openAdmitQueue({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null }, { log });
  engine = await startEngine(registry, { queue, log, waitMs: 50 });
});
beforeEach(() => {
  lines = [];
});
afterEach(async () => {
  await worker?.close();
  worker = null;
  await setAllowlisted(registry.admin, TENANT, true);
});
afterAll(async () => {
  await engine.close();
  await queue.close();
});

/** Runs `work` while a worker of this test logs at level debug. */
function startWorker(staleAfterMs = 60_000): void {
  worker = startAdmitWorker(
    { ...registry.admit, log },
    { databaseUrl: db.urlFor('svc_worker'), redisUrl: null },
    { ...WORKER_DEFAULTS, requeueEveryMs: 100, staleAfterMs },
  );
}

const line = (msg: string): Promise<Line> =>
  eventually(
    () => Promise.resolve(lines.find((one) => one.msg === msg) ?? null),
    20_000,
    `the line "${msg}"`,
  );

async function execute(requestId: string, body = executeBody()): Promise<string> {
  const headers = { ...headersFor(key), 'X-Request-Id': requestId };
  const reply = await engine.call({
    path: '/v1/intents/execute',
    headers,
    body: JSON.stringify(body),
  });
  expect(reply.status).toBe(202);
  return reply.json['proof_id'] as string;
}

it('request ids > are logged with the outcome of an admission', async () => {
  const proofId = await execute('trace-settled');
  startWorker();
  expect(await line('admissions committed')).toMatchObject({
    admissions: 1,
    single: [{ proof_id: proofId, request_id: 'trace-settled', effect: 'ADMIT' }],
  });
});

it('request ids > can be found by the proof id after a requeue', async () => {
  const lost = await engine.call({
    path: '/v1/intents/execute',
    headers: { ...headersFor(key), 'X-Request-Id': 'trace-lost' },
    body: JSON.stringify(executeBody()),
  });
  const proofId = lost.json['proof_id'] as string;
  // The job is lost, together with its request ids.
  await db.sql`delete from bullmq.job`;
  await new Promise((resolve) => setTimeout(resolve, 2_100));
  startWorker(1_000);
  expect(await line('stale admissions requeued')).toMatchObject({ first: [{ proof_id: proofId }] });
  const late = await line('admissions committed late');
  expect(late).toMatchObject({ level: 30, single: [{ proof_id: proofId }] });
  expect(JSON.stringify(late)).not.toContain('request_id');
  // The engine's log line contains both the proof id and the request id.
  expect(await line('request')).toMatchObject({ request_id: 'trace-lost', proof_id: proofId });
});

it('request ids > are logged with the ids of a batch and its items', async () => {
  const reply = await engine.call({
    path: '/v1/batches',
    headers: {
      ...headersFor(key),
      'Content-Type': 'application/x-ndjson',
      'X-Request-Id': 'trace-batch',
    },
    body: [executeBody(), executeBody()].map((one) => JSON.stringify(one)).join('\n'),
  });
  expect(reply.status).toBe(202);
  const batch_id = reply.json['batch_id'] as string;
  startWorker();
  expect(await line('admissions committed')).toMatchObject({
    batches: [{ batch_id, admissions: 2 }],
  });
  expect(await line('batch received')).toMatchObject({ batch_id, request_id: 'trace-batch' });
  expect(await line('request')).toMatchObject({ batch_id, request_id: 'trace-batch' });
});

it('request ids > are omitted from the log when the job contains invalid ones', async () => {
  const item = registry.item();
  await acceptIntake(registry.engine, [item]);
  const forged = { join: () => '\u001b[31m"}\n{"forged":true}' } as unknown as string[];
  await queue.add([item.proofId], forged);
  startWorker();
  const logged = await line('admissions committed');
  expect(logged).toMatchObject({ single: [{ proof_id: item.proofId, effect: 'ADMIT' }] });
  expect(JSON.stringify(lines)).not.toContain('forged');
});

it('request ids > are logged with a failure, even after the clock was set back', async () => {
  await db.sql`revoke insert on svc.log_entry from svc_worker`;
  const clocks = [vi.spyOn(Date, 'now'), vi.spyOn(performance, 'now')] as const;
  try {
    const proofId = await execute('trace-kept');
    startWorker();
    const first = [{ proof_id: proofId, request_id: 'trace-kept' }];
    expect(await line(KEPT)).toMatchObject({ admissions: 1, first });
    const [set, passed] = [Date.now() - 60 * 60_000, performance.now() + 6_000];
    clocks[0].mockReturnValue(set);
    clocks[1].mockReturnValue(passed);
    lines = [];
    await execute('trace-kept-too');
    await line(KEPT);
  } finally {
    for (const clock of clocks) clock.mockRestore();
    await db.sql`grant insert on svc.log_entry to svc_worker`;
  }
});
