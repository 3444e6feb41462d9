import { readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '#runtime/process/files';
import type { Server } from '#runtime/embedded/server';
import { Clusters, type Cluster as Files } from '../fixtures/clusters.js';
import { Cluster, SETTINGS } from '../faults/cluster.js';
import { until } from '../faults/pace.js';

const page = readFileSync(join(packageRoot, 'docs/runbooks.md'), 'utf8');

/** A setting from the runbook, with the path of this archive. */
function documented(pattern: RegExp, archive: string): string {
  const found = pattern.exec(page)?.[1];
  if (found === undefined) throw new Error(`docs/runbooks.md has no ${pattern.source}`);
  return found.replaceAll('/backup/wal', archive);
}

/** Debian's PostgreSQL with the WAL archive of the runbook, whose host can be lost and restored. */
export class Host extends Cluster {
  private restores = 0;

  private constructor(
    private readonly clusters: Clusters,
    private readonly archive: string,
    private files: Files,
    settings: Record<string, string>,
    server: Server,
  ) {
    super(clusters.root, settings, runningOn(files, server));
  }

  static async open(extra: Record<string, string>): Promise<Host> {
    const clusters = await Clusters.open();
    const archive = await clusters.folder('archive');
    const files = await clusters.create('primary');
    const settings = {
      ...SETTINGS,
      ...extra,
      archive_mode: 'on',
      archive_command: documented(/^archive_command = '(.+)'$/m, archive),
    };
    const server = await files.start(settings);
    await clusters.run('psql', '-qc', 'create database svc', files.url('postgres'));
    return new Host(clusters, archive, files, settings, server);
  }

  override async restart(): Promise<void> {
    const { port } = this.running;
    this.running = runningOn(this.files, await this.files.start(this.settings, port));
  }

  async backUp(): Promise<void> {
    const base = join(this.clusters.root, 'base');
    const from = this.files.url('postgres');
    await this.clusters.run('pg_basebackup', '-d', from, '-D', base, '-c', 'fast', '-X', 'stream');
    await this.clusters.run('pg_verifybackup', '--quiet', base);
  }

  /** Archives all WAL so far, and makes archiving fail from then on. */
  async cutArchive(): Promise<void> {
    const [segment] = await this.sql<{ name: string }[]>`
      select pg_walfile_name(pg_switch_wal()) as name`;
    const isArchived = async (): Promise<boolean> => {
      const rows = await this.sql`
        select from pg_stat_archiver where last_archived_wal >= ${segment?.name ?? ''}`;
      return rows.length > 0;
    };
    if (!(await until(isArchived, 30_000))) throw new Error('the WAL is not archived');
    await this.sql.unsafe(`alter system set archive_command = 'false'`);
    await this.sql`select pg_reload_conf()`;
  }

  /** Simulates the loss of the host with everything on its disk. */
  async lose(): Promise<void> {
    await this.sql.end({ timeout: 0 });
    await this.files.kill();
    await rm(this.files.directory, { recursive: true });
  }

  /** Restores the backup and replays the archive, as the runbook describes. */
  async restore(): Promise<void> {
    this.restores += 1;
    this.files = await this.clusters.copy('base', `restored-${String(this.restores)}`);
    await this.clusters.run('/bin/touch', join(this.files.directory, 'recovery.signal'));
    const restore_command = documented(/"restore_command=([^"]+)"/, this.archive);
    const server = await this.files.start({ ...this.settings, restore_command });
    this.running = runningOn(this.files, server);
    this.sql = this.connectTo(this.running.superuserUrl);
    const isWritable = async (): Promise<boolean> => {
      const [row] = await this.sql<{ is: boolean }[]>`select not pg_is_in_recovery() as is`;
      return row?.is === true;
    };
    if (!(await until(isWritable, 60_000))) throw new Error('the restore does not end');
  }

  override async close(): Promise<void> {
    await this.sql.end({ timeout: 1 });
    await this.clusters.close();
  }
}

/** Roles log in without a password. */
function runningOn(files: Files, server: Server): Cluster['running'] {
  const urlFor = (role: string, database?: string): string =>
    files.url(database).replace('postgres@', `${role}@`);
  return {
    ...server,
    superuserUrl: files.url(),
    rolePassword: () => 'not needed',
    urlFor,
    destroy: () => files.kill(),
  };
}
