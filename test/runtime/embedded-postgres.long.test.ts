import { execFileSync, spawn } from 'node:child_process';
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '#runtime/embedded/start';
import { isAlive } from '../fixtures/program.js';

const asRoot = process.getuid?.() === 0;

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const sql = postgres(url, { max: 1, connect_timeout: 5, onnotice: () => undefined });
  try {
    return [...(await sql.unsafe(text))];
  } finally {
    await sql.end({ timeout: 1 });
  }
}

let home: string;
let dataDir: string;
/** A DATA_DIR with a prepared, stopped cluster. */
let made: string;
const running: EmbeddedPostgres[] = [];

beforeAll(async () => {
  made = await mkdtemp(join(tmpdir(), 'svc-embedded-made-'));
  await chmod(made, 0o755);
  // Creates the cluster without fsync to save time; later starts enable it.
  const first = await startEmbeddedPostgres({
    dataDir: join(made, 'data'),
    settings: { fsync: 'off' },
  });
  await first.stop();
});
afterAll(() => rm(made, { recursive: true, force: true }));

/** Copies the prepared cluster with owners and modes. */
function startFromMade(): Promise<EmbeddedPostgres> {
  execFileSync('cp', ['-a', join(made, 'data'), home]);
  return start();
}

async function start(): Promise<EmbeddedPostgres> {
  const database = await startEmbeddedPostgres({ dataDir });
  running.push(database);
  return database;
}

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-embedded-'));
  await chmod(home, 0o755);
  dataDir = join(home, 'data');
});

