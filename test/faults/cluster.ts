import { execFile, execFileSync } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { startEmbeddedPostgres, type EmbeddedPostgres } from '#runtime/embedded/start';
import { findBinaries } from '#runtime/embedded/binaries';
import { clusterOf, findPlace, dropCluster } from '#runtime/embedded/place';
import { startServer, type Server } from '#runtime/embedded/server';
import { connect } from '#runtime/postgres/connect';
import type { Db, Pool } from '#sql/db/transaction';
import { APPEND_LOCK, holdLock } from '../fixtures/hold-lock.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { until } from './pace.js';

/** Settings with which the cluster fits on a small disk. */
export const SETTINGS = { max_wal_size: '96MB', min_wal_size: '32MB', max_connections: '160' };
const quiet = { debug: () => undefined };

/** A real Postgres for fault injection. */
export class Cluster {
  private replication: TcpProxy | null = null;
  private standby: { server: Server; directory: string } | null = null;
  /** The superuser's pool, without a proxy. */
  sql: Pool;

  protected constructor(
    private readonly dataDir: string,
    protected readonly settings: Record<string, string>,
    /** The server that the programs use. */
    public running: EmbeddedPostgres,
  ) {
    this.sql = this.connectTo(running.superuserUrl);
  }

  static async start(dataDir: string, extra: Record<string, string> = {}): Promise<Cluster> {
    const settings = { ...SETTINGS, ...extra };
    return new Cluster(dataDir, settings, await startEmbeddedPostgres({ dataDir, settings }));
  }

  signal(signal: 'SIGKILL' | 'SIGQUIT' | 'SIGINT' | 'SIGSTOP' | 'SIGCONT'): void {
    try {
      process.kill(this.running.pid, signal);
    } catch (error) {
      if (signal !== 'SIGCONT') throw error;
    }
  }

  /** Kills all processes at once, so that none can write. */
  killAll(): void {
    const { pid } = this.running;
    const all = [pid, ...childrenOf(pid)];
    // Stops every process first, so that no process reacts to the end of another process.
    for (const signal of ['SIGSTOP', 'SIGKILL'] as const) {
      for (const one of all) {
        try {
          process.kill(one, signal);
        } catch {
          // The process has already exited.
        }
      }
    }
  }

  /** Starts the server again on the same port. */
  async restart(): Promise<void> {
    const { port } = this.running;
    const { dataDir, settings } = this;
    this.running = await startEmbeddedPostgres({ dataDir, port, settings });
  }

  async terminateAll(sql: Db = this.sql): Promise<void> {
    await sql`
      select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'svc-%'`;
  }

  /** Holds the append lock of the log until the returned function is called. */
  holdAppendLock(): Promise<() => Promise<void>> {
    return holdLock(this.sql, APPEND_LOCK);
  }

  /**
   * Adds a streaming standby from a copy of the files.
   *
   * @param isSynchronous whether commits wait for the standby from now on
   * @returns its port
   */
  async addStandby(isSynchronous: boolean): Promise<number> {
    const place = await findPlace(this.dataDir);
    const directory = join(this.dataDir, 'standby');
    await this.running.stop();
    await promisify(execFile)('cp', ['-a', place.directory, directory]);
    await this.restart();
    this.replication = await TcpProxy.open(this.running.port, 'other');
    const copy = { ...place, directory };
    const { username, password } = new URL(this.running.superuserUrl);
    await writeFile(join(clusterOf(copy), 'standby.signal'), '');
    const binaries = await findBinaries(place.account);
    const primary_conninfo = `host=127.0.0.1 port=${String(this.replication.port)} user=${username} password=${password} application_name=standby`;
    // A hot standby answers queries, which shows that it has started.
    const settings = { ...this.settings, primary_conninfo, hot_standby: 'on' };
    const server = await startServer(binaries, copy, { port: 0, settings }, quiet);
    this.standby = { server, directory };
    if (isSynchronous) {
      await this.sql.unsafe(`alter system set synchronous_standby_names = 'standby'`);
      await this.sql`select pg_reload_conf()`;
    }
    await this.untilStreaming(isSynchronous);
    return server.port;
  }

  cutReplication(): void {
    this.replication?.cut(true);
  }

  async promote(): Promise<void> {
    const { standby } = this;
    if (standby === null) throw new Error('there is no standby');
    const url = new URL(this.running.superuserUrl);
    url.port = String(standby.server.port);
    await this.sql.end({ timeout: 0 });
    this.sql = this.connectTo(url.toString());
    await this.sql`select pg_promote()`;
    const before = this.running;
    this.running = {
      ...before,
      superuserUrl: url.toString(),
      pid: standby.server.pid,
      port: standby.server.port,
      urlFor: (role) => before.urlFor(role).replace(/:\d+\//, `:${String(standby.server.port)}/`),
      exited: standby.server.exited,
      stop: () => standby.server.stop(),
    };
    this.standby = null;
    // The new primary's copied settings name a synchronous standby that does not exist.
    await this.sql.unsafe('alter system reset synchronous_standby_names');
    await this.sql`select pg_reload_conf()`;
  }

  async close(): Promise<void> {
    await this.sql.end({ timeout: 1 });
    await this.replication?.close();
    await this.standby?.server.stop();
    await this.running.stop();
    await dropCluster(this.dataDir);
    await rm(join(this.dataDir, 'standby'), { recursive: true, force: true });
  }

  private async untilStreaming(isSynchronous: boolean): Promise<void> {
    const wanted = isSynchronous ? 'sync' : 'async';
    const isStreaming = async (): Promise<boolean> => {
      const rows = await this.sql<{ state: string; sync_state: string }[]>`
        select state, sync_state from pg_stat_replication where application_name = 'standby'`;
      return rows.some((row) => row.state === 'streaming' && row.sync_state === wanted);
    };
    if (!(await until(isStreaming, 20_000))) {
      throw new Error(`the standby does not stream (${wanted})`);
    }
  }

  protected connectTo(url: string): Pool {
    return connect(url, { application: 'faults', max: 4, statementTimeoutMs: 20_000 });
  }
}

const childrenOf = (pid: number): number[] =>
  execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number))
    .flatMap(([child = 0, parent]) => (parent === pid ? [child] : []));
