import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';

const demos = async (): Promise<string[]> =>
  (await readdir(tmpdir())).filter((name) => name.startsWith('svc-demo-'));

it('npm run demo > shows the verdict on each action and one offline verification, and removes its data', async () => {
  const before = await demos();
  // The demo must ignore these settings, with which it could not run.
  const env = { DATABASE_URL: 'postgres://user@127.0.0.1:1/none', ENGINE_PORT: '1' };
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(packageRoot, 'dist', 'programs', 'demo.js')],
    { env },
  );
  const rows = stdout.split('\n').filter((line) => /^ {2}[A-Z_:]+ +(ADMITTED|DENIED) /.test(line));
  expect(rows).toHaveLength(24);
  for (const row of rows) expect(row).toContain(' VALID ');
  expect(rows.filter((row) => row.includes(' DENIED '))).toEqual([
    expect.stringContaining('DELETE_AUDIT_LOG'),
  ]);
  expect(stdout).toMatch(/authentic: yes · included: yes · status: unknown since checkpoint \d+/);
  expect(await demos()).toEqual(before);
}, 120_000);
