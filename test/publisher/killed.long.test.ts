import { mkdtempSync, rmSync } from 'node:fs';
import { cp, readdir, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { formatVkey } from '#protocol/note';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import type { KillPoint } from '../fixtures/dying-publisher.js';
import { EventfulRegistry } from '../fixtures/eventful-registry.js';
import { runDyingPublisher, type Fate } from '../fixtures/killed-publisher.js';
import { readPublished, type PublishedSnapshot } from '../fixtures/published.js';
import { ORIGIN } from '../fixtures/snapshot.js';
import { publicServerOver, sqlPublisher } from '../fixtures/sql-publisher.js';

/**
 * A publish cycle with every kind of change, on a real database and directory. The snapshot is verified
 * from outside after each write. A publisher process is killed around the writes to the database, and
 * around the first and last files; public API servers read what is left, and another publisher takes over.
 */

const HOUR_MS = 60 * 60_000 + 1000;

const home = mkdtempSync(join(tmpdir(), 'svc-killed-'));
const logKeyFile = join(home, 'log.pem');
const logKey = createSigningKey(logKeyFile);
const logVkey = formatVkey(nativeSha256, ORIGIN, logKey.publicKey);
/** The published state before the cycle. */
const baseline = join(home, 'baseline');

let template: TestDatabase;
const opened: TestDatabase[] = [];
let before: PublishedSnapshot;
/** The files that a cycle which nothing interrupts writes, in order. */
let writes: string[];
let after: PublishedSnapshot;

const published = (directory: string) => readPublished({ directory, logVkey });

beforeAll(async () => {
  const db = await freshDatabase();
  template = db;
  const world = await EventfulRegistry.open(db);
  const publisher = sqlPublisher(db.as('svc_publisher', 1), {
    directory: baseline,
    logKey,
    snapshotTtlMs: 15 * 60_000,
  });
  await world.begin(() => publisher.runCycle());
  await publisher.close();
  before = await published(baseline);
  await world.goOn();
  await db.close();
  const run = await killed(null);
  if (!('lived' in run.fate)) throw new Error(JSON.stringify(run.fate));
  writes = run.fate.lived.writes;
  after = await published(run.directory);
}, 120_000);
afterEach(async () => {
  for (const db of opened.splice(0)) await db.drop();
});
afterAll(async () => {
  await template.drop();
  rmSync(home, { recursive: true });
});

interface Killed {
  db: TestDatabase;
  directory: string;
  fate: Fate;
}

/** A copy of the database, which must have no connections. */
async function copyOfTemplate(): Promise<TestDatabase> {
  const [last = await freshDatabase()] = opened;
  await last.sql`
    select pg_terminate_backend(pid) from pg_stat_activity where datname = ${template.name}`;
  const db = await freshDatabase(template.name);
  opened.push(db, ...(opened.includes(last) ? [] : [last]));
  return db;
}

let runs = 0;

/** Runs cycles on copies of the database and of the published directory. */
async function killed(kill: KillPoint | null, cycles = [Date.now()]): Promise<Killed> {
  const directory = join(home, `run-${String(runs++)}`);
  await cp(baseline, directory, { recursive: true });
  const db = await copyOfTemplate();
  const databaseUrl = db.urlFor('svc_publisher');
  const fate = await runDyingPublisher({
    databaseUrl,
    logKeyFile,
    origin: ORIGIN,
    directory,
    kill,
    at: cycles,
  });
  return { db, directory, fate };
}

/** The content of the snapshot, without its entry and times. */
const contentOf = ({ records, shares, log }: PublishedSnapshot) => [log.size, records, shares];

/** The published state, verified as by a client, is either that before the cycle or that after it. */
async function requireConsistent({ directory }: Pick<Killed, 'directory'>): Promise<void> {
  const found = await published(directory);
  expect([contentOf(before), contentOf(after)]).toContainEqual(contentOf(found));
  const server = publicServerOver(directory, { logKey });
  await server.poller.refresh();
  expect(server.poller.rejection).toBeNull();
  expect(server.poller.current?.generation).toBe(found.opened.index);
  server.close();
}

/** Another publisher waits for the lock of the dead one, and then completes the cycle. */
async function requireTakenOver({ db, directory }: Killed): Promise<void> {
  const next = sqlPublisher(db.as('svc_publisher', 1), {
    directory,
    logKey,
    snapshotTtlMs: 15 * 60_000,
  });
  expect(await next.runCycle()).toEqual({ outcome: 'standby' });
  const past = new Date(Date.now() - 60_000);
  await utimes(join(directory, '.lock'), past, past);
  // The dead one's database lock ends when the server notices the closed connection.
  await expect.poll(() => next.runCycle()).not.toEqual({ outcome: 'standby' });
  await next.close();
  const found = await published(directory);
  expect(contentOf(found)).toEqual(contentOf(after));
  expect(await readdir(join(directory, '.staging'))).toEqual([]);
}

async function requireSurvived(run: Killed): Promise<void> {
  expect(run.fate).toEqual({ signal: 'SIGKILL' });
  await requireConsistent(run);
  await requireTakenOver(run);
}

describe('publish cycle', () => {
  it('writes pages first, then the log, its checkpoint, and the location of the snapshot', () => {
    expect(writes.slice(-2)).toEqual(['checkpoint', 'lookup/snapshot']);
    const kinds = writes.map((path) => path.split('/')[0]);
    expect(kinds.lastIndexOf('map')).toBeLessThan(kinds.indexOf('.next-shares'));
    expect(writes.filter((path) => path.startsWith('tile/0/'))).not.toEqual([]);
  });

  it('of this test includes every kind of change', () => {
    expect(before.shares).not.toEqual(after.shares);
    const statuses = (of: PublishedSnapshot) =>
      new Set([...of.records.keys()].map((key) => of.status(key.slice(2), 'certificate')));
    expect([...statuses(after)]).toEqual(
      expect.arrayContaining(['VERIFIED', 'REVOKED', 'BACKEND_LOOKUP_REQUIRED']),
    );
  });
});

it('each write of a publish cycle > leaves a snapshot that can be verified from outside', async () => {
  const directory = join(home, 'step-by-step');
  await cp(baseline, directory, { recursive: true });
  const db = await copyOfTemplate();
  const publisher = sqlPublisher(db.as('svc_publisher', 1), {
    directory,
    logKey,
    snapshotTtlMs: 15 * 60_000,
    step: async (path, write) => {
      await write();
      const { size } = (await published(directory)).log;
      expect(size).toBe((path === 'lookup/snapshot' ? after : before).log.size);
    },
  });
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
  await publisher.close();
}, 60_000);

describe('killed publisher', () => {
  it.each([
    [0, 'half staged'],
    [2, 'staged'],
    [-3, 'in place'],
    [-2, 'in place'],
    [-1, 'half staged'],
    [-1, 'in place'],
  ] as const)(
    'leaves a consistent snapshot when killed at write %i with the file %s, and the next cycle completes',
    async (write, at) => {
      const number = (write + writes.length) % writes.length;
      await requireSurvived(await killed({ write: number, at }));
    },
    60_000,
  );

  it.each([
    ['before', 'appendSnapshot'],
    ['after', 'appendSnapshot'],
    ['before', 'insertCheckpoint'],
    ['after', 'insertCheckpoint'],
  ] as const)(
    'leaves a consistent snapshot when killed %s %s, and the next cycle completes',
    async (at, query) => {
      await requireSurvived(await killed({ query, at }));
    },
    60_000,
  );

  it('leaves every published file when killed while it removes unreferenced files', async () => {
    const now = Date.now();
    const run = await killed({ removal: 1, at: 'after' }, [now, now + HOUR_MS]);
    expect(run.fate).toEqual({ signal: 'SIGKILL' });
    await requireConsistent(run);
  }, 60_000);
});
