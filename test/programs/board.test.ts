import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { QueueConfig } from '#runtime/config';
import { packageRoot } from '#runtime/process/package-root';
import { openAdmitQueue } from '#runtime/queue/queues';
import { chromiumArgs, chromiumPath, withoutChromium } from '../fixtures/chromium.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';

const KEY = randomBytes(32).toString('hex');
const proofId = '0198c0de00007000800000000000beef';

let home: string;
let db: TestDatabase;
let redis: TestRedis | null = null;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-board-'));
  await writeFile(join(home, 'board.key'), `${KEY}\n`, { mode: 0o600 });
  await writeFile(join(home, 'open.key'), `${KEY}\n`, { mode: 0o644 });
  await writeFile(join(home, 'short.key'), 'swordfish\n', { mode: 0o600 });
  db = await freshDatabase();
  if (!skipsRedis) redis = await startRedis();
});
afterAll(async () => {
  await redis?.close();
  await db.drop();
  await rm(home, { recursive: true, force: true });
});

interface Board {
  url: string;
  stderr: string[];
  stop(): Promise<number | null>;
}

const running: ChildProcess[] = [];
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL');
});

/** Starts the built program. Without a URL, it has exited. */
async function startBoard(env: Record<string, string>): Promise<Board> {
  const child = spawn(process.execPath, [join(packageRoot, 'dist/programs/board.js')], {
    env: { BOARD_PORT: '0', BOARD_KEY_FILE: join(home, 'board.key'), ...env },
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  running.push(child);
  const stderr: string[] = [];
  createInterface({ input: child.stderr! }).on('line', (line) => void stderr.push(line));
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
  const url = await Promise.race([
    new Promise<string>((resolve) => {
      child.on('message', (message) => resolve((message as { url: string }).url));
    }),
    exited.then(() => ''),
  ]);
  return {
    url,
    stderr,
    stop: () => {
      child.kill('SIGTERM');
      return exited;
    },
  };
}

const as = (key: string) => ({ Authorization: `Basic ${btoa(`anybody:${key}`)}` });

describe.each([
  {
    name: 'Postgres, as a role that may only read it',
    skip: false,
    board: () => ({ DATABASE_URL: db.urlFor('svc_board') }),
    engine: (): QueueConfig => ({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null }),
  },
  {
    name: `Redis${withoutRedis}`,
    skip: skipsRedis,
    board: () => ({ REDIS_URL: redis?.url ?? '' }),
    engine: (): QueueConfig => ({ databaseUrl: '', redisUrl: redis?.url ?? '' }),
  },
])('the board over $name', ({ skip, board, engine }) => {
  it.skipIf(skip)('shows queues and jobs to clients with the key', async () => {
    const queue = openAdmitQueue(engine());
    const jobId = await queue.add([proofId], ['trace-1']);
    await queue.close();
    const { url, stop } = await startBoard(board());
    const [page, list, job] = await Promise.all(
      ['/', '/api/queues', `/api/queues/admit/${jobId}`].map((path) =>
        fetch(url + path, { headers: as(KEY) }),
      ),
    );
    expect(page!.status).toBe(200);
    expect(page!.headers.get('cache-control')).toBe('no-store');
    const { queues } = (await list!.json()) as {
      queues: { name: string; readOnlyMode: boolean; counts: Record<string, number> }[];
    };
    expect(queues.map((one) => [one.name, one.readOnlyMode])).toEqual([
      ['admit', true],
      ['batch', true],
    ]);
    expect(queues[0]!.counts['waiting']).toBe(1);
    expect(await job!.text()).toContain(proofId);
    expect(await stop()).toBe(0);
  });

  it.skipIf(skip)('rejects every write', async () => {
    const queue = openAdmitQueue(engine());
    const jobId = await queue.add([proofId]);
    const before = await queue.depth();
    const { url } = await startBoard(board());
    for (const [method, path] of [
      ['PUT', '/api/queues/admit/pause'],
      ['PUT', '/api/queues/admit/empty'],
      ['PUT', '/api/queues/admit/obliterate'],
      ['PUT', `/api/queues/admit/${jobId}/clean`],
      ['POST', '/api/queues/admit/add'],
      ['PATCH', `/api/queues/admit/${jobId}/update-data`],
      ['DELETE', '/api/queues/admit'],
      ['OPTIONS', '/'],
    ] as const) {
      const reply = await fetch(url + path, { method, headers: as(KEY) });
      expect([method, reply.status]).toEqual([method, 405]);
    }
    expect(await queue.depth()).toBe(before);
    await queue.close();
  });

  it.skipIf(skip || (chromiumPath === null && process.env['CI'] === undefined))(
    `asks a browser for the key and loads nothing from elsewhere${withoutChromium}`,
    async () => {
      const { url } = await startBoard(board());
      const browser = await chromium.launch({ executablePath: chromiumPath!, args: chromiumArgs });
      try {
        const context = await browser.newContext({
          httpCredentials: { username: 'operator', password: KEY },
        });
        const page = await context.newPage();
        const elsewhere: string[] = [];
        await context.route(
          (asked) => asked.origin !== url,
          (route) => {
            elsewhere.push(route.request().url());
            return route.abort();
          },
        );
        const failed: string[] = [];
        page.on('response', (reply) => {
          if (reply.status() >= 400) failed.push(`${reply.status()} ${reply.url()}`);
        });
        await page.goto(`${url}/queue/admit?status=waiting`);
        await page.getByText(proofId).first().waitFor({ timeout: 20_000 });
        const shot = process.env['BOARD_SCREENSHOT'];
        if (shot !== undefined) await page.screenshot({ path: shot });
        expect(elsewhere).toEqual([]);
        expect(failed.filter((one) => !one.startsWith('401'))).toEqual([]);
      } finally {
        await browser.close();
      }
    },
    60_000,
  );
});

describe('the dashboard key', () => {
  it('is required with one answer for every failure, and guessing is throttled', async () => {
    const { url } = await startBoard({ DATABASE_URL: db.urlFor('svc_board') });
    const answers = new Set<string>();
    const wrong = [undefined, 'Basic', 'Basic !', `Basic ${btoa('nocolon')}`, `Bearer ${KEY}`];
    const headersOf = (value: string | undefined) =>
      value === undefined ? {} : { Authorization: value };
    for (const value of [...wrong, as(`${KEY}x`).Authorization, as('').Authorization]) {
      for (const path of ['/', '/api/queues', '/static/nothing', '/nowhere']) {
        if (value !== undefined && path !== '/') continue;
        const reply = await fetch(url + path, { headers: headersOf(value) });
        const { status, headers } = reply;
        answers.add(`${status} ${headers.get('www-authenticate')} ${await reply.text()}`);
      }
    }
    expect([...answers]).toEqual([
      '401 Basic realm="board", charset="UTF-8" The dashboard key is required.\n',
    ]);
    for (let n = 0; n < 10; n += 1) await fetch(url, { headers: as(`guess-${n}`) });
    const late = await fetch(url, { headers: as(KEY) });
    expect(late.status).toBe(429);
    expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0);
  });

  it.each([
    ['others can read', 'open.key', /mode 0644/],
    ['could be guessed', 'short.key', /at least 32 characters/],
    ['is not there', 'no.key', /cannot be read/],
  ])('is refused when it %s', async (_what, file, message) => {
    const board = await startBoard({
      DATABASE_URL: db.urlFor('svc_board'),
      BOARD_KEY_FILE: join(home, file),
    });
    expect(board.url).toBe('');
    expect(board.stderr.join('\n')).toMatch(message);
    expect(board.stderr.join('\n')).not.toMatch(/swordfish/);
    expect(board.stderr.join('\n')).not.toContain(KEY);
  });
});

describe("the dashboard's database role", () => {
  it('reads the queue, cannot change it, and has no access to the registry', async () => {
    const sql = postgres(db.urlFor('svc_board'), { max: 1 });
    await sql`select from bullmq.job limit 1`;
    for (const statement of [
      'delete from bullmq.job',
      "update bullmq.job set name = 'x'",
      'truncate bullmq.job',
      'select from svc.tenant',
      'select from svc.intake',
      'create table bullmq.x ()',
    ]) {
      await expect(sql.unsafe(statement)).rejects.toThrow(/permission denied/);
    }
    await sql.end();
  });

  it.each(['svc_engine', 'svc_admin', 'svc_verifier'])('must not be %s', async (role) => {
    const board = await startBoard({ DATABASE_URL: db.urlFor(role) });
    expect(board.url).toBe('');
    expect(board.stderr.join('\n')).toMatch(/connect the dashboard as svc_board/);
  });
});
