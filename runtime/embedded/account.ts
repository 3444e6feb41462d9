import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { OperatorError } from '../process/operator-error.js';

const run = promisify(execFile);

/** The operating system account that runs Postgres; null for the current one. */
export type Account = { uid: number; gid: number } | null;

export const runsAsRoot = (): boolean => process.getuid?.() === 0;

/**
 * Postgres refuses to run as root, so root runs it as an account that owns no other files of ours.
 */
export async function chooseAccount(): Promise<Account> {
  if (!runsAsRoot()) return null;
  for (const name of ['postgres', 'nobody']) {
    try {
      const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])]);
      return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
    } catch {
      // No such user.
    }
  }
  throw new OperatorError(
    'Postgres does not run as root, and this machine has neither a user "postgres" nor "nobody". ' +
      'Create one, start as an ordinary user, or set DATABASE_URL.',
  );
}

/** Spawn options for Postgres processes: the account, and none of our environment. */
export const spawnAs = (account: Account) => ({
  cwd: '/',
  env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC' },
  ...account,
});

/** Tries it, because modes, ACLs and mounts all matter. */
export async function canEnter(directory: string, account: Account): Promise<boolean> {
  const test = spawn('/bin/sh', ['-c', 'cd "$1" && test -r . && test -w .', 'sh', directory], {
    ...spawnAs(account),
    stdio: 'ignore',
  });
  return once(test, 'close').then(
    ([code]) => code === 0,
    () => false,
  );
}
