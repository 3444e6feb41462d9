import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { chromium, type Page } from 'playwright-core';
import postgres from 'postgres';
import { describe, expect } from 'vitest';
import { openAdmitQueue } from '#runtime/queue/queues';
import { chromiumArgs, chromiumPath, withoutChromium } from '../fixtures/chromium.js';
import type { TestDatabase } from '../fixtures/database.js';
import { startProgram, type RunningProgram } from '../fixtures/program.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';
import { it as base } from './fixture.js';

const KEY = randomBytes(32).toString('hex');
const PASSWORD = 'password-of-the-reader';
const PROOF_ID = '0198c0de00007000800000000000beef';
const MARKUP = '<script>document.title="run"</script>';
const IMAGE = '<img src=x onerror=document.title="run">';
const skipsChromium = chromiumPath === null && process.env['CI'] === undefined;

/** As documented in docs/operate.md. */
const READER =
  'resetkeys ~{svc}:* resetchannels -@all +@read +eval +evalsha +info +@connection -client +client|setname -keys -scan -randomkey';

type StartBoard = (env: Record<string, string>) => Promise<RunningProgram>;

const it = base.extend<{ $file: { redis: TestRedis }; $test: { startBoard: StartBoard } }>({
  redis: [
    async ({}, use) => {
      const redis = await startRedis();
      await use(redis);
      await redis.close();
    },
    { scope: 'file' },
  ],
  startBoard: async ({ home }, use) => {
    const file = join(home, 'board.key');
    await writeFile(file, `${KEY}\n`, { mode: 0o600 });
    const started: RunningProgram[] = [];
    await use(async (env) => {
      const board = await startProgram('board', { BOARD_PORT: '0', BOARD_KEY_FILE: file, ...env });
      started.push(board);
      return board;
    });
    await Promise.all(started.map((board) => board.stop()));
  },
});

const as = (key: string) => ({ Authorization: `Basic ${btoa(`anybody:${key}`)}` });

async function get({ url }: RunningProgram, path: string) {
  const reply = await fetch(url + path, { headers: as(KEY) });
  return { status: reply.status, text: await reply.text(), headers: reply.headers };
}

async function browse(look: (page: Page) => Promise<void>): Promise<void> {
  const browser = await chromium.launch({ executablePath: chromiumPath!, args: chromiumArgs });
  try {
    const httpCredentials = { username: 'operator', password: KEY };
    await look(await (await browser.newContext({ httpCredentials })).newPage());
  } finally {
    await browser.close();
  }
}

interface Place {
  db: TestDatabase;
  redis: TestRedis | null;
}

const overPostgres = {
  board: ({ db }: Place) => ({ DATABASE_URL: db.urlFor('svc_board') }),
  engine: ({ db }: Place) => ({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null }),
};
const overRedis = {
  board: ({ redis }: Place) => ({ REDIS_URL: redis!.url }),
  engine: ({ redis }: Place) => ({ databaseUrl: '', redisUrl: redis!.url }),
};

/** The claims that hold over both queues. */
async function showsButNeverChanges(
  { board: boardEnv, engine }: typeof overPostgres | typeof overRedis,
  place: Place,
  startBoard: StartBoard,
): Promise<void> {
  const queue = openAdmitQueue(engine(place));
  const jobId = await queue.add([PROOF_ID], ['trace-1']);
  const depth = await queue.depth();
  const board = await startBoard(boardEnv(place));
  const page = await get(board, '/');
  expect([page.status, page.headers.get('cache-control')]).toEqual([200, 'no-store']);
  const { queues } = JSON.parse((await get(board, '/api/queues')).text) as {
    queues: { name: string; readOnlyMode: boolean; counts: Record<string, number> }[];
  };
  expect(queues.map((one) => [one.name, one.readOnlyMode])).toEqual([
    ['admit', true],
    ['batch', true],
  ]);
  expect(queues[0]!.counts['waiting']).toBe(1);
  expect((await get(board, `/api/queues/admit/${jobId}`)).text).toContain(PROOF_ID);
  for (const [method, path] of [
    ['PUT', '/api/queues/admit/obliterate'],
    ['PUT', `/api/queues/admit/${jobId}/clean`],
    ['POST', '/api/queues/admit/add'],
    ['PATCH', `/api/queues/admit/${jobId}/update-data`],
    ['DELETE', '/api/queues/admit'],
    ['OPTIONS', '/'],
  ] as const) {
    const reply = await fetch(board.url + path, { method, headers: as(KEY) });
    expect([method, reply.status]).toEqual([method, 405]);
  }
  expect(await queue.depth()).toBe(depth);
  await queue.close();
  expect(await board.stop()).toBe(0);
}

