import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { acceptIntake } from '#sql/admissions/accept';
import { ensureKeyActive } from '#sql/lifecycle/entries';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { testLog } from '../fixtures/checkpoints.js';
import { executeBody, headersFor, issueKey, without } from '../fixtures/engine.js';
import { startProgram, type RunningProgram } from '../fixtures/program.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { TestSnapshot } from '../fixtures/snapshot.js';

let home: string;
let db: TestDatabase;
let registry: TestRegistry;
let key: string;
const file = (name: string): string => join(home, `${name}.pem`);

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-drain-'));
  db = await freshDatabase();
  registry = await openRegistry(db);
  key = await issueKey(registry);
  for (const name of ['log', 'snapshot']) createSigningKey(file(name));
  const { publicKey } = createSigningKey(file('aep'));
  const keyId = jwkThumbprint(nativeSha256, publicKey);
  await ensureKeyActive(registry.admin, nativeSha256, {
    keyId,
    publicKey: toBase64Url(publicKey),
  });
});
afterAll(async () => {
  await db.drop();
  await rm(home, { recursive: true, force: true });
});

const environments = {
  engine: () => ({ ENGINE_PORT: '0' }),
  worker: () => ({ AEP_KEY_FILE: file('aep') }),
  verifier: () => ({}),
  publisher: () => ({
    LOG_KEY_FILE: file('log'),
    SNAPSHOT_KEY_FILE: file('snapshot'),
    LOG_ORIGIN: 'drain.example/log',
    SNAPSHOT_DIR: join(home, 'public'),
  }),
};

function start(
  name: keyof typeof environments,
  env: Record<string, string> = {},
): Promise<RunningProgram> {
  const DATABASE_URL = db.urlFor(`svc_${name}`);
  return startProgram(name, { DATABASE_URL, ...environments[name](), ...env });
}

const execute = (url: string): Promise<Response> =>
  fetch(`${url}/v1/intents/execute`, {
    method: 'POST',
    headers: headersFor(key),
    body: JSON.stringify(executeBody()),
  });

const readyz = async (url: string) => {
  const reply = await fetch(`${url}/readyz`, { headers: { connection: 'close' } });
  return { status: reply.status, says: ((await reply.json()) as { status: string }).status };
};

async function pending(): Promise<number> {
  const rows = await db.sql`select from svc.intake_pending`;
  return rows.length;
}

/** Locks a table until released. */
async function hold(table: string, { sql } = db): Promise<() => Promise<void>> {
  const connection = await sql.reserve();
  await connection.unsafe(`begin; lock table svc.${table} in access exclusive mode`);
  return async () => {
    await connection.unsafe('rollback');
    connection.release();
  };
}

async function untilWaiting(application: string, { sql } = db): Promise<void> {
  for (let n = 0; n < 400; n += 1) {
    const waiting = await sql`
      select from pg_stat_activity where application_name like ${`${application}%`}
        and datname = current_database() and wait_event_type = 'Lock'`;
    if (waiting.length > 0) return;
    await sleep(25);
  }
  throw new Error(`${application} does not wait for a lock`);
}

