import { randomBytes } from 'node:crypto';
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { inject } from 'vitest';
import { check } from '#programs/fsck/main';
import type { FsckResult } from '#fsck/options';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';

/** A copy of a sound registry and its snapshot, for one thing to be damaged in. */
export interface Planted {
  /** As superuser, with no trigger in the way. */
  damage(statements: string): Promise<void>;
  sql: Pool;
  directory: string;
  file(path: string): string;
}

export interface Checked {
  code: number;
  /** Codes of corruption, each as often as it was found; the others are notices. */
  corrupt: Record<string, number>;
  notices: Record<string, number>;
  findings: FsckResult['findings'];
  document: Record<string, unknown>;
  err: string;
}

/** Copies are made of a database that nobody is connected to. */
export class Plantation {
  private readonly names: string[] = [];
  private readonly folders: string[] = [];
  private readonly pools: Pool[] = [];

  constructor(
    private readonly sound: {
      database: string;
      directory: string;
      logVkey: string;
      snapshotVkey: string;
    },
  ) {}

  async copy(): Promise<Planted & { env: Record<string, string> }> {
    const { url, passwords } = inject('postgres');
    const name = `test_${randomBytes(6).toString('hex')}`;
    const admin = postgres(url, { max: 1, onnotice: () => undefined });
    await admin`create database ${admin(name)} template ${admin(this.sound.database)}`;
    await admin.end();
    this.names.push(name);
    const home = await mkdtemp(join(tmpdir(), 'svc-planted-'));
    this.folders.push(home);
    const directory = join(home, 'public');
    await cp(this.sound.directory, directory, { recursive: true, preserveTimestamps: true });
    const at = (user?: string): string => {
      const parsed = new URL(url);
      parsed.pathname = `/${name}`;
      if (user !== undefined) Object.assign(parsed, { username: user, password: passwords[user] });
      return parsed.toString();
    };
    const sql = connect(at(), { application: 'test', max: 1 });
    this.pools.push(sql);
    return {
      sql,
      directory,
      file: (path) => join(directory, path),
      damage: async (statements) => {
        await sql.begin(async (tx) => {
          await tx`set local session_replication_role = replica`;
          await tx.unsafe(statements);
        });
      },
      env: {
        DATABASE_URL: at('svc_fsck'),
        SNAPSHOT_DIR: directory,
        DATA_DIR: home,
        LOG_VKEY: this.sound.logVkey,
        SNAPSHOT_VKEY: this.sound.snapshotVkey,
        SNAPSHOT_TTL: '60s',
      },
    };
  }

  /** Takes the copies away that were made so far. */
  async clear(): Promise<void> {
    await Promise.all(this.pools.splice(0).map((pool) => pool.end({ timeout: 5 })));
    const admin = postgres(inject('postgres').url, { max: 1, onnotice: () => undefined });
    for (const name of this.names.splice(0)) {
      await admin`drop database ${admin(name)} with (force)`;
    }
    await admin.end();
    for (const folder of this.folders.splice(0)) await rm(folder, { recursive: true });
  }
}

/** Runs the program over a copy, as its command line would. */
export async function checked(env: Record<string, string>, ...line: string[]): Promise<Checked> {
  let [out, err] = ['', ''];
  const code = await check(
    ['--json', ...line],
    { out: (text) => (out += text), err: (text) => (err += text) },
    env,
  );
  const document = (out === '' ? {} : JSON.parse(out)) as Record<string, unknown>;
  const findings = (document['findings'] ?? []) as FsckResult['findings'];
  const counts = (document['counts'] ?? {}) as Record<string, number>;
  const isGrave = (name: string): boolean => findings.some((one) => one.code === name && one.grave);
  const some = (grave: boolean) =>
    Object.fromEntries(Object.entries(counts).filter(([name]) => isGrave(name) === grave));
  return { code, corrupt: some(true), notices: some(false), findings, document, err };
}

export async function flipped(path: string, offset: number): Promise<Buffer> {
  const bytes = await readFile(path);
  const at = offset < 0 ? bytes.length + offset : offset;
  bytes[at] = bytes[at]! ^ 1;
  return bytes;
}
