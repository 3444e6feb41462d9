import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { chooseAccount, spawnAs } from '#runtime/embedded/account';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import type { TestDatabase } from './database.js';
import { freePort } from './free-port.js';

const NEEDED = [
  'initdb',
  'postgres',
  'pg_basebackup',
  'pg_verifybackup',
  'pg_dump',
  'pg_dumpall',
  'pg_restore',
  'psql',
];

/** Where a whole PostgreSQL has its programs: the embedded one has only what a server needs. */
export const postgresBin: string | null =
  [process.env['POSTGRES_BIN'] ?? '', ...debianBins()].find(
    (folder) => folder !== '' && NEEDED.every((name) => existsSync(join(folder, name))),
  ) ?? null;

function debianBins(): string[] {
  const root = '/usr/lib/postgresql';
  if (!existsSync(root)) return [];
  const versions = readdirSync(root).map(Number).filter(Number.isFinite);
  return versions.sort((a, b) => b - a).map((version) => join(root, String(version), 'bin'));
}

/** Whether tests that need it are left out. CI skips nothing, so there they fail instead. */
export const skipsClusters = postgresBin === null && process.env['CI'] === undefined;

/** Appended to what is skipped for want of it. */
export const withoutClusters =
  postgresBin === null
    ? ' (skipped: no whole PostgreSQL here; install postgresql, or name its bin folder in POSTGRES_BIN)'
    : '';

/** A server of its own, with what its operator would have beside it. */
export interface Cluster {
  directory: string;
  port: number;
  /** As superuser. */
  url(database?: string): string;
  start(settings?: Record<string, string>): Promise<void>;
  /** An orderly end. */
  stop(): Promise<void>;
  /** The machine is gone: nothing is flushed that was not. */
  kill(): Promise<void>;
}

/** A place for clusters, backups and archives, which all belong to the account that Postgres runs as. */
export class Clusters {
  private readonly clusters: Cluster[] = [];
  private constructor(
    readonly root: string,
    private readonly account: Awaited<ReturnType<typeof chooseAccount>>,
  ) {}

  static async open(): Promise<Clusters> {
    const root = await mkdtemp(join(tmpdir(), 'svc-clusters-'));
    const account = await chooseAccount();
    await chmod(root, 0o755);
    const all = new Clusters(root, account);
    if (account !== null) await chown(root, account.uid, account.gid);
    return all;
  }

  async folder(name: string): Promise<string> {
    const path = join(this.root, name);
    await mkdir(path, { mode: 0o700 });
    if (this.account !== null) await chown(path, this.account.uid, this.account.gid);
    return path;
  }

  /** Runs one of PostgreSQL's programs, or a shell's line, as its account. */
  async run(program: string, ...args: string[]): Promise<string> {
    const path = program.startsWith('/') ? program : join(postgresBin ?? '', program);
    const { stdout } = await promisify(execFile)(path, args, {
      ...spawnAs(this.account),
      maxBuffer: 2 ** 28,
    });
    return stdout;
  }

  async create(name: string): Promise<Cluster> {
    const directory = join(this.root, name);
    await this.run('initdb', '-D', directory, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync'); // prettier-ignore
    return this.at(name);
  }

  /** A cluster whose data directory something else makes or has made. */
  async at(name: string): Promise<Cluster> {
    const directory = join(this.root, name);
    const port = await freePort();
    const url = (database = 'svc'): string => `postgres://postgres@127.0.0.1:${port}/${database}`;
    let server: ChildProcess | null = null;
    const end = async (signal: NodeJS.Signals): Promise<void> => {
      const dying = server;
      server = null;
      if (dying === null || dying.exitCode !== null || dying.signalCode !== null) return;
      const gone = new Promise((resolve) => dying.once('exit', resolve));
      dying.kill(signal);
      await gone;
    };
    const start = async (settings: Record<string, string> = {}): Promise<void> => {
      const all = {
        listen_addresses: '127.0.0.1',
        port: String(port),
        unix_socket_directories: '',
        max_connections: '60',
        shared_buffers: '32MB',
        // No test takes the power from the machine.
        fsync: 'off',
        timezone: 'UTC',
        ...settings,
      };
      const args = Object.entries(all).flatMap(([key, value]) => ['-c', `${key}=${value}`]);
      const child = spawn(join(postgresBin ?? '', 'postgres'), ['-D', directory, ...args], {
        ...spawnAs(this.account),
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      server = child;
      let said = '';
      child.stderr.on('data', (text: Buffer) => (said += text.toString()));
      await untilAccepting(url('postgres'), child, () => said);
    };
    // At once, as if the power went; its children find that their parent is gone.
    const cluster = {
      directory,
      port,
      url,
      start,
      stop: () => end('SIGINT'),
      kill: () => end('SIGQUIT'),
    };
    this.clusters.push(cluster);
    return cluster;
  }

  async close(): Promise<void> {
    await Promise.all(this.clusters.map((cluster) => cluster.kill()));
    await rm(this.root, { recursive: true, force: true, maxRetries: 10 });
  }
}

async function untilAccepting(url: string, child: ChildProcess, said: () => string): Promise<void> {
  for (let waited = 0; waited < 60_000; waited += 50) {
    if (child.exitCode !== null) throw new Error(`Postgres ended: ${said().slice(-2_000)}`);
    const sql = postgres(url, { max: 1, onnotice: () => undefined, connect_timeout: 5 });
    const up = await sql`select 1`.then(
      () => true,
      () => false,
    );
    await sql.end({ timeout: 1 });
    if (up) return;
    await sleep(50);
  }
  throw new Error(`Postgres does not accept connections: ${said().slice(-2_000)}`);
}

/** The registry's database of a cluster; roles log in without a password there. */
export function databaseOf(cluster: Pick<Cluster, 'url'>): TestDatabase {
  const pools: Pool[] = [];
  const open = (url: string): Pool => {
    const pool = connect(url, { application: 'test', max: 4 });
    pools.push(pool);
    return pool;
  };
  const urlFor = (role: string): string => cluster.url().replace('postgres@', `${role}@`);
  const close = async (): Promise<void> => {
    await Promise.all(pools.splice(0).map((pool) => pool.end({ timeout: 1 })));
  };
  return {
    name: 'svc',
    url: cluster.url(),
    urlFor,
    sql: open(cluster.url()),
    as: (role) => open(urlFor(role)),
    close,
    drop: close,
  };
}