describe('board', () => {
  it('shows the jobs in Postgres and rejects every write', async ({ db, startBoard }) => {
    await showsButNeverChanges(overPostgres, { db, redis: null }, startBoard);
  });

  it.skipIf(skipsRedis)(
    `shows the jobs in Redis and rejects every write${withoutRedis}`,
    async ({ db, redis, startBoard }) => {
      await showsButNeverChanges(overRedis, { db, redis }, startBoard);
    },
  );

  it.skipIf(skipsChromium)(
    `shows forged jobs in a browser as text, and loads nothing from elsewhere${withoutChromium}`,
    async ({ db, startBoard }) => {
      const queue = openAdmitQueue({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null });
      await queue.add([IMAGE, MARKUP]);
      await queue.close();
      const { url } = await startBoard({ DATABASE_URL: db.urlFor('svc_board') });
      await browse(async (page) => {
        const elsewhere: string[] = [];
        const failed: string[] = [];
        await page.route(
          (requested) => requested.origin !== url,
          (route) => {
            elsewhere.push(route.request().url());
            return route.abort();
          },
        );
        page.on('response', (reply) => {
          if (reply.status() >= 400 && reply.status() !== 401) failed.push(reply.url());
        });
        await page.goto(`${url}/queue/admit?status=waiting`);
        await page.getByText('document.title').first().waitFor({ timeout: 20_000 });
        expect(await page.locator('img[onerror]').count()).toBe(0);
        expect(await page.title()).not.toBe('run');
        expect([elsewhere, failed]).toEqual([[], []]);
      });
    },
    60_000,
  );

  it('gives one answer for every failed key, and throttles guesses', async ({ db, startBoard }) => {
    const { url } = await startBoard({ DATABASE_URL: db.urlFor('svc_board') });
    const answers = new Set<string>();
    const visit = async (path: string, headers: Record<string, string> = {}): Promise<void> => {
      const reply = await fetch(url + path, { headers });
      answers.add(`${reply.status} ${reply.headers.get('www-authenticate')} ${await reply.text()}`);
    };
    for (const path of ['/', '/api/queues', '/static/nothing', '/nowhere']) await visit(path);
    const wrong = ['Basic', 'Basic !', `Basic ${btoa('nocolon')}`, `Bearer ${KEY}`];
    for (const Authorization of wrong) await visit('/', { Authorization });
    for (const key of [`${KEY}x`, '']) await visit('/', as(key));
    expect([...answers]).toEqual([
      '401 Basic realm="board", charset="UTF-8" The dashboard key is required.\n',
    ]);
    for (let n = 0; n < 10; n += 1) await fetch(url, { headers: as(`guess-${n}`) });
    const late = await fetch(url, { headers: as(KEY) });
    expect(late.status).toBe(429);
    expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0);
  });

  it.for([
    ['readable by others', KEY, 0o644, /mode 0644/],
    ['short enough to guess', 'swordfish', 0o600, /at least 32 characters/],
  ] as const)(
    'does not start with a key that is %s',
    async ([, key, mode, reason], { db, home, startBoard }) => {
      const file = join(home, `${mode}.key`);
      await writeFile(file, `${key}\n`, { mode });
      const board = await startBoard({
        DATABASE_URL: db.urlFor('svc_board'),
        BOARD_KEY_FILE: file,
      });
      expect(board.url).toBe('');
      expect(board.stderr.join('\n')).toMatch(reason);
      expect(board.stderr.join('\n')).not.toContain(key);
    },
  );

  it.for(['svc_engine', 'svc_admin', 'svc_verifier'])(
    'does not start as %s',
    async (role, { db, startBoard }) => {
      const board = await startBoard({ DATABASE_URL: db.urlFor(role) });
      expect(board.url).toBe('');
      expect(board.stderr.join('\n')).toMatch(/connect the dashboard as svc_board/);
    },
  );

  it('has a database role that reads the queue, and neither changes it nor reads the registry', async ({
    db,
  }) => {
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
});

describe.skipIf(skipsRedis)(`board with a restricted Redis user${withoutRedis}`, () => {
  /** The same Redis as a new user with these rights. */
  async function urlAs(redis: TestRedis, user: string, rights: string): Promise<string> {
    const owner = new Redis(redis.url, { maxRetriesPerRequest: null });
    const rules = ['on', `>${PASSWORD}`, ...rights.split(' ')];
    await owner.call('ACL', 'SETUSER', user, ...rules);
    owner.disconnect();
    const url = new URL(redis.url);
    url.username = user;
    url.password = PASSWORD;
    return url.href;
  }

  it('sends no command that a read-only user may not', async ({ redis, startBoard }) => {
    const owner = new Redis(redis.url, { maxRetriesPerRequest: null });
    const queue = new Queue('admit', { connection: owner, prefix: '{svc}' });
    await queue.add(MARKUP, { ids: [IMAGE], requests: MARKUP }, { jobId: 'forged' });
    const url = await urlAs(redis, 'board', READER);
    const board = await startBoard({ REDIS_URL: url });
    const list = await get(board, '/api/queues?activeQueue=admit&status=latest&page=1');
    expect(list.status).toBe(200);
    expect((await get(board, '/api/queues/admit/forged')).text).toContain('onerror');
    expect((await get(board, '/api/redis/stats')).status).toBe(200);
    expect(await owner.call('ACL', 'LOG')).toEqual([]);

    const reader = new Redis(url, { maxRetriesPerRequest: 1 });
    for (const [command, ...rest] of [
      ['del', '{svc}:admit:wait'],
      ['lpush', '{svc}:admit:wait', 'x'],
      ['eval', "return redis.call('del', KEYS[1])", '1', '{svc}:admit:wait'],
      ['get', 'elsewhere'],
      ['flushall'],
      ['config', 'get', '*'],
      ['publish', 'x', 'y'],
      ['acl', 'list'],
    ] as const) {
      await expect(reader.call(command, ...rest), command).rejects.toThrow(
        /NOPERM|can't run this command/,
      );
    }
    reader.disconnect();
    await queue.close();
    owner.disconnect();
  });

  it('does not expose errors of Redis', async ({ redis, startBoard }) => {
    const rights = READER.replace('+eval +evalsha ', '');
    const board = await startBoard({ REDIS_URL: await urlAs(redis, 'blind', rights) });
    const { status, text } = await get(board, '/api/queues');
    expect([status, text]).toEqual([500, 'The queue is unreachable.\n']);
    expect(board.stderr.join('\n')).toContain('NOPERM');
    expect(board.stderr.join('\n')).not.toContain(PASSWORD);
  });

  it('rejects pages too large for memory', async ({ redis, startBoard }) => {
    const board = await startBoard({ REDIS_URL: redis.url });
    const page = async (size: string) =>
      (await get(board, `/api/queues?activeQueue=admit&status=latest&jobsPerPage=${size}`)).status;
    for (const size of ['101', '1e9', '-1', 'x', '10&jobsPerPage=1000000']) {
      expect([size, await page(size)]).toEqual([size, 400]);
    }
    expect(await page('100')).toBe(200);
    expect((await get(board, '/api/queues/%ff/x')).status).toBe(400);
  });
});
