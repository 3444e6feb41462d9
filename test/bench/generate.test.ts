import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { removeEmbeddedPostgres } from '#runtime/embedded/start';
import { packageRoot } from '#runtime/process/package-root';

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'svc-bench-'));
  // Within reach of the user that Postgres runs as when the tests run as root.
  await chmod(dir, 0o755);
});
afterAll(async () => {
  await removeEmbeddedPostgres(dir);
  await rm(dir, { recursive: true, force: true, maxRetries: 10 });
});

/** What a built measurement prints; rejects when it exits with anything but 0. */
async function run(name: string, ...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(packageRoot, 'dist', 'bench', `${name}.js`), '--dir', dir, ...args],
    { env: { PATH: process.env['PATH'] ?? '' }, timeout: 100_000 },
  );
  return stdout;
}

describe('the generator', () => {
  it('fills a registry through the pipeline, goes on where it was, and is served', async () => {
    const filled = await run('generate', '--proofs', '1500', '--window', '400');
    expect(filled).toContain('0 proofs are there, 1500 are to be');
    expect(filled).toMatch(/^1501 leaves for 1500 proofs .*, 1501 verified, 1501 published$/m);

    const more = await run(
      'generate',
      '--proofs',
      '2000',
      '--window',
      '400',
      '--in-turn',
      '--profile',
    );
    expect(more).toContain('1500 proofs are there, 2000 are to be');
    expect(more).toMatch(/^2001 leaves for 2000 proofs .*, 2001 verified, 2001 published$/m);
    expect(more).toMatch(/^verify +500 /m);
    expect(more).toMatch(/^where the time went: publish\n +[0-9.]+ % +[0-9]+ ms {2}\S/m);

    const measured = await run(
      'snapshot',
      '--window',
      '400',
      '--ticks',
      '1',
      '--tick',
      '100',
      '--starts',
      '1',
    );
    expect(measured).toContain('snapshot: 2100 proofs');
    // It stops at an answer that is not the expected one, so this is all of them.
    const answers = [...measured.matchAll(/^facade: (\d+ [A-Z_]+) /gm)].map((match) => match[1]);
    expect(answers).toEqual([
      ...Array<string>(3).fill('200 VALID'),
      '404 NOT_FOUND',
      '200 VERIFIED',
      '200 PASS',
      '200 TRUST_ESTABLISHED',
      '200 BACKEND_LOOKUP_REQUIRED',
      '200 VALID',
    ]);
    expect(measured).toMatch(/^facade: \d+ ms from start to listening, \d+ ms to ready/m);
  }, 120_000);
});
