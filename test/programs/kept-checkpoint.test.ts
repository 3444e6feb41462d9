import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readKeptCheckpoint } from '#programs/kept-checkpoint';
import { createSigningKey } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { packageRoot } from '#runtime/process/package-root';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';

const home = mkdtempSync(join(tmpdir(), 'svc-kept-'));
const file = join(home, 'checkpoint');
let server: Server;
let poured = 0;

/** As much as is taken, up to what no test should wait for. */
function pour(res: ServerResponse): void {
  const chunk = Buffer.alloc(1024 * 1024, 'x');
  const go = (): void => {
    while (poured < 256 * chunk.length && !res.destroyed) {
      poured += chunk.length;
      if (!res.write(chunk)) return void res.once('drain', go);
    }
    res.end();
  };
  go();
}

let url: string;
let db: TestDatabase;

beforeAll(async () => {
  db = await freshDatabase();
  writeFileSync(file, 'a note\n');
  server = createServer((req, res) => {
    if (req.url === '/checkpoint') res.end('a note\n');
    else if (req.url === '/huge') res.end('x'.repeat(100_000));
    else if (req.url === '/endless') pour(res);
    else res.writeHead(404).end('a page');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  server.close();
  await db.drop();
  rmSync(home, { recursive: true });
});

it('readKeptCheckpoint > reads a file or a URL', async () => {
  expect(await readKeptCheckpoint(null)).toBeNull();
  expect(await readKeptCheckpoint(file)).toBe('a note\n');
  expect(await readKeptCheckpoint(`${url}/checkpoint`)).toBe('a note\n');
});

it.each([
  ['a file that is not there', () => join(home, 'none')],
  ['a page that is not there', () => `${url}/other`],
  ['what is no checkpoint by its size', () => `${url}/huge`],
  ['an unreachable URL', () => 'http://127.0.0.1:1/checkpoint'],
])('%s is no reason to go on without it', async (_what, where) => {
  const reading = readKeptCheckpoint(where());
  await expect(reading).rejects.toThrow(OperatorError);
  await expect(reading).rejects.toThrow(/TRUSTED_CHECKPOINT: .* cannot be read/);
});

it('readKeptCheckpoint > stops reading an endless response', async () => {
  await expect(readKeptCheckpoint(`${url}/endless`)).rejects.toThrow(/longer than any checkpoint/);
  expect(poured).toBeLessThan(64 * 1024 * 1024);
});

it.each([
  ['cannot be read', () => join(home, 'none')],
  ['is not a checkpoint of test.example/log', () => file],
])('a publisher does not start when it %s', (say, where) => {
  for (const name of ['log', 'snapshot']) {
    const key = join(home, `${name}-${say.length}.pem`);
    createSigningKey(key);
  }
  const { status, stderr } = spawnSync(
    process.execPath,
    [join(packageRoot, 'dist/programs/publisher.js')],
    {
      encoding: 'utf8',
      env: {
        DATABASE_URL: db.urlFor('svc_publisher'),
        LOG_KEY_FILE: join(home, `log-${say.length}.pem`),
        SNAPSHOT_KEY_FILE: join(home, `snapshot-${say.length}.pem`),
        LOG_ORIGIN: 'test.example/log',
        SNAPSHOT_DIR: join(home, 'public'),
        TRUSTED_CHECKPOINT: where(),
      },
    },
  );
  expect(stderr).toContain('publisher: TRUSTED_CHECKPOINT');
  expect(stderr).toContain(say);
  expect(status).toBe(1);
});
