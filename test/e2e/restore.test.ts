import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';
import { adminWith } from '../fixtures/admin.js';
import { Clusters, skipsClusters, withoutClusters, type Cluster } from '../fixtures/clusters.js';
import { fsck, migrated, publicStatuses, Service, vkeysOf } from '../fixtures/restored-service.js';
import { testKey } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';
import { eventually } from '../fixtures/stack.js';

/**
 * What docs/recovery.md says of backups, with PostgreSQL's own programs: a base backup, an archive
 * of the write-ahead log, a dump; the machine that all of it came from is gone.
 */
const page = readFileSync(join(packageRoot, 'docs/recovery.md'), 'utf8');
/** A setting as the page gives it, for a folder of this test's own. */
const setting = (pattern: RegExp, archive: string): string =>
  (pattern.exec(page)?.[1] ?? '').replaceAll('/backup/wal', archive);

describe.skipIf(skipsClusters)(`a backup${withoutClusters}`, () => {
  const home = mkdtempSync(join(tmpdir(), 'svc-restore-'));
  const directory = join(home, 'public');
  const keys = { logKey: testKey(), snapshotKey: testKey() };
  let clusters: Clusters;
  let archive: string;
  let lost: Service;
  let inBackup: string[];
  let afterBackup: string[];
  let restored: Cluster;
  let service: Service;

  beforeAll(async () => {
    clusters = await Clusters.open();
    archive = await clusters.folder('archive');
    const primary = await clusters.create('primary');
    await primary.start({
      archive_mode: 'on',
      archive_command: setting(/^archive_command = '(.+)'$/m, archive),
    });
    await migrated(primary);
    lost = await Service.on(primary, { directory, ...keys });
    inBackup = await lost.admit(20);
    await lost.publish();
    await clusters.run('pg_basebackup', '-D', join(clusters.root, 'base'), '-d', primary.url('postgres'), '-c', 'fast', '-X', 'stream'); // prettier-ignore
    afterBackup = await lost.admit(30);
    await lost.publish();
    // What an archive_timeout does, at once: the segment that is being written is closed and kept.
    const [segment] = await lost.db.sql<{ name: string }[]>`
      select pg_walfile_name(pg_switch_wal()) as name`;
    await eventually(
      async () => {
        const [row] = await lost.db.sql<{ done: boolean }[]>`
          select last_archived_wal >= ${segment?.name ?? ''} as done from pg_stat_archiver`;
        return row?.done === true ? true : null;
      },
      30_000,
      'the segment in the archive',
    );
    await lost.close();
    await primary.kill();
    await rm(primary.directory, { recursive: true });
  }, 120_000);
  afterAll(async () => {
    await service?.close();
    await clusters?.close();
    rmSync(home, { recursive: true, force: true });
  });

  const copyOf = async (name: string): Promise<Cluster> => {
    await clusters.run('/bin/cp', '-a', join(clusters.root, 'base'), join(clusters.root, name));
    return clusters.at(name);
  };

  it('has a segment archived once more, as after a crash, and no other put in its place', async () => {
    const [folder, segment] = [join(home, 'again'), join(home, 'segment')];
    mkdirSync(folder);
    const command = setting(/^archive_command = '(.+)'$/m, folder)
      .replaceAll('%p', segment)
      .replaceAll('%f', '000000010000000000000001');
    const archiveIt = (content: string) => {
      writeFileSync(segment, content);
      return promisify(execFile)('sh', ['-c', command]);
    };
    await archiveIt('one');
    await archiveIt('one');
    await expect(archiveIt('another')).rejects.toThrow();
    expect(readdirSync(folder)).toEqual(['000000010000000000000001']);
  });

  it('is what was written, as pg_verifybackup finds', async () => {
    await clusters.run('pg_verifybackup', '--quiet', join(clusters.root, 'base'));
  });

  it('and the archive bring back every commit: the publisher goes on, and fsck is clean', async () => {
    const began = performance.now();
    restored = await copyOf('restored');
    await clusters.run('/bin/touch', join(restored.directory, 'recovery.signal'));
    await restored.start({ restore_command: setting(/"restore_command=([^"]+)"/, archive) });
    const sql = postgres(restored.url(), { max: 1 });
    await eventually(
      async () => {
        const [row] = await sql<{ over: boolean }[]>`select not pg_is_in_recovery() as over`;
        return row?.over === true ? true : null;
      },
      30_000,
      'the end of the recovery',
    );
    await sql.end();
    service = await Service.on(restored, { directory, ...keys, goesOn: lost.registry });
    expect(await service.publish()).toMatchObject({ outcome: 'published', treeSize: 51 });
    const ms = Math.round(performance.now() - began);
    console.info(`restored from base backup and archive, and published again, in ${ms} ms`);
    const more = await service.admit(5);
    expect(await service.publish()).toMatchObject({ outcome: 'published', treeSize: 56 });
    const all = [...inBackup, ...afterBackup, ...more];
    expect(await publicStatuses(directory, keys, all)).toEqual([200]);
    const { code, said } = await fsck(
      service.db,
      directory,
      vkeysOf(keys),
      join(home, 'fsck.json'),
    );
    expect(said).toContain('"findings": []');
    expect(code).toBe(0);
  }, 120_000);

  it('without the archive is an older database: refused, and told what it lacks', async () => {
    const older = await copyOf('older');
    await older.start();
    await service.publisher.close();
    const behind = await Service.on(older, { directory, ...keys, goesOn: lost.registry });
    const { code, message } = await behind.stopped();
    expect(code).toBe('database_behind');
    expect(message).toContain('admin -- log lost');
    const admin = adminWith({ DATABASE_URL: older.url().replace('postgres@', 'svc_admin@') });
    const { json } = await admin('log', 'lost', directory, '--vkey', vkeysOf(keys).log);
    const told = (json as { lost: { proof_id: string }[] }).lost.map((leaf) => leaf.proof_id);
    expect(told.slice(0, 30)).toEqual(afterBackup);
    expect(told).toHaveLength(35);
    const { code: found, said } = await fsck(
      behind.db,
      directory,
      vkeysOf(keys),
      join(home, 'older.json'),
    );
    expect(found).toBe(1);
    expect(said).toMatch(/log_forked|snapshot|beyond/);
    await behind.close();
    await older.stop();
  }, 120_000);

  it('and a snapshot directory of the same time are refused by the checkpoint that was kept elsewhere', async () => {
    // The publisher's own state as of the base backup: none of its files knows better.
    const then = join(home, 'then');
    const older = await copyOf('older-still');
    await older.start();
    const trustedCheckpoint = readFileSync(join(directory, 'checkpoint'), 'utf8');
    const first = await Service.on(older, { directory: then, ...keys, goesOn: lost.registry });
    await first.registry.verifyAll();
    const held = sqlPublisher(first.db.as('svc_publisher'), {
      directory: then,
      ...keys,
      trustedCheckpoint,
    });
    await expect(held.runCycle()).rejects.toThrow(/TRUSTED_CHECKPOINT covers 56/);
    await held.close();
    await first.close();
    await older.stop();
  }, 60_000);

  it('as a dump, of a superuser, goes into an empty cluster and on from there', async () => {
    const began = performance.now();
    const [roles, dump] = [join(clusters.root, 'roles.sql'), join(clusters.root, 'svc.dump')];
    await clusters.run('pg_dumpall', '-d', restored.url('postgres'), '--roles-only', '-f', roles);
    await clusters.run('pg_dump', '-d', restored.url(), '-Fc', '-f', dump);
    // As a role that row-level security confines there is an error, and not a dump without rows.
    const confined = restored.url().replace('postgres@', 'svc_fsck@');
    await expect(clusters.run('pg_dump', '-d', confined, '-t', 'svc.proof', '-t', 'svc.intake')).rejects.toThrow(/row-level security/); // prettier-ignore
    const [{ length: proofs }] = [await service.has([...inBackup, ...afterBackup])];
    expect(proofs).toBe(50);
    await service.close();
    await restored.stop();

    const empty = await clusters.create('dumped');
    await empty.start();
    // The role that initdb made is there already, which psql says and goes on.
    await clusters.run('psql', '-q', '-d', empty.url('postgres'), '-f', roles);
    await clusters.run('pg_restore', '-d', empty.url('postgres'), '--create', '--exit-on-error', dump); // prettier-ignore
    service = await Service.on(empty, { directory, ...keys, goesOn: lost.registry });
    expect(await service.publish()).toMatchObject({ outcome: 'published', treeSize: 56 });
    const ms = Math.round(performance.now() - began);
    console.info(`dumped, restored and published again in ${ms} ms`);
    const more = await service.admit(5);
    await service.publish();
    expect(await publicStatuses(directory, keys, [...afterBackup, ...more])).toEqual([200]);
    const { code, said } = await fsck(
      service.db,
      directory,
      vkeysOf(keys),
      join(home, 'dumped.json'),
    );
    expect(said).toContain('"findings": []');
    expect(code).toBe(0);
  }, 120_000);

  it('of the snapshot directory is not needed: it is written anew, above what readers have seen', async () => {
    const before = await service.publish();
    const seen = before.outcome === 'published' ? before.generation : NaN;
    const log = readFileSync(join(directory, 'checkpoint'), 'utf8');
    await service.publisher.close();
    await rm(directory, { recursive: true });
    const publisher = sqlPublisher(service.db.as('svc_publisher'), { directory, ...keys });
    const generation = async () => {
      const report = await publisher.runCycle();
      if (report.outcome !== 'published') throw new Error(`it is in ${report.outcome}`);
      expect(report.treeSize).toBe(56 + 5);
      return report.generation;
    };
    // Numbers are seconds: what was published more often than that is passed as soon.
    const passed = async () => ((await generation()) > seen ? true : null);
    await eventually(passed, 15_000, 'a generation that no reader has seen');
    await publisher.close();
    expect(readFileSync(join(directory, 'checkpoint'), 'utf8')).toBe(log);
    expect(await publicStatuses(directory, keys, [...inBackup, ...afterBackup])).toEqual([200]);
  }, 60_000);
});