describe('a stopping engine', () => {
  it('reports not ready, and serves new requests during the delay', async () => {
    const engine = await start('engine', { SHUTDOWN_DELAY: '2s' });
    expect(await readyz(engine.url)).toEqual({ status: 200, says: 'ready' });
    const kept = new Agent({ keepAlive: true, maxSockets: 1 });
    const askKept = () =>
      new Promise<{ status: number; connection: string }>((resolve, reject) => {
        httpRequest(`${engine.url}/healthz`, { agent: kept }, (reply) => {
          reply.resume().once('end', () =>
            resolve({
              status: reply.statusCode ?? 0,
              connection: reply.headers.connection ?? '',
            }),
          );
        })
          .once('error', reject)
          .end();
      });
    expect(await askKept()).toEqual({ status: 200, connection: 'keep-alive' });
    // Without a worker, each waits until its timeout.
    const before = execute(engine.url);
    await expect.poll(pending).toBe(1);
    engine.signal();
    await expect.poll(() => readyz(engine.url)).toEqual({ status: 503, says: 'stopping' });
    expect(await askKept()).toEqual({ status: 200, connection: 'close' });
    const after = execute(engine.url);
    const replies = await Promise.all([before, after]);
    expect(replies.map(({ status }) => status)).toEqual([202, 202]);
    expect(await engine.exited).toBe(0);
    for (const reply of replies) {
      const { proof_id } = (await reply.json()) as { proof_id: string };
      const found = await db.sql`
        select from svc.intake_pending where proof_id = ${proof_id}::uuid`;
      expect(found).toHaveLength(1);
    }
    await expect(fetch(engine.url)).rejects.toThrow();
    kept.destroy();
  }, 30_000);

  it('finishes receiving a batch', async () => {
    const engine = await start('engine');
    const lines = [executeBody(), executeBody()].map((one) => `${JSON.stringify(one)}\n`);
    const { hostname, port } = new URL(engine.url);
    const socket = connect(Number(port), hostname);
    let answer = '';
    socket.on('data', (bytes) => (answer += String(bytes)));
    const over = new Promise<void>((resolve, reject) =>
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
    await over;
    expect(answer).toMatch(/^HTTP\/1\.1 202 /);
    const [, batchId = ''] = /"batch_id":"batch_(\w+)"/.exec(answer) ?? [];
    expect(await db.sql`select from svc.batch where batch_id = ${batchId}::uuid`).toHaveLength(1);
    expect(await engine.exited).toBe(0);
  }, 30_000);

  it('finishes rendering a PDF', async () => {
    const other = await freshDatabase();
    const papers = await openRegistry(other);
    const [proofId = ''] = await papers.admitAll([papers.item()]);
    await papers.verifyAll();
    const log = testLog(other);
    await log.publish();
    const exporting = await issueKey(papers, { scopes: ['export'] });
    const engine = await start('engine', {
      DATABASE_URL: other.urlFor('svc_engine'),
      LOG_VKEY: log.vkey,
    });
    const letGo = await hold('checkpoint', other);
    const paper = fetch(`${engine.url}/v1/proofs/${proofId}/export?format=pdf`, {
      headers: without(headersFor(exporting), 'Content-Type'),
    });
    await untilWaiting('svc-engine', other);
    engine.signal();
    await sleep(200);
    await letGo();
    const reply = await paper;
    expect(reply.status).toBe(200);
    const bytes = Buffer.from(await reply.arrayBuffer());
    expect(bytes.subarray(0, 5).toString()).toBe('%PDF-');
    expect(await engine.exited).toBe(0);
    await other.drop();
  }, 30_000);
});

describe('a stopping program', () => {
  // Each lock blocks a program in the middle of its work when the signal arrives.
  const cases = [
    { name: 'worker', table: 'log_head', begin: () => accept() },
    { name: 'verifier', table: 'verdict', begin: () => Promise.resolve() },
    { name: 'publisher', table: 'checkpoint', begin: () => Promise.resolve() },
  ] as const;

  async function accept(): Promise<void> {
    await acceptIntake(registry.engine, [registry.item(), registry.item()]);
  }

  it.each(cases)(
    'finishes the work of the $name first',
    async ({ name, table, begin }) => {
      const letGo = await hold(table);
      await begin();
      const program = await start(name);
      await untilWaiting(`svc-${name}`);
      program.signal();
      let hasEnded = false;
      void program.exited.then(() => (hasEnded = true));
      await sleep(500);
      expect(hasEnded).toBe(false);
      await letGo();
      expect(await program.exited).toBe(0);
    },
    40_000,
  );

  it.each(cases)(
    'abandons the work of the $name at the deadline',
    async ({ name, table, begin }) => {
      const letGo = await hold(table);
      await begin();
      const left = name === 'worker' ? await pending() : 0;
      const program = await start(name, { SHUTDOWN_TIMEOUT: '1s' });
      await untilWaiting(`svc-${name}`);
      const told = performance.now();
      expect(await program.stop()).toBe(1);
      expect(performance.now() - told).toBeLessThan(5_000);
      await letGo();
      // Accepted admissions stay pending for the next worker.
      if (name === 'worker') expect(await pending()).toBe(left);
      expect(program.stderr.join('\n')).toContain('shutdown incomplete');
    },
    40_000,
  );
});

describe('a stopping public API server', () => {
  it('reports not ready and finishes requests in flight', async () => {
    const snapshot = new TestSnapshot();
    snapshot.registry.addProofs(10);
    snapshot.registry.verify();
    snapshot.clock.at = Date.now();
    await snapshot.publisher().runCycle();
    const facade = await startProgram('facade', {
      PUBLIC_PORT: '0',
      SNAPSHOT_DIR: snapshot.directory,
      LOG_VKEY: snapshot.logVkey,
      SNAPSHOT_VKEY: snapshot.snapshotVkey,
      SHUTDOWN_DELAY: '1s',
    });
    expect(await readyz(facade.url)).toMatchObject({ status: 200 });
    const { hostname, port } = new URL(facade.url);
    // A client that reads slowly, and one in the middle of its request.
    const slow = connect(Number(port), hostname);
    slow.pause();
    slow.write('GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(8));
    const half = connect(Number(port), hostname);
    half.write('GET /api/public/keys HTTP/1.1\r\nHost: x\r\n');
    await sleep(200);
    facade.signal();
    await expect.poll(() => readyz(facade.url)).toEqual({ status: 503, says: 'stopping' });
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
    await snapshot.close();
  }, 30_000);
});

it('shutdown settings > reject values that are not durations', async () => {
  const engine = await start('engine', { SHUTDOWN_DELAY: 'soon', SHUTDOWN_TIMEOUT: '0' });
  expect(engine.url).toBe('');
  expect(engine.stderr.join('\n')).toMatch(
    /SHUTDOWN_DELAY must be a duration[^]*SHUTDOWN_TIMEOUT must/,
  );
});
