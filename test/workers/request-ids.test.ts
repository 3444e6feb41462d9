import { pino } from 'pino';
import { expect, it } from 'vitest';
import { openAdmitQueue } from '#runtime/queue/queues';
import { announcedIn, announcePending } from '#sql/admissions/outcomes';
import { startAdmitWorker } from '#workers/admit/worker';
import { executeBody, headersFor, issueKey, startEngine } from '../fixtures/engine.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

it('request ids > are logged with the decision about an admission', async () => {
  const lines: unknown[] = [];
  const log = pino(
    { level: 'debug' },
    { write: (line: string) => void lines.push(JSON.parse(line)) },
  );
  const queueOf = (role: string) => ({ databaseUrl: db.urlFor(role), redisUrl: null });
  const queue = openAdmitQueue(queueOf('svc_engine'), { log });
  const engine = await startEngine(registry, {
    queue,
    announce: (...admissions) => announcePending(registry.engine, ...admissions),
    log,
    waitMs: 20_000,
  });
  const worker = startAdmitWorker({ ...registry.admit, log }, queueOf('svc_worker'));
  await worker.ready;
  const reply = await engine.call({
    path: '/v1/intents/execute',
    headers: { ...headersFor(await issueKey(registry)), 'X-Request-Id': 'trace-settled' },
    body: JSON.stringify(executeBody()),
  });
  expect(reply.status).toBe(200);
  const decision = {
    proof_id: reply.json['registry_proof_id'],
    request_id: 'trace-settled',
    effect: 'ADMIT',
  };
  const line = { msg: 'admissions committed', admissions: 1, single: [decision] };
  await expect.poll(() => lines).toContainEqual(expect.objectContaining(line));
  await Promise.all([worker.close(), engine.close()]);
  await queue.close();
});

it('announcedIn > reads ids with their request ids and tenants, and nothing from a forged long payload', () => {
  const ids = ['a', 'b'].map((digit) => digit.repeat(32));
  for (const [owners, tenants] of [
    [' 1,2', ['1', '2']],
    // An engine of an earlier version does not name the tenants.
    ['', []],
  ] as const) {
    const { requests, ...found } = announcedIn(`${ids.join('')} first second${owners}`);
    expect(found).toEqual({ ids, tenants });
    expect(ids.map((id) => requests.of(id))).toEqual(['first', 'second']);
  }
  expect(announcedIn(`${ids.join('')} ${'x'.repeat(7_900)}`).ids).toEqual([]);
});
