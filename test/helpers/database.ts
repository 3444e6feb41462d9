import { randomBytes } from 'node:crypto';
import postgres from 'postgres';
import { inject } from 'vitest';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { TEMPLATE } from './global-setup.js';

export interface TestDatabase {
  name: string;
  /** Superuser URL. */
  url: string;
  /** URL of one of the programs' roles. */
  urlFor(role: string): string;
  /** A pool as superuser, for looking behind the programs' backs. */
  sql: Pool;
  /** A pool as one of the programs' roles; closed by `drop`. */
  as(role: string): Pool;
  /** Ends every connection to it; it stays. */
  close(): Promise<void>;
  drop(): Promise<void>;
}

function withDatabase(url: string, database: string, user?: string, password?: string): string {
  const parsed = new URL(url);
  parsed.pathname = `/${database}`;
  if (user !== undefined) parsed.username = user;
  if (password !== undefined) parsed.password = password;
  return parsed.toString();
}

/**
 * A database of its own, cloned from the migrated template, or from another to which nobody is
 * connected.
 */
export async function freshDatabase(template = TEMPLATE): Promise<TestDatabase> {
  const { url, passwords } = inject('postgres');
  const name = `test_${randomBytes(6).toString('hex')}`;
  const admin = postgres(url, { max: 1, onnotice: () => undefined });
  await admin`create database ${admin(name)} template ${admin(template)}`;
  await admin.end();
  const pools: Pool[] = [];
  const open = (poolUrl: string): Pool => {
    const pool = connect(poolUrl, { application: 'test', max: 4 });
    pools.push(pool);
    return pool;
  };
  const urlFor = (role: string): string => withDatabase(url, name, role, passwords[role] ?? '');
  const close = async (): Promise<void> => {
    await Promise.all(pools.splice(0).map((pool) => pool.end({ timeout: 5 })));
  };
  return {
    name,
    close,
    url: withDatabase(url, name),
    urlFor,
    sql: open(withDatabase(url, name)),
    as: (role) => open(urlFor(role)),
    drop: async () => {
      await close();
      const owner = postgres(url, { max: 1, onnotice: () => undefined });
      await owner`drop database ${owner(name)} with (force)`;
      await owner.end();
    },
  };
}
