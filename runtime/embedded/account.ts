import { execFile, spawn } from 'node:child_process';
import { promisify } from 'node:util';
import { OperatorError } from '../process/operator-error.js';

const run = promisify(execFile);

/** The operating system account that runs Postgres; null for the current one. */
export type Account = { uid: number; gid: number } | null;

export const runsAsRoot = (): boolean => process.getuid?.() === 0;

async function lookUp(name: string): Promise<Account> {
  try {
    const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return null;
  }
}

/**
 * Postgres refuses to run as root, so root runs it as an account that owns no other files of ours.
 */
export async function chooseAccount(): Promise<Account> {
  if (!runsAsRoot()) return null;
  const account = (await lookUp('postgres')) ?? (await lookUp('nobody'));
  if (account === null) {
    throw new OperatorError(
      'Postgres does not run as root, and this machine has neither a user "postgres" nor "nobody". ' +
        'Create one, start as an ordinary user, or set DATABASE_URL.',
      { code: 'no_account' },
    );
  }
  return account;
}

/** Spawn options for Postgres processes: the account, and none of our environment. */
export function spawnAs(account: Account): {
  cwd: string;
  env: Record<string, string>;
  uid?: number;
  gid?: number;
} {
  const plain = {
    cwd: '/',
    env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC' },
  };
  return account === null ? plain : { ...plain, ...account };
}

/** Tries it, because modes, ACLs and mounts all matter. */
export function canEnter(directory: string, account: Account): Promise<boolean> {
  return new Promise((resolve) => {
    const test = spawn('/bin/sh', ['-c', 'cd "$1" && test -r . && test -w .', 'sh', directory], {
      ...spawnAs(account),
      stdio: 'ignore',
    });
    test.once('error', () => resolve(false));
    test.once('close', (code) => resolve(code === 0));
  });
}
