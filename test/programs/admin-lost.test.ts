import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';

/** Rejects as soon as the program listens for what nobody handles; one that never does ends with 9. */
const rejecting = (error: string): string =>
  `data:text/javascript,${encodeURIComponent(`
  process.exitCode = 9;
  process.on('exit', (code) => { if (process.listenerCount('unhandledRejection') === 0) process.exitCode = 9; });
  process.on('newListener', (name) => {
    if (name === 'unhandledRejection') setImmediate(() => Promise.reject(${error}));
  });`)}`;

/** The real program, with nobody at the address of its database. */
function runWith(error: string): { code: number | null; said: string } {
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--import', rejecting(error), join(packageRoot, 'dist/programs/admin.js'), 'tenant', 'list'],
    { env: { DATABASE_URL: 'postgres://svc_admin@127.0.0.1:1/none' }, encoding: 'utf8' },
  );
  return { code: status, said: stderr };
}

describe('admin and unhandled rejections', () => {
  it('ignores those of a lost connection', () => {
    const { code, said } = runWith(
      `Object.assign(new Error('gone'), { code: 'CONNECTION_CLOSED' })`,
    );
    expect(code).toBe(1);
    expect(said).toMatch(/database/);
    expect(said).not.toMatch(/gone|^ +at /m);
  });

  it('ends the command for any other', () => {
    const { code, said } = runWith(`new Error('a fault of ours')`);
    expect(code).toBe(1);
    expect(said).toMatch(/a fault of ours/);
  });
});
