import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { acceptIntake } from '#sql/admissions/intake';
import { executeBody, headersFor, issueKey } from '../fixtures/engine.js';
import { holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { startProgram } from '../fixtures/program.js';
import { testFolder } from '../fixtures/test-folder.js';
import { programsOn, testRegistry, testSnapshot } from './world.js';

const { db, registry } = await testRegistry();
const { start, activate } = programsOn(db, await testFolder());
await activate(registry);
const key = await issueKey(registry);
const snapshot = await testSnapshot();

const readyz = async (url: string) => {
  const reply = await fetch(`${url}/readyz`, { headers: { connection: 'close' } });
  return { status: reply.status, readiness: ((await reply.json()) as { status: string }).status };
};

describe('after SIGTERM', () => {
  it('the engine finishes receiving its current batch and exits', async () => {
    const engine = await start('engine');
    const lines = [executeBody(), executeBody()].map((one) => `${JSON.stringify(one)}\n`);
    const { hostname, port } = new URL(engine.url);
    const socket = connect(Number(port), hostname);
    let answer = '';
    socket.on('data', (bytes) => (answer += String(bytes)));
    const ended = new Promise<void>((resolve, reject) =>
      socket.once('end', resolve).once('error', reject),
    );
    const headers = { ...headersFor(key), 'Content-Type': 'application/x-ndjson' };
    socket.write(
      `POST /v1/batches HTTP/1.1\r\nHost: x\r\nContent-Length: ${lines.join('').length}\r\n` +
        'Expect: 100-continue\r\n' +
        `${Object.entries(headers)
          .map(([name, value]) => `${name}: ${value}\r\n`)
          .join('')}\r\n${lines[0]}`,
    );
    // The engine has started to read the body.
    await expect.poll(() => answer).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    answer = '';
    engine.signal();
    await sleep(300);
    socket.write(lines[1]!);
    await ended;
    expect(answer).toMatch(/^HTTP\/1\.1 202 /);
    const [, batchId = ''] = /"batch_id":"batch_(\w+)"/.exec(answer) ?? [];
    expect(await db.sql`select from svc.batch where batch_id = ${batchId}::uuid`).toHaveLength(1);
    expect(await engine.exited).toBe(0);
  });

  // Each lock stalls a program in the middle of its work when SIGTERM arrives.
  it.for([
    ['worker', 'log_head'],
    ['verifier', 'verdict'],
    ['publisher', 'checkpoint'],
  ] as const)('%s finishes its current work and exits', async ([name, table]) => {
    const release = await holdLock(db.sql, `lock table svc.${table} in access exclusive mode`);
    if (name === 'worker') await acceptIntake(registry.engine, [registry.item()]);
    const program = await start(name);
    await untilWaiting(db.sql, 1, `svc-${name}%`);
    program.signal();
    let hasEnded = false;
    void program.exited.then(() => (hasEnded = true));
    await sleep(500);
    expect(hasEnded).toBe(false);
    await release();
    expect(await program.exited).toBe(0);
  });

  it('a public API server reports not ready, finishes its current requests and exits', async () => {
    const facade = await startProgram('facade', { ...snapshot.env, SHUTDOWN_DELAY: '1s' });
    expect(await readyz(facade.url)).toMatchObject({ status: 200 });
    const { hostname, port } = new URL(facade.url);
    // One client reads slowly, and the other client is in the middle of its request.
    const slow = connect(Number(port), hostname);
    slow.pause();
    slow.write('GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(8));
    const half = connect(Number(port), hostname);
    half.write('GET /api/public/keys HTTP/1.1\r\nHost: x\r\n');
    await sleep(200);
    facade.signal();
    await expect.poll(() => readyz(facade.url)).toEqual({ status: 503, readiness: 'stopping' });
    await sleep(1_500);
    half.write('\r\n');
    const read = async (socket: typeof half): Promise<string> => {
      let text = '';
      for await (const bytes of socket) text += String(bytes);
      return text;
    };
    const [few, many] = await Promise.all([read(half), read(slow)]);
    expect(few).toMatch(/^HTTP\/1\.1 200 .*Connection: close/s);
    expect(many.split('HTTP/1.1 200 ')).toHaveLength(9);
    expect(await facade.exited).toBe(0);
  });
});
