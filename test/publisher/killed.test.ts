import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { cp, readdir, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createPublicServer, type PublicServer } from '#api/public/server';
import { directorySource } from '#api/public/snapshot/source';
import { formatVkey } from '#protocol/note';
import type { Manifest } from '#protocol/snapshot/manifest';
import { ARTIFACT_KINDS } from '#protocol/status';
import { DatabaseLease } from '#publisher/registry/lease';
import type { Publisher } from '#publisher/publisher';
import type { WriteStep } from '#publisher/store/writer';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { recordExpiryScan } from '#sql/log/verdicts';
import type { KillPoint } from '../fixtures/dying-publisher.js';
import { EventfulRegistry } from '../fixtures/eventful-registry.js';
import { DyingPublishers, type Fate } from '../fixtures/killed-publisher.js';
import { auditSnapshot } from '../fixtures/outsider.js';
import { seenBy as facadeSees, type Seen } from '../fixtures/seen.js';
import { ORIGIN, SNAPSHOT_NAME, TestClock } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';
import { useDatabase } from '../fixtures/use-registry.js';

/**
 * A publish cycle with every kind of change, on a real database and directory. An external audit
 * verifies the snapshot after each write. A publisher process is killed around the first and last
 * writes; public API servers read the remaining files, and another publisher takes over.
 */

/** Numbers of leaves before and after the cycle: key entries, proofs, revocations. */
const BEFORE = 230;
const AFTER = 274;
/** The number of writes in the cycle; a test compares it with the recorded writes. */
const WRITES = 16;
/**
 * The files that the janitor removes an hour later: 8 partial tiles and bundles, 9 merged index
 * segments, 3 files of packages whose records all changed, and the old keys.
 */
const REMOVALS = 21;
const HOUR_MS = 60 * 60_000 + 1000;

const home = mkdtempSync(join(tmpdir(), 'svc-killed-'));
const logKey = createSigningKey(join(home, 'log.pem'));
const snapshotKey = createSigningKey(join(home, 'snapshot.pem'));
const logVkey = formatVkey(nativeSha256, ORIGIN, logKey.publicKey);
const snapshotVkey = formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey);
/** The published state before the cycle, and after an uninterrupted cycle. */
const baseline = join(home, 'baseline');
const reference = join(home, 'reference');
const clock = new TestClock(Date.now());
const facades: PublicServer[] = [];
const publishers: Publisher[] = [];

const db = useDatabase('file');
let world: EventfulRegistry;
let dying: DyingPublishers;
let publisherPool: Pool;
let lockPool: Pool;
let tickAt: number;
let writes: string[];
let before: Seen;
let after: Seen;

function publisherIn(directory: string, step?: WriteStep): Publisher {
  const publisher = sqlPublisher(publisherPool, {
    leases: [new DatabaseLease(lockPool)],
    directory,
    logKey,
    snapshotKey,
    clock,
    snapshotTtlMs: 15 * 60_000,
    ...(step === undefined ? {} : { step }),
  });
  publishers.push(publisher);
  return publisher;
}

/** A public API server; `errors` are the faults of published snapshots, but not their expiry. */
function facadeOn(directory: string, errors: unknown[] = []): PublicServer {
  const log = logger('facade', 'silent');
  log.error = (fields: unknown, said?: string) => {
    if (said?.includes('snapshot expired') !== true) errors.push(fields);
  };
  const snapshotSource = directorySource(directory);
  const publicServer = createPublicServer({
    snapshotSource,
    logVkey,
    snapshotVkey,
    clock,
    log,
    pollMs: 2,
  });
  facades.push(publicServer);
  return publicServer;
}

function seenBy(publicServer: PublicServer, directory: string): Promise<Seen> {
  const { old, fresh, packages, tokens } = world;
  return facadeSees(publicServer, directory, { proofs: [...old, ...fresh], packages, tokens });
}

/** Removes the checkpoint, which is all that the cycle writes to the database. */
const forgetCheckpoint = (): Promise<unknown> =>
  world.tamper(`delete from svc.checkpoint where tree_size > ${String(BEFORE)}`);

beforeAll(async () => {
  world = await EventfulRegistry.open(db);
  publisherPool = db.as('svc_publisher');
  lockPool = connect(db.urlFor('svc_publisher'), { application: 'lock', max: 1 });
  dying = new DyingPublishers({
    databaseUrl: db.urlFor('svc_publisher'),
    logKeyFile: join(home, 'log.pem'),
    snapshotKeyFile: join(home, 'snapshot.pem'),
    origin: ORIGIN,
    snapshotName: SNAPSHOT_NAME,
  });
  const publisher = publisherIn(baseline);
  await world.begin(() => {
    clock.at += 1000;
    return publisher.runCycle();
  });
  await publisher.close();
  await world.goOn();
  // So that the delayed verifier does not stop the publisher.
  await recordExpiryScan(world.registry.verify.sql, clock.at + 24 * HOUR_MS);
  before = await seenBy(facadeOn(baseline), baseline);

  tickAt = clock.at + 5000;
  clock.at = tickAt;
  await cp(baseline, reference, { recursive: true });
  const fate = await dying.run({ directory: reference, kill: null, at: [tickAt] });
  if (!('lived' in fate)) throw new Error('the publisher died without a kill');
  writes = fate.lived.writes;
  after = await seenBy(facadeOn(reference), reference);
});

