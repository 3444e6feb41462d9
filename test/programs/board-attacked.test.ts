import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { chromium } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chromiumArgs, chromiumPath, withoutChromium } from '../fixtures/chromium.js';
import { startProgram } from '../fixtures/program.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';

const KEY = randomBytes(32).toString('hex');
const PASSWORD = 'password-of-the-reader';
const MARKUP = '<script>document.title="run"</script>';
const IMAGE = '<img src=x onerror=document.title="run">';

/** As documented in docs/monitoring.md. */
const READER =
  'resetkeys ~{svc}:* resetchannels -@all +@read +eval +evalsha +info +@connection -client +client|setname -keys -scan -randomkey';

let home: string;
let redis: TestRedis;
let owner: Redis;

/** The same Redis with another user. */
function urlAs(user: string): string {
  const url = new URL(redis.url);
  url.username = user;
  url.password = PASSWORD;
  return url.href;
}

function startBoard(user: string) {
  return startProgram('board', {
    BOARD_PORT: '0',
    BOARD_KEY_FILE: join(home, 'board.key'),
    REDIS_URL: urlAs(user),
  });
}

async function ask(url: string, path: string) {
  const headers = { Authorization: `Basic ${btoa(`anybody:${KEY}`)}` };
  const reply = await fetch(url + path, { headers });
  return { status: reply.status, text: await reply.text() };
}

describe.skipIf(skipsRedis)(`a board that is attacked${withoutRedis}`, () => {
  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), 'svc-board-attacked-'));
    await writeFile(join(home, 'board.key'), `${KEY}\n`, { mode: 0o600 });
    redis = await startRedis();
    owner = new Redis(redis.url, { maxRetriesPerRequest: null });
    const user = (name: string, rights: string) =>
      owner.call('ACL', 'SETUSER', name, 'on', `>${PASSWORD}`, ...rights.split(' '));
    await user('board', READER);
    await user('blind', READER.replace('+eval +evalsha ', ''));
    const queue = new Queue('admit', { connection: owner, prefix: '{svc}' });
    await queue.add(MARKUP, { ids: [IMAGE], requests: MARKUP }, { jobId: 'forged' });
    await queue.close();
  });
  afterAll(async () => {
    owner.disconnect();
    await redis.close();
    await rm(home, { recursive: true, force: true });
  });

  it('works with a read-only Redis user, without rejected commands', async () => {
    const board = await startBoard('board');
    const list = await ask(board.url, '/api/queues?activeQueue=admit&status=latest&page=1');
    expect(list.status).toBe(200);
    expect(list.text).toContain('"waiting":1');
    expect((await ask(board.url, '/api/queues/admit/forged')).text).toContain('onerror');
    expect((await ask(board.url, '/api/redis/stats')).status).toBe(200);
    expect(await owner.call('ACL', 'LOG')).toEqual([]);
    expect(await board.stop()).toBe(0);

    const reader = new Redis(urlAs('board'), { maxRetriesPerRequest: 1 });
    const acts = [
      ['del', '{svc}:admit:wait'],
      ['lpush', '{svc}:admit:wait', 'x'],
      ['eval', "return redis.call('del', KEYS[1])", '1', '{svc}:admit:wait'],
      ['get', 'elsewhere'],
      ['flushall'],
      ['config', 'get', '*'],
      ['publish', 'x', 'y'],
      ['acl', 'list'],
    ] as const;
    for (const [command, ...rest] of acts) {
      await expect(reader.call(command, ...rest), command).rejects.toThrow(
        /NOPERM|can't run this command/,
      );
    }
    reader.disconnect();
    expect(await owner.llen('{svc}:admit:wait')).toBe(1);
  });

  it('does not expose errors of Redis', async () => {
    const board = await startBoard('blind');
    const { status, text } = await ask(board.url, '/api/queues');
    expect([status, text]).toEqual([500, 'The queue is unreachable.\n']);
    expect(board.stderr.join('\n')).toContain('NOPERM');
    expect(board.stderr.join('\n')).not.toContain(PASSWORD);
    await board.stop();
  });

  it('rejects pages too large for memory', async () => {
    const board = await startBoard('board');
    const page = async (size: string) =>
      (await ask(board.url, `/api/queues?activeQueue=admit&status=latest&jobsPerPage=${size}`))
        .status;
    for (const size of ['101', '1000000', '1e9', '-1', 'x', '10&jobsPerPage=1000000']) {
      expect([size, await page(size)]).toEqual([size, 400]);
    }
    expect(await page('100')).toBe(200);
    expect((await ask(board.url, '/api/queues/%ff/x')).status).toBe(400);
    await board.stop();
  });

  it.skipIf(chromiumPath === null && process.env['CI'] === undefined)(
    `shows forged jobs as plain text${withoutChromium}`,
    async () => {
      const board = await startBoard('board');
      const browser = await chromium.launch({ executablePath: chromiumPath!, args: chromiumArgs });
      try {
        const credentials = { username: 'operator', password: KEY };
        const page = await (await browser.newContext({ httpCredentials: credentials })).newPage();
        for (const path of ['/queue/admit?status=waiting', '/queue/admit/forged']) {
          await page.goto(board.url + path);
          await page.getByText('document.title').first().waitFor({ timeout: 20_000 });
          expect(await page.locator('img[onerror]').count()).toBe(0);
          expect(await page.title()).not.toBe('run');
        }
      } finally {
        await browser.close();
        await board.stop();
      }
    },
    60_000,
  );
});
