import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createFacade } from '#api/public/facade';
import { directorySource } from '#api/public/snapshot/source';
import { formatVkey } from '#protocol/note';
import type { Publisher } from '#publisher/publisher';
import { FatalPublishError } from '#publisher/errors';
import { systemClock, type Clock } from '#runtime/process/clock';
import { nativeSha256 } from '#runtime/crypto/node';
import { listen } from '#runtime/http/server';
import { logger } from '#runtime/process/log';
import { packageRoot } from '#runtime/process/package-root';
import { migrateDatabase } from '#programs/migrate-database';
import postgres from 'postgres';
import { databaseOf, type Cluster } from './clusters.js';
import type { TestDatabase } from './database.js';
import { openRegistry, type TestRegistry } from './registry.js';
import { ORIGIN, SNAPSHOT_NAME, type TestKey } from './snapshot.js';
import { sqlPublisher } from './sql-publisher.js';

export interface Keys {
  logKey: TestKey;
  snapshotKey: TestKey;
}

export const vkeysOf = ({ logKey, snapshotKey }: Keys) => ({
  log: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
  snapshot: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
});

/** A fresh registry in a cluster that has none. */
export async function migrated(cluster: Cluster): Promise<void> {
  const sql = postgres(cluster.url('postgres'), { max: 1, onnotice: () => undefined });
  await sql`create database svc`;
  await sql.end();
  await migrateDatabase(cluster.url(), () => 'of no use where all are trusted');
}

/** The registry of a cluster and the publisher over it, in this process, as their own roles. */
export class Service {
  private constructor(
    readonly db: TestDatabase,
    readonly registry: TestRegistry,
    readonly publisher: Publisher,
  ) {}

  static async on(
    cluster: Pick<Cluster, 'url'>,
    options: { directory: string; goesOn?: TestRegistry } & Keys,
  ): Promise<Service> {
    const { goesOn, ...own } = options;
    const db = databaseOf(cluster);
    const registry = await openRegistry(db, goesOn === undefined ? {} : { goesOn });
    return new Service(db, registry, sqlPublisher(db.as('svc_publisher'), own));
  }

  admit(count: number): Promise<string[]> {
    const { registry } = this;
    return registry.admitAll(Array.from({ length: count }, () => registry.item()));
  }

  /** Verifies all there is and publishes it; what the tick reported. */
  async publish() {
    await this.registry.verifyAll();
    return this.publisher.runCycle();
  }

  /** Why it does not publish. */
  async stopped(): Promise<FatalPublishError> {
    const error: unknown = await this.publish().catch((reason: unknown) => reason);
    if (error instanceof FatalPublishError) return error;
    throw new Error(`expected the publisher to stop, got ${String(error)}`);
  }

  /** Which of the proofs are in the database. */
  async has(ids: readonly string[]): Promise<string[]> {
    const rows = await this.db.sql<{ id: string }[]>`
      select replace(proof_id::text, '-', '') as id from svc.proof`;
    const there = new Set(rows.map(({ id }) => id));
    return ids.filter((id) => there.has(id));
  }

  async close(): Promise<void> {
    await this.publisher.close();
    await this.db.close();
  }
}

/** What the public is told of each proof, by a facade of its own: HTTP statuses, each once. */
export async function publicStatuses(
  directory: string,
  keys: Keys,
  ids: readonly string[],
  clock: Clock = systemClock,
): Promise<number[]> {
  const vkeys = vkeysOf(keys);
  const facade = createFacade({
    snapshotSource: directorySource(directory),
    logVkey: vkeys.log,
    snapshotVkey: vkeys.snapshot,
    clock,
    log: logger('facade', 'silent'),
  });
  await facade.start();
  const server = await listen(facade.handler, { host: '127.0.0.1', port: 0 });
  const found = new Set<number>();
  for (const id of ids) {
    found.add((await fetch(`${server.url}/api/public/verify/proof/${id}`)).status);
  }
  await server.close(0);
  facade.close();
  return [...found];
}

/** `npm run fsck` on a database and what was published of it. */
export async function fsck(
  db: Pick<TestDatabase, 'urlFor'>,
  directory: string,
  vkeys: { log: string; snapshot: string },
  state: string,
): Promise<{ code: number | null; said: string }> {
  const program = join(packageRoot, 'dist/programs/fsck.js');
  const child = spawn(process.execPath, [program, '--json', '--state', state], {
    env: {
      DATABASE_URL: db.urlFor('svc_fsck'),
      SNAPSHOT_DIR: directory,
      LOG_VKEY: vkeys.log,
      SNAPSHOT_VKEY: vkeys.snapshot,
    },
  });
  let said = '';
  child.stdout.on('data', (text: Buffer) => (said += text.toString()));
  child.stderr.on('data', (text: Buffer) => (said += text.toString()));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, said };
}
