import { writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect } from 'vitest';
import { readTrustedCheckpoint } from '#programs/trust';
import { createSigningKey } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { startProgram } from '../fixtures/program.js';
import { it as base } from './fixture.js';

let poured = 0;

/** Sends as much as the client reads, up to a bound. */
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

const it = base.extend<{ $file: { url: string; file: string } }>({
  url: [
    async ({}, use) => {
      const server = createServer((req, res) => {
        if (req.url === '/checkpoint') res.end('a note\n');
        else if (req.url === '/huge') res.end('x'.repeat(100_000));
        else if (req.url === '/endless') pour(res);
        else res.writeHead(404).end('a page');
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
      server.close();
    },
    { scope: 'file' },
  ],
  file: [
    async ({ home }, use) => {
      const file = join(home, 'checkpoint');
      writeFileSync(file, 'a note\n');
      await use(file);
    },
    { scope: 'file' },
  ],
});

it('readTrustedCheckpoint > reads a file or a URL', async ({ file, url }) => {
  expect(await readTrustedCheckpoint(file)).toBe('a note\n');
  expect(await readTrustedCheckpoint(`${url}/checkpoint`)).toBe('a note\n');
});

it('readTrustedCheckpoint > throws when the checkpoint is missing or too long', async ({ url }) => {
  const unreachable = 'http://127.0.0.1:1/checkpoint';
  for (const where of ['/nowhere/none', `${url}/other`, `${url}/huge`, unreachable]) {
    const reading = readTrustedCheckpoint(where);
    await expect(reading).rejects.toThrow(OperatorError);
    await expect(reading).rejects.toThrow(/TRUSTED_CHECKPOINT: .* cannot be read/);
  }
});

it('readTrustedCheckpoint > stops reading an endless response', async ({ url }) => {
  await expect(readTrustedCheckpoint(`${url}/endless`)).rejects.toThrow(
    /longer than any checkpoint/,
  );
  expect(poured).toBeLessThan(64 * 1024 * 1024);
});

it('publisher > does not start without a usable TRUSTED_CHECKPOINT', async ({ db, file, home }) => {
  for (const name of ['log', 'snapshot']) createSigningKey(join(home, `${name}.pem`));
  const publisher = await startProgram('publisher', {
    DATABASE_URL: db.urlFor('svc_publisher'),
    LOG_KEY_FILE: join(home, 'log.pem'),
    SNAPSHOT_KEY_FILE: join(home, 'snapshot.pem'),
    LOG_ORIGIN: 'test.example/log',
    SNAPSHOT_DIR: join(home, 'public'),
    TRUSTED_CHECKPOINT: file,
  });
  expect(await publisher.exited).toBe(1);
  expect(publisher.stderr.join('\n')).toContain('is not a checkpoint of test.example/log');
});
