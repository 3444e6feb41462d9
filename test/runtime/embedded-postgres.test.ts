import { execFileSync, spawn } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  type EmbeddedPostgres,
  EmbeddedPostgresError,
  startEmbeddedPostgres,
} from '#runtime/embedded/start';

const asRoot = process.getuid?.() === 0;

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const sql = postgres(url, { max: 1, connect_timeout: 5, onnotice: () => undefined });
  try {
    return [...(await sql.unsafe(text))];
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Waits until no process has this id. */
async function gone(pid: number): Promise<boolean> {
  for (let i = 0; i < 200; i += 1) {
    try {
      process.kill(pid, 0);
    } catch {
      return true;
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  return false;
}

let home: string;
let dataDir: string;
/** A directory whose DATA_DIR has an unused, stopped cluster. */
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

async function start(settings?: Record<string, string>): Promise<EmbeddedPostgres> {
  const database = await startEmbeddedPostgres({ dataDir, ...(settings ? { settings } : {}) });
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

    // A start cancelled at the server's first output leaves it stopped.
    const stop = new AbortController();
    const log = { debug: () => stop.abort(), info: () => undefined };
    const broken = startEmbeddedPostgres({ dataDir, log, signal: stop.signal });
    await expect(broken).rejects.toMatchObject({ name: 'AbortError' });
    expect(await readdir(await clusterDirectory())).not.toContain('postmaster.pid');

    const second = await start();
    expect(await query(second.superuserUrl, 'select n from kept')).toEqual([{ n: 42 }]);
    expect(second.rolePassword('svc_engine')).toBe(first.rolePassword('svc_engine'));
  });

  it('stores its password in a private file', async () => {
    await startFromMade();
    const { mode } = await stat(join(dataDir, 'postgres-password'));
    expect(mode & 0o777).toBe(0o600);
    const password = (await readFile(join(dataDir, 'postgres-password'), 'utf8')).trim();
    expect(password).toMatch(/^[\w-]{32}$/);
  });

  it('reports the exit of a crashed server, and recovers committed data', async () => {
    const first = await startFromMade();
    await query(first.superuserUrl, 'create table kept (n int); insert into kept values (7)');
    process.kill(first.pid, 'SIGKILL');
    expect(await first.exited).toMatchObject({ signal: 'SIGKILL', expected: false });

    const second = await start();
    expect(await query(second.superuserUrl, 'select n from kept')).toEqual([{ n: 7 }]);
  });

  it('starts when another process has the recorded process id of a dead server', async () => {
    const first = await startFromMade();
    process.kill(first.pid, 'SIGKILL');
    await first.exited;
    const place = await clusterDirectory();
    const pidFile = join(place, 'postmaster.pid');
    const lines = (await readFile(pidFile, 'utf8')).split('\n');
    const { pid: stranger, kill } = await strangerOfTheSameUser(place);
    try {
      lines[0] = String(stranger);
      await writeFile(pidFile, lines.join('\n'));
      const second = await start();
      expect(await query(second.superuserUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
    } finally {
      kill();
    }
  });

  it('rejects a second server on the same directory and leaves the first running', async () => {
    const first = await startFromMade();
    const second = startEmbeddedPostgres({ dataDir });
    await expect(second).rejects.toMatchObject({ code: 'already_running' });
    await expect(second).rejects.toThrow(String(first.pid));
    expect(await query(first.superuserUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  it('does not create an empty database when the password of an existing one is lost', async () => {
    const first = await startFromMade();
    await first.stop();
    await rm(join(dataDir, 'postgres-password'));
    await expect(startEmbeddedPostgres({ dataDir })).rejects.toMatchObject({
      code: 'password_missing',
    });
  });

  it('ignores a cluster whose creation was interrupted', async () => {
    await mkdir(join(dataDir, 'postgres', 'data.0123456789ab', 'base'), { recursive: true });
    const database = await start();
    expect(await query(database.superuserUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
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
    expect(await gone(pid)).toBe(true);
    await start();
  });
});

// Only root can run it under another account.
if (asRoot)
  describe('embedded Postgres, started by root below a private home', () => {
    beforeEach(() => chmod(home, 0o700));

    it('runs under another account and finds its cluster again through DATA_DIR', async () => {
      const first = await start();
      const owner = await stat(`/proc/${String(first.pid)}`);
      expect(owner.uid).not.toBe(0);
      await query(first.superuserUrl, 'create table kept (n int)');
      expect(await readdir(dataDir)).not.toContain('postgres');
      await first.stop();
      const second = await start();
      expect(await query(second.superuserUrl, 'select * from kept')).toEqual([]);
    });

    it('never reuses the cluster of a removed DATA_DIR', async () => {
      const first = await start();
      await query(first.superuserUrl, 'create table kept (n int)');
      await first.stop();
      await rm(dataDir, { recursive: true });
      const second = await start();
      expect(await query(second.superuserUrl, "select to_regclass('kept') as kept")).toEqual([
        { kept: null },
      ]);
    });

    it('reports that the cluster named in DATA_DIR is missing', async () => {
      const first = await start();
      await first.stop();
      await rm(await clusterDirectory(), { recursive: true });
      const again = startEmbeddedPostgres({ dataDir });
      await expect(again).rejects.toBeInstanceOf(EmbeddedPostgresError);
      await expect(again).rejects.toMatchObject({ code: 'cluster_missing' });
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

/** A process other than Postgres, of the user that runs Postgres. */
async function strangerOfTheSameUser(cluster: string): Promise<{ pid: number; kill: () => void }> {
  const { uid, gid } = await stat(cluster);
  const child = spawn('/bin/sh', ['-c', 'exec sleep 60'], {
    cwd: '/',
    ...(asRoot ? { uid, gid } : {}),
  });
  await new Promise((resolve) => child.once('spawn', resolve));
  return { pid: child.pid ?? 0, kill: () => void child.kill('SIGKILL') };
}
