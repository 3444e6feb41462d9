import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { chromium } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadBoardKey } from '#programs/board/app';
import type { QueueConfig } from '#runtime/config';
import { assertMayOnlyReadQueues } from '#runtime/queue/backend';
import { openAdmitQueue } from '#runtime/queue/queues';
import { chromiumArgs, chromiumPath, withoutChromium } from '../fixtures/chromium.js';
import { startProgram, type RunningProgram } from '../fixtures/program.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';
import { testFolder } from '../fixtures/test-folder.js';
import { testRegistry } from './world.js';

const KEY = randomBytes(32).toString('hex');
const PASSWORD = 'password-of-the-reader';
const PROOF_ID = '0198c0de00007000800000000000beef';
const MARKUP = '<script>document.title="run"</script>';
const IMAGE = '<img src=x onerror=document.title="run">';
const skipsChromium = chromiumPath === null && process.env['CI'] === undefined;

/** The permissions of the Redis user that docs/operate.md documents. */
const READER =
  'resetkeys ~{svc}:* resetchannels -@all +@read +eval +evalsha +info +@connection -client +client|setname -keys -scan -randomkey';

const { db } = await testRegistry();
const home = await testFolder();
const keyFile = join(home, 'board.key');
await writeFile(keyFile, `${KEY}\n`, { mode: 0o600 });

const start = (env: Record<string, string>): Promise<RunningProgram> =>
  startProgram('board', { BOARD_PORT: '0', BOARD_KEY_FILE: keyFile, ...env });

/** A queue dashboard that reads the queue in PostgreSQL. */
const board = await start({ DATABASE_URL: db.urlFor('svc_board') });
afterAll(async () => expect(await board.stop()).toBe(0));

/** Creates a Redis user with these permissions, and returns the URL for this user. */
async function urlAs(redis: TestRedis, user: string, rights: string): Promise<string> {
  const owner = new Redis(redis.url, { maxRetriesPerRequest: null });
  await owner.call('ACL', 'SETUSER', user, 'on', `>${PASSWORD}`, ...rights.split(' '));
  owner.disconnect();
  const url = new URL(redis.url);
  url.username = user;
  url.password = PASSWORD;
  return url.href;
}

const as = (key: string) => ({ Authorization: `Basic ${btoa(`user:${key}`)}` });

async function get({ url }: RunningProgram, path: string) {
  const reply = await fetch(url + path, { headers: as(KEY) });
  return { status: reply.status, text: await reply.text(), headers: reply.headers };
}

/** Checks that a dashboard shows the jobs of its queue, in PostgreSQL or in Redis, and changes nothing. */
async function showsButNeverChanges(config: QueueConfig, board: RunningProgram): Promise<void> {
  const queue = openAdmitQueue(config);
  const jobId = await queue.addRevocations([PROOF_ID], ['trace-1']);
  const depth = await queue.depth();
  const page = await get(board, '/');
  expect([page.status, page.headers.get('cache-control')]).toEqual([200, 'no-store']);
  const { queues } = JSON.parse((await get(board, '/api/queues')).text) as {
    queues: { name: string; readOnlyMode: boolean; counts: Record<string, number> }[];
  };
  expect(queues.map((one) => [one.name, one.readOnlyMode, one.counts['waiting']])).toEqual([
    ['admit', true, 1],
    ['batch', true, 0],
  ]);
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
}

