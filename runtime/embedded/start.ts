import { execFile } from 'node:child_process';
import { createHmac, randomBytes } from 'node:crypto';
import { chown, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import type { Logger } from '../process/log.js';
import { createPrivateFile } from '../process/files.js';
import { type Binaries, findBinaries } from './binaries.js';
import { spawnAs, clusterOf, findPlace, type Place, rememberPlace, dropCluster } from './place.js';
import { OperatorError } from '../process/operator-error.js';
import { startServer } from './server.js';

const run = promisify(execFile);

const DATABASE = 'svc';

export type EmbeddedPostgres = Awaited<ReturnType<typeof startEmbeddedPostgres>>;

export interface EmbeddedPostgresOptions {
  dataDir: string;
  log?: Pick<Logger, 'debug' | 'info'>;
  /** Any free port by default; a restart after a crash keeps the port, so that URLs stay valid. */
  port?: number;
  /** Server parameters in addition to the defaults, or in their place; `fsync=off` also applies to initdb. */
  settings?: Record<string, string>;
  /** Cancels the start and leaves no process running. */
  signal?: AbortSignal;
}

const quiet = { debug: () => undefined, info: () => undefined };

async function superuserPassword(dataDir: string, place: Place): Promise<string> {
  const file = join(dataDir, 'postgres-password');
  if (existsSync(file)) return (await readFile(file, 'utf8')).trim();
  if (place.initialised) {
    throw new OperatorError(
      `${file} is missing, and the database in ${place.directory} cannot be opened without this file: restore the file, or remove ${dataDir} to start with an empty database.`,
    );
  }
  const password = randomBytes(24).toString('base64url');
  createPrivateFile(file, password + '\n');
  return password;
}

async function ensureDatabase(url: string): Promise<void> {
  const sql = postgres(url, { max: 1, fetch_types: false, onnotice: () => undefined });
  try {
    const found = await sql`select 1 from pg_database where datname = ${DATABASE}`;
    if (found.length === 0) await sql`create database ${sql(DATABASE)}`;
  } finally {
    await sql.end({ timeout: 5 });
  }
}

const SUPERUSER = 'postgres';

/** Creates a cluster and syncs it to disk. The cluster gets its final name only when complete. */
async function initialise(
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
        // The C collation, so that index order does not depend on the machine's libraries.
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
    throw new OperatorError(`initdb failed: ${said.trim()}`, { cause });
  } finally {
    await rm(passwordFile, { force: true });
  }
}

async function checkVersion(binaries: Binaries, place: Place): Promise<void> {
  const version = (await readFile(join(clusterOf(place), 'PG_VERSION'), 'utf8')).trim();
  if (Number(version) !== binaries.major) {
    throw new OperatorError(
      `The database in ${place.directory} was created by Postgres ${version}; version ${String(binaries.major)} is installed. ` +
        'Dump it with the old version and load it into a new DATA_DIR.',
    );
  }
}

/** Starts a private Postgres below `dataDir`, on a free loopback port. */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions) {
  const { log = quiet, settings = {}, port = 0, signal } = options;
  const dataDir = resolve(options.dataDir);
  await mkdir(dataDir, { recursive: true, mode: 0o755 });
  const place = await findPlace(dataDir);
  const binaries = await findBinaries(place.account);
  const password = await superuserPassword(dataDir, place);
  if (place.initialised) {
    await checkVersion(binaries, place);
  } else {
    await initialise(binaries, place, password, settings['fsync'] !== 'off');
    rememberPlace(dataDir, place);
  }
  const server = await startServer(
    binaries,
    place,
    { port, settings, ...(signal && { signal }) },
    log,
  );
  log.info(
    { postgres_pid: server.pid, port: server.port, cluster: clusterOf(place) },
    'embedded Postgres is ready',
  );

  /**
   * A stable password for a role, derived from a secret in DATA_DIR. The caller that creates the
   * role sets this password.
   */
  const rolePassword = (role: string): string =>
    createHmac('sha256', password).update(`role ${role}`).digest('base64url');
  /** A URL with the password of the role: `rolePassword`, except for the superuser. */
  const urlFor = (role: string, database: string = DATABASE): string => {
    const secret = role === SUPERUSER ? password : rolePassword(role);
    return `postgres://${encodeURIComponent(role)}:${secret}@127.0.0.1:${String(server.port)}/${encodeURIComponent(database)}`;
  };
  try {
    await ensureDatabase(urlFor(SUPERUSER, 'postgres'));
  } catch (error) {
    await server.stop();
    throw error;
  }
  return {
    ...server,
    superuserUrl: urlFor(SUPERUSER),
    rolePassword,
    urlFor,
    /** Calls `stop`, then removes the cluster. */
    destroy: async (): Promise<void> => {
      await server.stop();
      await dropCluster(dataDir);
    },
  };
}
