import { writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { readTrustedCheckpoint } from '#programs/trust';
import { OperatorError } from '#runtime/process/operator-error';
import { serveLocally } from '../fixtures/local-server.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { testFolder } from '../fixtures/test-folder.js';
import { programsOn, testRegistry } from './world.js';

let poured = 0;

/** Sends a response that ends only at a limit of 256 MiB, as fast as the client reads. */
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

const { db } = await testRegistry();
const home = await testFolder();
const { url, close } = await serveLocally((req, res) => {
  if (req.url === '/checkpoint') res.end('a note\n');
  else if (req.url === '/huge') res.end('x'.repeat(100_000));
  else if (req.url === '/endless') pour(res);
  else res.writeHead(404).end('a page');
});
afterAll(close);
const { start } = programsOn(db, home);
const file = join(home, 'checkpoint');
writeFileSync(file, 'a note\n');

it('readTrustedCheckpoint > throws when the checkpoint is missing or too long', async () => {
  const unreachable = 'http://127.0.0.1:1/checkpoint';
  for (const where of ['/nowhere/none', `${url}/other`, `${url}/huge`, unreachable]) {
    const reading = readTrustedCheckpoint(where);
    await expect(reading).rejects.toThrow(OperatorError);
    await expect(reading).rejects.toThrow(/TRUSTED_CHECKPOINT: .* cannot be read/);
  }
});

it('readTrustedCheckpoint > stops reading a response that never ends', async () => {
  await expect(readTrustedCheckpoint(`${url}/endless`)).rejects.toThrow(/longer than/);
  expect(poured).toBeLessThan(64 * 1024 * 1024);
});

it('publisher > does not start without a usable SNAPSHOT_DIR, and names the setting', async () => {
  const publisher = await start('publisher', {
    SNAPSHOT_DIR: join(file, 'x'),
  });
  expect(await publisher.exited).toBe(1);
  expect(publisher.stderr.join('\n')).toContain('set SNAPSHOT_DIR to a directory');
});

it('publisher > does not start without a usable TRUSTED_CHECKPOINT', async () => {
  const publisher = await start('publisher', { TRUSTED_CHECKPOINT: file });
  expect(await publisher.exited).toBe(1);
  expect(publisher.stderr.join('\n')).toContain('is not a checkpoint of test.example/log');
});

it.each(['engine', 'publisher'])(
  '%s > names the database as the cause when PostgreSQL ends the connection that reads the log keys',
  async (name) => {
    const url = db.urlFor(`svc_${name}`);
    const proxy = await TcpProxy.open(url, 'postgres');
    const matches = (sql: string): boolean => /kind = 3 and leaf_index >= \$1/.test(sql);
    const broken = proxy.set({ matches, breaks: 'unsent' });
    const program = await start(name, { DATABASE_URL: proxy.urlFor(url) });
    await broken;
    expect(await program.exited).toBe(1);
    await proxy.close();
    expect(program.stderr.join('\n')).toMatch(
      /"level":"fatal".*"msg":"the database cannot be reached: /,
    );
  },
  60_000,
);

it("each program > exits before any other action when it is connected as another program's role", async () => {
  const programs = ['engine', 'worker', 'verifier', 'publisher'];
  const ended = await Promise.all(
    programs.map(async (name, i) => {
      const role = `svc_${programs[(i + 1) % programs.length]!}`;
      const program = await start(name, { DATABASE_URL: db.urlFor(role) });
      const said = program.stderr.join('\n');
      const refused = new RegExp(`database role ${role} .*connect it as svc_${name}`).test(said);
      return [name, await program.stop(), refused || said];
    }),
  );
  expect(ended).toEqual(programs.map((name) => [name, 1, true]));
});