afterEach(async () => {
  for (const publisher of publishers.splice(0)) await publisher.close();
  for (const publicServer of facades.splice(0)) publicServer.close();
});
afterAll(async () => {
  dying.close();
  await lockPool.end({ timeout: 5 });
  rmSync(home, { recursive: true });
});

interface Killed {
  directory: string;
  fate: Fate;
  /** A public API server that followed the directory throughout. */
  lived: PublicServer;
  errors: unknown[];
}

let runs = 0;

/** Runs the cycle on a copy of the published directory, which a public API server follows. */
async function killed(kill: KillPoint, at: number[] = [tickAt]): Promise<Killed> {
  await forgetCheckpoint();
  clock.at = at.at(-1)!;
  const directory = join(home, `run-${String(runs++)}`);
  await cp(baseline, directory, { recursive: true });
  const errors: unknown[] = [];
  const lived = facadeOn(directory, errors);
  await lived.start();
  const fate = await dying.run({ directory, kill, at });
  return { directory, fate, lived, errors };
}

/** The published state, verified as by a client, is either that before the cycle or that after it. */
async function requireConsistent({ directory, lived }: Killed): Promise<Manifest> {
  const manifest = await auditSnapshot({ directory, logVkey, snapshotVkey });
  const isAfter = manifest.tree_size !== BEFORE;
  const young = facadeOn(directory);
  for (const publicServer of [young, lived]) {
    expect(await seenBy(publicServer, directory)).toEqual(isAfter ? after : before);
    expect(publicServer.poller.current!.opened.manifest).toEqual(manifest);
  }
  return manifest;
}

/** The dead publisher's lock blocks every other one until it expires. */
async function requireLocked({ directory }: Killed): Promise<void> {
  expect(await publisherIn(directory).runCycle()).toEqual({ outcome: 'standby' });
}

/** Ages the lock of the dead publisher. */
async function passTheLocksTime({ directory }: Killed): Promise<void> {
  const past = new Date(Date.now() - 60_000);
  await utimes(join(directory, '.lock'), past, past);
}

/**
 * A publisher without knowledge of the dead one has published. The dead one's database lock ends
 * when the server notices the closed connection.
 */
async function takeOver({ directory }: Killed): Promise<Publisher> {
  const next = publisherIn(directory);
  await expect.poll(() => next.runCycle()).toMatchObject({ outcome: 'published' });
  return next;
}

async function requireSurvived(run: Killed): Promise<void> {
  expect(run.fate).toEqual({ signal: 'SIGKILL' });
  const left = await requireConsistent(run);
  await requireLocked(run);
  await passTheLocksTime(run);
  await takeOver(run);

  const repaired = await requireConsistent(run);
  expect(repaired.generation).toBeGreaterThan(left.generation);
  expect(run.errors).toEqual([]);

  // Equal to the result of an uninterrupted run, byte for byte, except for the generation.
  const uninterrupted = await auditSnapshot({ directory: reference, logVkey, snapshotVkey });
  const { generation } = repaired;
  expect(repaired).toEqual({ ...uninterrupted, generation });
  expect(await filesIn(run.directory)).toEqual(await filesIn(reference));
  expect(await readdir(join(run.directory, '.staging'))).toEqual([]);
  await rm(run.directory, { recursive: true });
}

/** All files except the manifest, staged files and the lock, by path. */
async function filesIn(directory: string): Promise<Record<string, string>> {
  const entries = await readdir(directory, { withFileTypes: true, recursive: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1))
    .filter((path) => !path.startsWith('.staging/') && path !== 'lookup/manifest');
  return Object.fromEntries(
    paths.sort().map((path) => [path, readFileSync(join(directory, path), 'hex')]),
  );
}

const pathsIn = async (directory: string): Promise<string[]> =>
  Object.keys(await filesIn(directory));

