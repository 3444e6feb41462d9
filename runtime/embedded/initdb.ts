import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createPrivateFile } from '../process/files.js';
import { OperatorError } from '../process/operator-error.js';
import { spawnAs } from './account.js';
import type { Binaries } from './binaries.js';
import { clusterOf, type Place } from './place.js';

const run = promisify(execFile);

export const SUPERUSER = 'postgres';

/** Creates a cluster and syncs it; it gets its final name only when complete. */
export async function initialise(
  binaries: Binaries,
  place: Place,
  password: string,
  sync: boolean,
): Promise<void> {
  const tag = randomBytes(6).toString('hex');
  const staging = join(place.directory, `data.${tag}`);
  const passwordFile = join(place.directory, `password.${tag}`);
  try {
    createPrivateFile(passwordFile, password + '\n');
    if (place.account !== null) {
      await chown(passwordFile, place.account.uid, place.account.gid);
    }
    await run(
      binaries.initdb,
      [
        `--pgdata=${staging}`,
        `--username=${SUPERUSER}`,
        `--pwfile=${passwordFile}`,
        '--auth=scram-sha-256',
        '--encoding=UTF8',
        // Postgres' own collation, so that index order does not depend on the machine's libraries.
        '--locale=C',
        '--locale-provider=builtin',
        '--builtin-locale=C.UTF-8',
        ...(sync ? [] : ['--no-sync']),
      ],
      spawnAs(place.account),
    );
    await rename(staging, clusterOf(place));
  } catch (cause) {
    await rm(staging, { recursive: true, force: true });
    const said = (cause as { stderr?: string }).stderr ?? String(cause);
    throw new OperatorError(`initdb failed: ${said.trim()}`, { code: 'initdb_failed', cause });
  } finally {
    await rm(passwordFile, { force: true });
  }
}

export async function checkVersion(binaries: Binaries, place: Place): Promise<void> {
  const version = (await readFile(join(clusterOf(place), 'PG_VERSION'), 'utf8')).trim();
  if (Number(version) !== binaries.major) {
    throw new OperatorError(
      `The database in ${place.directory} was created by Postgres ${version}; version ${String(binaries.major)} is installed. ` +
        'Dump it with the old version and load it into a new DATA_DIR.',
      { code: 'wrong_version' },
    );
  }
}
