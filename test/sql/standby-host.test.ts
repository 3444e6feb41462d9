import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { assertDatabase } from '#programs/database';
import { migrateDatabase } from '#programs/migrate-database';
import { connect, type ConnectOptions } from '#runtime/postgres/connect';
import { logger } from '#runtime/process/log';
import { openAdmitQueue } from '#runtime/queue/queues';
import { adminWith } from '../fixtures/admin.js';
import { checked } from '../fixtures/damaged-copies.js';
import { pinning } from '../fixtures/pins.js';
import { logKey } from '../fixtures/public-log.js';
import { replicatedDatabase, type ReplicatedDatabase } from '../fixtures/replicated.js';
import { firstHostDown, twoHosts } from '../fixtures/two-hosts.js';

let db: ReplicatedDatabase;
/** A URL with the standby as the first host, as after an outage of the primary. */
const standbyFirst = (url: string) =>
  url.replace('@', `@${new URL(db.standbyUrlFor('svc_engine')).host},`);
const urlFor = (role: string) => standbyFirst(db.primary.urlFor(role));
beforeAll(async () => {
  db = await replicatedDatabase();
});
afterAll(() => db.primary.drop());

function open(options: Partial<ConnectOptions>, url = urlFor('svc_publisher')) {
  const sql = connect(url, { application: 'test', max: 4, ...options });
  onTestFinished(() => sql.end());
  return sql;
}

it.each([
  ['a standby', standbyFirst],
  ['down', firstHostDown],
])('connect > fails no statement while the first of two hosts is %s', async (_, withFirst) => {
  const sql = open({}, withFirst(db.primary.urlFor('svc_publisher')));
  const answers = await Promise.all(
    Array.from({ length: 4 }, () => sql`select pg_is_in_recovery() as is, pg_sleep(0.05)`),
  );
  expect(answers.flat().map((row) => row['is'] as boolean)).toEqual([false, false, false, false]);
  const connection = await sql.reserve();
  expect(await connection`select pg_is_in_recovery() as is`).toEqual([{ is: false }]);
  connection.release();
});

it('connect > connects to the same primary after the loss of a connection', async () => {
  const standby = new URL(db.standbyUrlFor('svc_publisher')).host;
  const primaryFirst = db.primary.urlFor('svc_publisher').replace(/@([^/]+)/, `@$1,${standby}`);
  const sql = open({ max: 1 }, primaryFirst);
  await expect(sql`select pg_terminate_backend(pg_backend_pid())`).rejects.toThrow('CLOSED');
  expect(await sql`select pg_is_in_recovery() as is`).toEqual([{ is: false }]);
});

it('connect > uses a standby for reads that accept one', async () => {
  const [row] = await open({ acceptsStandby: true })`select pg_is_in_recovery() as is`;
  expect(row).toEqual({ is: true });
});

it('connect > reports that all hosts are standbys', async () => {
  const sql = open({}, twoHosts(db.standbyUrlFor('svc_publisher')));
  await expect(assertDatabase(sql, 'publisher')).rejects.toThrow('is a standby');
});

it.each([
  ['a primary that is down', firstHostDown],
  ['no other host', (url: string) => url],
])(
  'admin status > shows the values of a standby with %s, and exits with 2',
  async (_, withFirst) => {
    const url = withFirst(db.standbyUrlFor('svc_admin'));
    const { code, json, err } = await adminWith({ DATABASE_URL: url })('status', '--json');
    expect(err).toBe('');
    expect(json).toMatchObject({ status: 'unreachable', log: { leaves: 0 } });
    const { attention } = json as { attention: { what: string }[] };
    expect(attention[0]?.what).toMatch(/^these values are from a standby: /);
    expect(attention.map(({ what }) => what).filter((one) => /connected|alive/.test(one))).toEqual(
      [],
    );
    expect(code).toBe(2);
  },
);

it('fsck > compares no snapshot with a standby, which may lag', async () => {
  const home = await mkdtemp(join(tmpdir(), 'svc-fsck-'));
  const pins = pinning(logKey('standby.example/log').vkey);
  const DATABASE_URL = db.standbyUrlFor('svc_fsck');
  const env = { DATABASE_URL, SNAPSHOT_DIR: home, DATA_DIR: home, ...pins };
  const { code, err } = await checked(env);
  expect(err).toContain('is in recovery');
  expect(code).toBe(2);
  expect((await checked(env, '--only', 'registry')).code).toBe(0);
});

it('admin status > prefers the primary', async () => {
  const { json } = await adminWith({ DATABASE_URL: urlFor('svc_admin') })('status', '--json');
  expect(json).toMatchObject({ status: 'attention', log: { leaves: 0 } });
});

it('migrateDatabase > skips a standby among several hosts', async () => {
  expect(await migrateDatabase(standbyFirst(db.primary.url))).toEqual([]);
});

it('admit queue on Postgres > skips a standby among several hosts', async () => {
  const log = logger('engine', 'silent');
  const queue = openAdmitQueue({ databaseUrl: urlFor('svc_engine'), redisUrl: null }, { log });
  onTestFinished(() => queue.close());
  const isAdded = () =>
    queue.addRevocations(['01a2282cf95170009242bb800c0d72bb']).then(
      () => true,
      () => false,
    );
  await expect.poll(isAdded, { interval: 200 }).toBe(true);
});
