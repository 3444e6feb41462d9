import { announcedIn } from '#sql/admissions/outcomes';
import { announcingQueue } from '#api/engine/context';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { openAdmitQueue, type AdmitQueue } from '#runtime/queue/queues';
import { setAllowlisted } from '#sql/tenants/administration';
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

type Line = Record<string, unknown> & { msg: string };
let lines: Line[];
const log = pino(
  { level: 'debug' },
  { write: (line: string) => void lines.push(JSON.parse(line) as Line) },
);

beforeAll(async () => {
  key = await issueKey(registry);
  queue = openAdmitQueue({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null }, { log });
  engine = await startEngine(registry, {
    queue: announcingQueue(queue, registry.engine),
    log,
    waitMs: 20_000,
  });
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
  expect(reply.status).toBe(200);
  return reply.json['registry_proof_id'] as string;
}

it('request ids > are logged with the decision about an admission', async () => {
  startWorker();
  await worker?.ready;
  const proofId = await execute('trace-settled');
  expect(await line('admissions committed')).toMatchObject({
    admissions: 1,
    single: [{ proof_id: proofId, request_id: 'trace-settled', effect: 'ADMIT' }],
  });
});

it('announcedIn > reads ids with their request ids, and nothing from a forged long payload', () => {
  const ids = ['a', 'b'].map((digit) => digit.repeat(32));
  const { ids: read, requests } = announcedIn(`${ids.join('')} first second`);
  expect([read, read.map((id) => requests.of(id))]).toEqual([ids, ['first', 'second']]);
  expect(announcedIn(`${ids.join('')} ${'x'.repeat(7_900)}`).ids).toEqual([]);
});
