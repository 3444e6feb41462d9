import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { Clusters, skipsClusters, withoutClusters, type Cluster } from '../fixtures/clusters.js';
import { fsck, migrated, publicStatuses, Service } from '../fixtures/restored-service.js';
import { sqlPublisher, testKeys } from '../fixtures/sql-publisher.js';
import { eventually } from '../fixtures/stack.js';

/**
 * Tests the backup procedures of docs/runbooks.md with PostgreSQL's own programs. Restores a base backup, a WAL
 * archive and a dump after the loss of the original machine.
 */
const page = readFileSync(join(packageRoot, 'docs/runbooks.md'), 'utf8');
/** A setting from the documentation, with the archive directory of this test. */
const setting = (pattern: RegExp, archive: string): string =>
  (pattern.exec(page)?.[1] ?? '').replaceAll('/backup/wal', archive);

describe.skipIf(skipsClusters)(`backup${withoutClusters}`, () => {
  const home = mkdtempSync(join(tmpdir(), 'svc-restore-'));
  const directory = join(home, 'public');
  const keys = testKeys();
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
    // Like archive_timeout, but immediate: switches the WAL segment, so that the server archives the segment.
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
  });

  const copyOf = (name: string): Promise<Cluster> => clusters.copy('base', name);

  const check = async ({ db, registry }: Service) => {
    // Verifies the entries that publishing has appended.
    await registry.verifyAll();
    return fsck(db, { directory, home, ...keys });
  };

  it('accepts an archived WAL segment a second time, and rejects a different segment of the same name', async () => {
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

  it('restores every commit with the WAL archive, after which the publisher continues and fsck finds no corruption', async () => {
    await clusters.run('pg_verifybackup', '--quiet', join(clusters.root, 'base'));
    restored = await copyOf('restored');
    await clusters.run('/bin/touch', join(restored.directory, 'recovery.signal'));
    await restored.start({ restore_command: setting(/"restore_command=([^"]+)"/, archive) });
    // The server accepts reads while it replays the archive.
    const atEnd = () => clusters.run('psql', '-Atc', 'select not pg_is_in_recovery()', restored.url('postgres')); // prettier-ignore
    await eventually(async () => ((await atEnd()).trim() === 't' ? true : null), 30_000, 'writes');
    service = await Service.on(restored, { directory, ...keys, existing: lost.registry });
    expect(await service.publish()).toMatchObject({ outcome: 'published' });
    const more = await service.admit(5);
    expect(await service.publish()).toMatchObject({ outcome: 'published' });
    const all = [...inBackup, ...afterBackup, ...more];
    expect(await publicStatuses(directory, keys, all)).toEqual([200]);
    expect(await check(service)).toMatchObject({ code: 0, findings: [] });
  }, 120_000);

  it("restores from a superuser's dump into an empty cluster, and the log continues", async () => {
    const [roles, dump] = [join(clusters.root, 'roles.sql'), join(clusters.root, 'svc.dump')];
    await clusters.run('pg_dumpall', '-d', restored.url('postgres'), '--roles-only', '-f', roles);
    await clusters.run('pg_dump', '-d', restored.url(), '-Fc', '-f', dump);
    // Under row-level security, pg_dump fails instead of omitting rows.
    const confined = restored.url().replace('postgres@', 'svc_fsck@');
    await expect(clusters.run('pg_dump', '-d', confined, '-t', 'svc.log_entry', '-t', 'svc.intake')).rejects.toThrow(/row-level security/); // prettier-ignore
    const [{ length: proofs }] = [await service.has([...inBackup, ...afterBackup])];
    expect(proofs).toBe(50);
    await service.close();
    await restored.stop();

    const empty = await clusters.create('dumped');
    await empty.start();
    // psql reports that the role which initdb created exists, and continues.
    await clusters.run('psql', '-q', '-d', empty.url('postgres'), '-f', roles);
    await clusters.run('pg_restore', '-d', empty.url('postgres'), '--create', '--exit-on-error', dump); // prettier-ignore
    service = await Service.on(empty, { directory, ...keys, existing: lost.registry });
    expect(await service.publish()).toMatchObject({ outcome: 'published' });
    const more = await service.admit(5);
    await service.publish();
    expect(await publicStatuses(directory, keys, [...afterBackup, ...more])).toEqual([200]);
    expect(await check(service)).toMatchObject({ code: 0, findings: [] });
  }, 120_000);

  it('needs no snapshot directory: the publisher rebuilds the snapshot with a generation above all earlier generations', async () => {
    const before = await service.publish();
    const seen = 'generation' in before ? before.generation : NaN;
    await service.publisher.close();
    await rm(directory, { recursive: true });
    const publisher = sqlPublisher(service.db.as('svc_publisher', 1), { directory, ...keys });
    const report = await publisher.runCycle();
    expect(report.outcome).toBe('published');
    expect('generation' in report && report.generation).toBeGreaterThan(seen);
    await publisher.close();
    expect(await publicStatuses(directory, keys, [...inBackup, ...afterBackup])).toEqual([200]);
  }, 60_000);
});