describe('publish cycle', () => {
  it('writes the checkpoint and the manifest last', () => {
    expect(writes).toHaveLength(WRITES);
    expect(writes.slice(-2)).toEqual(['checkpoint', 'lookup/manifest']);
    const tiles = writes.filter((path) => path.startsWith('tile/')).sort();
    expect(tiles).toEqual([
      'tile/0/000',
      'tile/0/001.p/18',
      'tile/1/000.p/1',
      'tile/entries/000',
      'tile/entries/001.p/18',
    ]);
  });

  it('of this test includes every kind of change', async () => {
    const { old, fresh, packages, tokens } = world;
    const said = (seen: Seen, proofId = '') =>
      ARTIFACT_KINDS.map((kind) => seen[`${proofId} ${kind}`]);
    const admitted = ['VALID', 'PASS', 'VERIFIED', 'TRUST_ESTABLISHED'];
    for (const proofId of [old[5], old[6], old[7], old[209]]) {
      expect(said(before, proofId)).toEqual(admitted);
    }
    expect(said(after, old[5])).toEqual(Array(4).fill('REVOKED'));
    expect(said(after, old[6])).toEqual(Array(4).fill('BACKEND_LOOKUP_REQUIRED'));
    expect(said(after, old[7])).toEqual(['VALID', 'PASS', 'REVOKED', 'REVOKED']);
    expect(said(after, old[209])).toEqual(['VALID', 'EXPIRED', 'EXPIRED', 'EXPIRED']);
    expect(said(before, fresh[0])).toEqual(Array(4).fill('NOT_FOUND'));
    expect(said(after, fresh[0])).toEqual(admitted);
    expect(said(after, fresh[40])).toEqual(['VALID', 'NOT_FOUND', 'NOT_FOUND', 'NOT_FOUND']);

    expect(packages.map((id) => after[id])).toEqual([
      'REVOKED',
      'BACKEND_LOOKUP_REQUIRED',
      'REVOKED',
      'TRUST_ESTABLISHED',
    ]);
    expect(
      tokens.map((token) => [before[token] === after[token], after[token] === 'over']),
    ).toEqual([
      [true, false],
      [false, true],
      ...Array<boolean[]>(4).fill([true, false]),
      [false, false],
      [false, true],
    ]);
    const { index_parts: pins } = await auditSnapshot({
      directory: reference,
      logVkey,
      snapshotVkey,
    });
    const entries = (kind: string) =>
      pins.filter((pin) => pin.kind === kind).map((pin) => pin.entries);
    // The last proof with a new verdict occurs once in the merged segments.
    expect(entries('proof')).toEqual([169, 104]);
    expect(entries('package')).toEqual([4]);
    expect(entries('share')).toEqual([8]);
  });
});

describe('each write of a publish cycle', () => {
  it('leaves a snapshot that passes a full external audit', async () => {
    await forgetCheckpoint();
    const directory = join(home, 'step-by-step');
    await cp(baseline, directory, { recursive: true });
    let seen = 0;
    const publisher = publisherIn(directory, async (_path, write) => {
      await write();
      const { tree_size: size } = await auditSnapshot({ directory, logVkey, snapshotVkey });
      expect(size).toBe(++seen === WRITES ? AFTER : BEFORE);
    });
    clock.at = tickAt;
    await publisher.runCycle();
    expect(seen).toBe(WRITES);
  });
});

describe('killed publisher', () => {
  it.each([
    [0, 'half staged'],
    [4, 'staged'],
    [WRITES - 3, 'in place'],
    [WRITES - 2, 'in place'],
    [WRITES - 1, 'half staged'],
    [WRITES - 1, 'in place'],
  ] as const)(
    'leaves a consistent snapshot when killed at write %i with the file %s, and the next cycle completes',
    async (write, at) => {
      await requireSurvived(await killed({ write, at }));
    },
  );

  it.each(['before', 'after'] as const)(
    'leaves a consistent snapshot when killed %s the checkpoint commit, and the next cycle completes',
    async (checkpoint) => {
      const run = await killed({ checkpoint });
      const rows = await db.sql`select from svc.checkpoint where tree_size > ${BEFORE}`;
      expect(rows).toHaveLength(checkpoint === 'after' ? 1 : 0);
      expect(await filesIn(run.directory)).toEqual(await filesIn(baseline));
      await requireSurvived(run);
    },
  );

  it('leaves every published file when killed while it removes unreferenced files', async () => {
    const run = await killed({ removal: 10, at: 'after' }, [tickAt, tickAt + HOUR_MS]);
    expect(run.fate).toEqual({ signal: 'SIGKILL' });
    await requireConsistent(run);
    await passTheLocksTime(run);
    // The next publisher does not know since when the remaining files are unreferenced.
    const next = await takeOver(run);
    const left = (await pathsIn(reference)).length - REMOVALS;
    expect((await pathsIn(run.directory)).length).toBeGreaterThanOrEqual(left);
    clock.at += HOUR_MS;
    await next.runCycle();
    expect(await pathsIn(run.directory)).toHaveLength(left);
    await requireConsistent(run);
    expect(run.errors).toEqual([]);
  });
});
