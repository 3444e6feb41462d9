import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chown, lstat, mkdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { writePrivateFile } from '../process/files.js';
import { OperatorError } from '../process/operator-error.js';

/** Location and owner of a cluster. */
export interface Place {
  /** Private directory of `account`; the cluster is in its subdirectory `data`. */
  directory: string;
  account: Account;
  /** Whether initdb has succeeded. */
  initialised: boolean;
}

export const clusterOf = (place: { directory: string }): string => join(place.directory, 'data');

const localDirectory = (dataDir: string): string => join(dataDir, 'postgres');
const pointerFile = (dataDir: string): string => join(dataDir, 'postgres-place.json');

async function readPointer(dataDir: string): Promise<string | null> {
  // Only a missing file means that there is no database yet.
  const text = await readFile(pointerFile(dataDir), 'utf8').catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null;
      throw error;
    },
  );
  return text === null ? null : (JSON.parse(text) as { directory: string }).directory;
}

/** A cluster always runs as the account that created it, whichever user starts the service. */
async function ownerOf(directory: string): Promise<Account> {
  const { uid, gid } = await stat(clusterOf({ directory }));
  if (runsAsRoot()) return uid === 0 ? null : { uid, gid };
  if (uid !== process.getuid?.()) {
    throw new OperatorError(
      `The database in ${directory} belongs to the user with id ${String(uid)}: start as that user or as root, or choose another DATA_DIR.`,
    );
  }
  return null;
}

async function existing(directory: string): Promise<Place> {
  const account = await ownerOf(directory);
  if (account !== null && !(await canEnter(directory, account))) {
    throw new OperatorError(
      `The database in ${directory} is not accessible to its own account (user id ${String(account.uid)}): ` +
        'a parent directory is private. Restore its search permission (chmod a+x).',
    );
  }
  return { directory, account, initialised: true };
}

async function makePrivate(directory: string, account: Account): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  if (account !== null) await chown(directory, account.uid, account.gid);
}

/** The place recorded in DATA_DIR, or a new empty place. */
export async function findPlace(dataDir: string): Promise<Place> {
  const local = localDirectory(dataDir);
  if (existsSync(clusterOf({ directory: local }))) return existing(local);

  const pointed = await readPointer(dataDir);
  if (pointed !== null) {
    if (existsSync(clusterOf({ directory: pointed }))) return existing(pointed);
    // Starting with an empty database would look like a registry that lost everything.
    throw new OperatorError(
      `The database of ${dataDir} was in ${pointed}, which is missing. Restore it, or remove ${dataDir} to start with an empty database.`,
    );
  }

  const account = await chooseAccount();
  await makePrivate(local, account);
  if (account === null || (await canEnter(local, account))) {
    return { directory: local, account, initialised: false };
  }
  await rm(local, { recursive: true });
  return elsewhere(account);
}

/** A new directory with a random name: a recreated DATA_DIR must never find the previous cluster. */
async function elsewhere(account: Account): Promise<Place> {
  const shared = await sharedPlace();
  if (shared !== null) {
    const directory = join(shared, `cluster-${randomBytes(8).toString('hex')}`);
    await makePrivate(directory, account);
    if (await canEnter(directory, account)) return { directory, account, initialised: false };
    await rm(directory, { recursive: true });
  }
  throw new OperatorError(
    'DATA_DIR is below a private directory that the account running Postgres cannot enter, and neither /var/lib, ' +
      '/var/tmp nor the temporary directory can hold the database. Set DATA_DIR to a directory that other users can enter, or set DATABASE_URL.',
  );
}

/** Records the place of a complete cluster in DATA_DIR, so that a recorded place is always usable. */
export function rememberPlace(dataDir: string, place: Place): void {
  if (place.directory === localDirectory(dataDir)) return;
  writePrivateFile(pointerFile(dataDir), JSON.stringify({ directory: place.directory }) + '\n');
}

/** Removes the cluster of `dataDir`; its server must not be running. */
export async function dropCluster(dataDir: string): Promise<void> {
  const pointed = await readPointer(dataDir);
  await rm(localDirectory(dataDir), { recursive: true, force: true, maxRetries: 10 });
  if (pointed !== null) await rm(pointed, { recursive: true, force: true, maxRetries: 10 });
  await rm(pointerFile(dataDir), { force: true });
}

/**
 * A directory owned by root that every account can enter, for files that Postgres must reach when the
 * checkout or DATA_DIR is below a private home. Some parents are world-writable, so a directory
 * that another user could have prepared is not used.
 */
export async function sharedPlace(): Promise<string | null> {
  for (const parent of ['/var/lib', '/var/tmp', tmpdir()]) {
    const place = join(parent, 'svc-postgres');
    try {
      await mkdir(place, { mode: 0o755 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') continue;
    }
    const found = await lstat(place);
    if (found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o022) === 0) {
      return place;
    }
  }
  return null;
}

const run = promisify(execFile);

/** The operating system account that runs Postgres; null for the current account. */
export type Account = { uid: number; gid: number } | null;

const runsAsRoot = (): boolean => process.getuid?.() === 0;

/** Postgres refuses to run as root, so root runs it as an account without files of the service. */
export async function chooseAccount(): Promise<Account> {
  if (!runsAsRoot()) return null;
  for (const name of ['postgres', 'nobody']) {
    try {
      const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])]);
      return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
    } catch {
      // No such user: try the next name.
    }
  }
  throw new OperatorError(
    'Postgres does not run as root, and this machine has neither a user "postgres" nor "nobody". ' +
      'Create one, start as an ordinary user, or set DATABASE_URL.',
  );
}

/** Spawn options for Postgres processes: the account, and nothing of this process's environment. */
export const spawnAs = (account: Account) => ({
  cwd: '/',
  env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C', TZ: 'UTC' },
  ...account,
});

/** Tries to enter the directory, because modes, ACLs and mount options all restrict access. */
async function canEnter(directory: string, account: Account): Promise<boolean> {
  const test = spawn('/bin/sh', ['-c', 'cd "$1" && test -r . && test -w .', 'sh', directory], {
    ...spawnAs(account),
    stdio: 'ignore',
  });
  return once(test, 'close').then(
    ([code]) => code === 0,
    () => false,
  );
}
