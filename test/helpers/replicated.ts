import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { migrateDatabase } from '#programs/migrate-database';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { Cluster } from '../faults/cluster.js';
import type { TestDatabase } from './database.js';

/** A registry in a Postgres of its own, and a standby that streams from it. */
export interface ReplicatedDatabase {
  primary: TestDatabase;
  /** As superuser, on the standby. */
  standby: Pool;
  standbyUrlFor(role: string): string;
  /** What is committed stays unseen on the standby until `resume`. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Until the standby shows what is committed by now. */
  caughtUp(): Promise<void>;
  close(): Promise<void>;
}

export async function replicatedDatabase(): Promise<ReplicatedDatabase> {
  const dataDir = await mkdtemp(join(tmpdir(), 'svc-replicated-'));
  await chmod(dataDir, 0o755);
  const cluster = await Cluster.start(dataDir);
  await migrateDatabase(cluster.superuserUrl, (role) => cluster.rolePassword(role));
  const port = await cluster.addStandby(false);
  const pools: Pool[] = [];
  const open = (url: string): Pool => {
    const pool = connect(url, { application: 'test', max: 4 });
    pools.push(pool);
    return pool;
  };
  const onStandby = (address: string): string => {
    const url = new URL(address);
    url.port = String(port);
    return url.toString();
  };
  const standby = open(onStandby(cluster.superuserUrl));
  const close = async (): Promise<void> => {
    await Promise.all(pools.splice(0).map((pool) => pool.end({ timeout: 1 })));
    await cluster.close();
    await rm(dataDir, { recursive: true, force: true });
  };
  return {
    primary: {
      name: 'svc',
      url: cluster.superuserUrl,
      urlFor: (role) => cluster.urlFor(role),
      sql: open(cluster.superuserUrl),
      as: (role) => open(cluster.urlFor(role)),
      close: () => Promise.resolve(),
      drop: close,
    },
    standby,
    standbyUrlFor: (role) => onStandby(cluster.urlFor(role)),
    pause: async () => {
      await standby`select pg_wal_replay_pause()`;
      await until(async () => {
        const [row] = await standby<{ state: string }[]>`
          select pg_get_wal_replay_pause_state() as state`;
        return row?.state === 'paused';
      });
    },
    resume: async () => {
      await standby`select pg_wal_replay_resume()`;
    },
    caughtUp: async () => {
      const [now] = await cluster.sql<{ lsn: string }[]>`
        select pg_current_wal_insert_lsn()::text as lsn`;
      await until(async () => {
        const [row] = await standby<{ there: boolean }[]>`
          select pg_last_wal_replay_lsn() >= ${now?.lsn ?? ''}::pg_lsn as there`;
        return row?.there === true;
      });
    },
    close,
  };
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 400; tries += 1) {
    if (await isSo()) return;
    await sleep(25);
  }
  throw new Error('the standby does not come to it');
}