describe('queue dashboard', () => {
  it('shows the jobs in Postgres and rejects every write', async () => {
    await showsButNeverChanges({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null }, board);
  });

  it.skipIf(skipsChromium)(
    `displays forged jobs as text in a browser, and loads nothing from other origins${withoutChromium}`,
    async () => {
      const queue = openAdmitQueue({ databaseUrl: db.urlFor('svc_engine'), redisUrl: null });
      await queue.addRevocations([IMAGE, MARKUP]);
      await queue.close();
      const browser = await chromium.launch({ executablePath: chromiumPath!, args: chromiumArgs });
      const httpCredentials = { username: 'operator', password: KEY };
      const page = await (await browser.newContext({ httpCredentials })).newPage();
      const elsewhere: string[] = [];
      const failed: string[] = [];
      await page.route(
        (requested) => requested.origin !== board.url,
        (route) => {
          elsewhere.push(route.request().url());
          return route.abort();
        },
      );
      page.on('response', (reply) => {
        if (reply.status() >= 400 && reply.status() !== 401) failed.push(reply.url());
      });
      await page.goto(`${board.url}/queue/admit?status=waiting`);
      await page.getByText('document.title').first().waitFor({ timeout: 20_000 });
      expect(await page.locator('img[onerror]').count()).toBe(0);
      expect(await page.title()).not.toBe('run');
      expect([elsewhere, failed]).toEqual([[], []]);
      await browser.close();
    },
    60_000,
  );

  it('gives an equal response for every rejected key, and throttles guesses', async () => {
    const answers = new Set<string>();
    const visit = async (path: string, headers: Record<string, string> = {}): Promise<void> => {
      const reply = await fetch(board.url + path, { headers });
      answers.add(`${reply.status} ${reply.headers.get('www-authenticate')} ${await reply.text()}`);
    };
    for (const path of ['/', '/api/queues', '/static/nothing', '/nowhere']) await visit(path);
    const wrong = ['Basic', 'Basic !', `Basic ${btoa('nocolon')}`, `Bearer ${KEY}`];
    for (const Authorization of wrong) await visit('/', { Authorization });
    for (const key of [`${KEY}x`, '']) await visit('/', as(key));
    expect([...answers]).toEqual([
      '401 Basic realm="board", charset="UTF-8" The dashboard key is required.\n',
    ]);
    for (let n = 0; n < 10; n += 1) await fetch(board.url, { headers: as(`guess-${n}`) });
    const late = await fetch(board.url, { headers: as(KEY) });
    expect(late.status).toBe(429);
    expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0);
  });

  it.for([
    ['readable by others', KEY, 0o644, /mode 0644/],
    ['short enough to guess', 'swordfish', 0o600, /at least 32 characters/],
  ] as const)('rejects a key that is %s', async ([, key, mode, reason]) => {
    const file = join(home, `${mode}.key`);
    await writeFile(file, `${key}\n`, { mode });
    expect(() => loadBoardKey(file)).toThrow(reason);
    expect(() => loadBoardKey(file)).not.toThrow(key);
  });

  it('starts only with a database role that can read the queue and nothing else', async () => {
    const wrong = await start({ DATABASE_URL: db.urlFor('svc_engine') });
    expect(wrong.url).toBe('');
    expect(wrong.stderr.join('\n')).toMatch(/connect the dashboard as svc_board/);
    for (const role of ['svc_admin', 'svc_verifier']) {
      await expect(assertMayOnlyReadQueues(db.urlFor(role))).rejects.toThrow(/as svc_board/);
    }
    const sql = db.as('svc_board');
    await sql`select from bullmq.job limit 1`;
    for (const statement of [
      'delete from bullmq.job',
      "update bullmq.job set name = 'x'",
      'truncate bullmq.job',
      'select from svc.intake',
      'create table bullmq.x ()',
    ]) {
      await expect(sql.unsafe(statement)).rejects.toThrow(/permission denied/);
    }
  });
});

describe.skipIf(skipsRedis)(`queue dashboard over Redis${withoutRedis}`, () => {
  let redis: TestRedis;
  /** A queue dashboard that connects as the Redis user that docs/operate.md describes. */
  let redisBoard: RunningProgram;
  beforeAll(async () => {
    redis = await startRedis();
    redisBoard = await start({ REDIS_URL: await urlAs(redis, 'board', READER) });
  });
  afterAll(async () => {
    expect(await redisBoard.stop()).toBe(0);
    await redis.close();
  });

  it('shows the jobs and rejects every write', async () => {
    await showsButNeverChanges({ databaseUrl: '', redisUrl: redis.url }, redisBoard);
  });

  it('sends no command that a read-only Redis user may not send', async () => {
    const owner = new Redis(redis.url, { maxRetriesPerRequest: null });
    const queue = new Queue('admit', { connection: owner, prefix: '{svc}' });
    await queue.add(MARKUP, { ids: [IMAGE], requests: MARKUP }, { jobId: 'forged' });
    const list = await get(redisBoard, '/api/queues?activeQueue=admit&status=latest&page=1');
    expect(list.status).toBe(200);
    expect((await get(redisBoard, '/api/queues/admit/forged')).text).toContain('onerror');
    expect((await get(redisBoard, '/api/redis/stats')).status).toBe(200);
    expect(await owner.call('ACL', 'LOG')).toEqual([]);

    const reader = new Redis(await urlAs(redis, 'reader', READER), { maxRetriesPerRequest: 1 });
    for (const [command, ...rest] of [
      ['del', '{svc}:admit:wait'],
      ['lpush', '{svc}:admit:wait', 'x'],
      ['eval', "return redis.call('del', KEYS[1])", '1', '{svc}:admit:wait'],
      ['get', 'elsewhere'],
      ['flushall'],
      ['config', 'get', '*'],
    ] as const) {
      await expect(reader.call(command, ...rest), command).rejects.toThrow(
        /NOPERM|can't run this command/,
      );
    }
    reader.disconnect();
    await queue.close();
    owner.disconnect();
  });

  it('does not show errors of Redis to the client', async () => {
    await urlAs(redis, 'board', READER.replace('+eval +evalsha ', ''));
    const { status, text } = await get(redisBoard, '/api/queues');
    expect([status, text]).toEqual([500, 'The queue is unreachable.\n']);
    expect(redisBoard.stderr.join('\n')).toContain('NOPERM');
    expect(redisBoard.stderr.join('\n')).not.toContain(PASSWORD);
    await urlAs(redis, 'board', READER);
  });
});