afterEach(async () => {
  for (const database of running.splice(0)) await database.destroy();
  await rm(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
});

describe('embedded Postgres', () => {
  it('keeps data across restarts, with durable settings and password authentication', async () => {
    // Files of an interrupted initdb, which must be ignored.
    await mkdir(join(dataDir, 'postgres', 'data.0123456789ab', 'base'), { recursive: true });
    const first = await start();
    await query(first.superuserUrl, 'create table kept (n int); insert into kept values (42)');
    const settings = await query(
      first.superuserUrl,
      "select name, setting from pg_settings where name in ('fsync','full_page_writes','synchronous_commit','listen_addresses','unix_socket_directories','data_checksums','max_connections') order by name",
    );
    expect(Object.fromEntries(settings.map((row) => [row['name'], row['setting']]))).toEqual({
      data_checksums: 'on',
      fsync: 'on',
      full_page_writes: 'on',
      listen_addresses: '127.0.0.1',
      max_connections: '150',
      synchronous_commit: 'on',
      unix_socket_directories: '',
    });
    const hba = await query(
      first.superuserUrl,
      'select distinct auth_method from pg_hba_file_rules',
    );
    expect(hba).toEqual([{ auth_method: 'scram-sha-256' }]);
    const wrong = first.superuserUrl.replace(/:[^:@/]+@/, ':guess@');
    await expect(query(wrong, 'select 1')).rejects.toMatchObject({ code: '28P01' });

    await first.stop();
    expect(await first.exited).toMatchObject({ code: 0, expected: true });

    // A start that is aborted at the server's first output leaves no server running.
    const stop = new AbortController();
    const log = { debug: () => stop.abort(), info: () => undefined };
    const broken = startEmbeddedPostgres({ dataDir, log, signal: stop.signal });
    await expect(broken).rejects.toMatchObject({ name: 'AbortError' });
    expect(await readdir(await clusterDirectory())).not.toContain('postmaster.pid');

    const second = await start();
    expect(await query(second.superuserUrl, 'select n from kept')).toEqual([{ n: 42 }]);
    expect(second.rolePassword('svc_engine')).toBe(first.rolePassword('svc_engine'));
  });

  it('reports a crash, and recovers even if another process now has the recorded process id', async () => {
    const first = await startFromMade();
    await query(first.superuserUrl, 'create table kept (n int); insert into kept values (7)');
    process.kill(first.pid, 'SIGKILL');
    expect(await first.exited).toMatchObject({ signal: 'SIGKILL', expected: false });
    const place = await clusterDirectory();
    const pidFile = join(place, 'postmaster.pid');
    const lines = (await readFile(pidFile, 'utf8')).split('\n');
    const { pid: stranger, kill } = await strangerOfTheSameUser(place);
    try {
      lines[0] = String(stranger);
      await writeFile(pidFile, lines.join('\n'));
      const second = await start();
      expect(await query(second.superuserUrl, 'select n from kept')).toEqual([{ n: 7 }]);
    } finally {
      kill();
    }
  });

  it('rejects a second server on its directory, and a lost password file', async () => {
    const first = await startFromMade();
    const { mode } = await stat(join(dataDir, 'postgres-password'));
    expect(mode & 0o777).toBe(0o600);
    const second = startEmbeddedPostgres({ dataDir });
    await expect(second).rejects.toThrow(`process ${first.pid}) is already running`);
    expect(await query(first.superuserUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
    await first.stop();
    // An empty database would look like a registry that lost everything.
    await rm(join(dataDir, 'postgres-password'));
    await expect(startEmbeddedPostgres({ dataDir })).rejects.toThrow(
      /postgres-password is missing/,
    );
  });

  it('is not replaced by an empty database when the record of its path is unreadable', async () => {
    const elsewhere = await mkdtemp(join(tmpdir(), 'svc-pointer-'));
    const record = join(elsewhere, 'postgres-place.json');
    await symlink(record, record);
    const started = startEmbeddedPostgres({ dataDir: elsewhere });
    await expect(started).rejects.toThrow(/ELOOP/);
    await rm(elsewhere, { recursive: true });
  });

  it('stops when its parent process is killed', async () => {
    const script = join(home, 'owner.mjs');
    await writeFile(
      script,
      `import { startEmbeddedPostgres } from ${JSON.stringify(join(import.meta.dirname, '../../dist/runtime/embedded/start.js'))};
       const database = await startEmbeddedPostgres({ dataDir: ${JSON.stringify(dataDir)} });
       console.log(database.pid);
       process.kill(process.pid, 'SIGKILL');`,
    );
    let printed = '';
    try {
      execFileSync(process.execPath, [script], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      });
    } catch (error) {
      printed = (error as { stdout: string }).stdout;
    }
    const pid = Number(printed.trim());
    expect(pid).toBeGreaterThan(1);
    await expect.poll(() => isAlive(pid)).toBe(false);
    await start();
  });
});

// Only root can run Postgres under another account.
if (asRoot)
  describe('when root starts it below a private home directory', () => {
    beforeEach(() => chmod(home, 0o700));

    it('runs under another account, and uses only the cluster that DATA_DIR names', async () => {
      const first = await start();
      expect((await stat(`/proc/${String(first.pid)}`)).uid).not.toBe(0);
      await query(first.superuserUrl, 'create table kept (n int)');
      expect(await readdir(dataDir)).not.toContain('postgres');
      await first.stop();
      const second = await start();
      expect(await query(second.superuserUrl, 'select * from kept')).toEqual([]);
      await second.stop();
      const missing = await clusterDirectory();
      await rm(dataDir, { recursive: true });
      const third = await start();
      expect(await query(third.superuserUrl, "select to_regclass('kept') as kept")).toEqual([
        { kept: null },
      ]);
      await third.stop();
      expect(await clusterDirectory()).not.toBe(missing);
      await rm(await clusterDirectory(), { recursive: true });
      const again = startEmbeddedPostgres({ dataDir });
      await expect(again).rejects.toThrow(/which is missing/);
      await rm(missing, { recursive: true });
    });
  });

async function clusterDirectory(): Promise<string> {
  try {
    const pointer = await readFile(join(dataDir, 'postgres-place.json'), 'utf8');
    return join((JSON.parse(pointer) as { directory: string }).directory, 'data');
  } catch {
    return join(dataDir, 'postgres', 'data');
  }
}

/** A process other than Postgres, with the user id of the account that runs Postgres. */
async function strangerOfTheSameUser(cluster: string): Promise<{ pid: number; kill: () => void }> {
  const { uid, gid } = await stat(cluster);
  const child = spawn('/bin/sh', ['-c', 'exec sleep 60'], {
    cwd: '/',
    ...(asRoot ? { uid, gid } : {}),
  });
  await new Promise((resolve) => child.once('spawn', resolve));
  return { pid: child.pid ?? 0, kill: () => void child.kill('SIGKILL') };
}
