import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseEntry } from '#protocol/entries';
import { formatVkey } from '#protocol/note';
import type { VerdictEntry } from '#protocol/schemas/log-entry';
import { DatabaseLease } from '#publisher/registry/lease';
import { publisherReadiness } from '#publisher/publisher';
import { nativeSha256 } from '#runtime/crypto/node';
import { runAdmin } from '#programs/admin/main';
import { connect } from '#runtime/postgres/connect';
import { treeSize, verdictEntries } from '#sql/log/log';
import { recordHeartbeat } from '#sql/ops/queries';
import { adminOn, type AdminLine } from '../fixtures/admin.js';
import { beforeRow, freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { checked } from '../fixtures/damaged-copies.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { ORIGIN, testKey } from '../fixtures/snapshot.js';
import { fatalErrorOf, servePublic, sqlPublisher } from '../fixtures/sql-publisher.js';
import { pinning } from '../fixtures/pins.js';
import { testFolder } from '../fixtures/test-folder.js';

/** An operator restores a backup older than the last publication, following docs/runbooks.md. */

const NEXT_ORIGIN = 'test.example/next/log';
const home = await testFolder();
const published = join(home, 'public');
const keys = { logKey: testKey() };
const vkey = formatVkey(nativeSha256, ORIGIN, keys.logKey.publicKey);

let original: TestDatabase;
let restored: TestDatabase;
let registry: TestRegistry;
let admin: AdminLine;
let kept: string[];
let lost: string[];
/** Number of leaves that both databases have, and number of published leaves. */
let common: number;
let publishedSize: number;

const checkpointSize = () =>
  Number(readFileSync(join(published, 'checkpoint'), 'utf8').split('\n')[1]);

async function lastVerdict(): Promise<VerdictEntry> {
  const [row] = await verdictEntries(restored.sql, Number.MAX_SAFE_INTEGER, 1);
  return parseEntry(row!.body) as VerdictEntry;
}

const admitted = (on: TestRegistry, count: number) =>
  on.admitAll(Array.from({ length: count }, () => on.item()));

async function publishOriginal(): Promise<void> {
  const publisher = publisherOn({}, original);
  await publisher.runCycle();
  await publisher.close();
}

beforeAll(async () => {
  original = await freshDatabase();
  const before = await openRegistry(original);
  kept = await admitted(before, 5);
  await before.reportAll();
  await publishOriginal();
  common = checkpointSize();
  await original.close();
  restored = await freshDatabase(original.name);

  const running = await openRegistry(original, { existing: before });
  lost = await admitted(running, 300);
  await running.reportAll();
  await publishOriginal();
  publishedSize = checkpointSize();

  registry = await openRegistry(restored, { existing: before });
  admin = adminOn(restored);
}, 60_000);
afterAll(async () => {
  await original.drop();
  await restored.drop();
});

const publisherOn = (overrides: Partial<Parameters<typeof sqlPublisher>[1]> = {}, db = restored) =>
  sqlPublisher(db.as('svc_publisher', 1), { directory: published, ...keys, ...overrides });

/** Records the result of a publish cycle like the publisher program. */
async function recordPublisher(went: (of: ReturnType<typeof publisherReadiness>) => void) {
  const readiness = publisherReadiness();
  went(readiness);
  const { details } = readiness.find();
  await recordHeartbeat(restored.as('svc_publisher'), randomUUID(), details);
}

const end = (origin: string, reason = 'a test') =>
  admin('log', 'end', origin, '--reason', reason, '--confirm', origin);

interface Lost {
  published: number;
  common: number;
  only_in_database: number;
  lost: { leaf_index: number; type: string; proof_id: string; time: string }[];
}

describe('restored database that lacks published leaves', () => {
  it('is rejected by the publisher with an error that names the next step, before and after new leaves are appended', async () => {
    const publisher = publisherOn();
    expect((await fatalErrorOf(publisher.runCycle())).code).toBe('database_behind');
    // Engines and workers do not detect the loss, and append admissions that exist only in this database.
    kept.push(...(await admitted(registry, 2)));
    await registry.reportAll();
    const { message } = await fatalErrorOf(publisher.runCycle());
    expect(message).toMatch(/admin -- log lost/);
    expect(message).toMatch(/admin -- log end/);
    await publisher.close();
  });

  it('admin log lost > lists the missing proofs from the published files', async () => {
    const { code, json } = await admin('log', 'lost', published, '--vkey', vkey);
    const found = json as Lost;
    expect(code).toBe(1);
    const only_in_database = (await treeSize(restored.sql)) - common;
    expect(found).toMatchObject({ published: publishedSize, common, only_in_database });
    const proofs = found.lost.filter(({ type }) => type === 'proof');
    expect(proofs.map((leaf) => leaf.proof_id)).toEqual(lost);
    expect(proofs[0]).toMatchObject({ leaf_index: common });
    expect(found.lost).toHaveLength(publishedSize - common);
  });

  it('admin log lost > prints each leaf when it is read, so that a list of any length needs little memory', async () => {
    const env = { DATABASE_URL: restored.urlFor('svc_admin') };
    for (const isTerminal of [true, false]) {
      const texts: string[] = [];
      const out = (text: string) => void texts.push(text);
      const line = ['log', 'lost', published, '--vkey', vkey];
      expect(await runAdmin(line, { out, err: out, isTerminal }, env)).toBe(1);
      expect(texts.filter((text) => text.includes(lost[0]!))).toHaveLength(1);
      expect(texts.length).toBeGreaterThan(publishedSize - common);
      expect(Math.max(...texts.map(({ length }) => length))).toBeLessThan(1_000);
    }
  });

  it('admin log lost > states on a terminal that nothing is lost', async () => {
    const onTerminal = adminOn(original, { isTerminal: true });
    const { code, out } = await onTerminal('log', 'lost', published, '--vkey', vkey);
    expect([code, out.split('\n').at(-2)]).toEqual([0, 'lost  none']);
  });

  it('admin log end > fails until a publisher has recorded the loss', async () => {
    const { code, err } = await end(ORIGIN);
    expect(code).toBe(1);
    expect(err).toContain('no publisher has reported a loss of published leaves');
    const stopping = publisherOn();
    const stopped = await fatalErrorOf(stopping.runCycle());
    await stopping.close();
    await recordPublisher((publisher) => publisher.failed(stopped, 1));
    const counts = { newLeaves: 0, changedRecords: 0, shareChanges: 0 };
    const report = { outcome: 'published', generation: 1, treeSize: 6, ...counts } as const;
    await recordPublisher((publisher) => publisher.went(report, 1));
    // A publisher has published since, so the recorded loss no longer counts.
    expect((await end(ORIGIN)).err).toContain('no publisher has reported a loss');
    expect(await restored.sql`select from svc.ended_log`).toHaveLength(0);
    await recordPublisher((publisher) => publisher.failed(stopped, 1));
  });

  it("admin log end > requires the log's name and no running publisher", async () => {
    expect((await end('test.example/other')).err).toContain('is not test.example/other');
    const claim = new DatabaseLease(
      connect(restored.urlFor('svc_publisher'), { application: 'lock', max: 1 }),
    );
    expect(await claim.take()).toBe(true);
    const running = await end(ORIGIN);
    expect(running.err).toContain('a publisher is running');
    await claim.release();
  });

  it('admin log end > has time to move millions of checkpoints', async () => {
    const timeout = `raise exception '%', current_setting('statement_timeout');`;
    const repair = await beforeRow(restored, 'insert on svc.ended_log', timeout);
    expect((await end(ORIGIN)).err).toContain('30min');
    await repair();
  });

  it('admin log end > records the end, after which no publisher can sign for the log', async () => {
    const ended = await end(ORIGIN, '300 leaves lost with db1');
    expect(ended).toMatchObject({
      code: 0,
      json: { origin: ORIGIN, last_checkpoint_known: common },
    });
    const [record] = (await admin('audit', 'list', '--limit', '1')).json as { act: string }[];
    expect(record).toMatchObject({ act: 'log end', object: 'ended_log' });
    const empty = publisherOn({ directory: join(home, 'empty') });
    expect((await fatalErrorOf(empty.runCycle())).code).toBe('log_ended');
    await empty.close();
    // A publisher that skips the check cannot sign either.
    await expect(restored.as('svc_publisher')`
      insert into svc.checkpoint (tree_size, root, note)
      select tree_size, root, note from (select 8::bigint as tree_size, decode(repeat('00', 32), 'hex') as root,
        ${`${ORIGIN}\n8\n`} as note) as forged`).rejects.toThrow(/is retired/);
    expect(await restored.sql`select from svc.ended_checkpoint`).toHaveLength(1);
    await expect(restored.sql`delete from svc.ended_checkpoint`).rejects.toThrow(/append-only/);
  });

  it('continues under a new log name: kept and new proofs are valid, and lost proofs are not found', async () => {
    const logKey = testKey();
    const directory = join(home, 'next');
    const publisher = publisherOn({ origin: NEXT_ORIGIN, logKey, directory });
    // The verdict entries so far are signed for the old log.
    expect(await publisher.runCycle()).toEqual({ outcome: 'waiting' });
    await expect(registry.reportAll()).rejects.toThrow(`LOG_ORIGIN is ${ORIGIN}, which is retired`);
    registry.verify.signer = { ...registry.verify.signer!, origin: NEXT_ORIGIN };
    const publishAll = async () => {
      await registry.reportAll();
      const published = { outcome: 'published', treeSize: await treeSize(restored.sql) };
      expect(await publisher.runCycle()).toMatchObject(published);
    };
    const covered = await treeSize(restored.sql);
    await publishAll();
    expect(await lastVerdict()).toMatchObject({ previous: null, to: covered });
    kept.push(...(await admitted(registry, 1)));
    await publishAll();
    expect(await lastVerdict()).toMatchObject({ previous: covered });
    await publisher.close();
    const logVkey = formatVkey(nativeSha256, NEXT_ORIGIN, logKey.publicKey);
    const server = await servePublic(directory, { logKey }, { logVkey });
    const answer = async (id: string) =>
      (await fetch(`${server.url}/api/public/verify/proof/${id}`)).json();
    const valid = { verification: { verification_status: 'VALID' } };
    for (const id of kept) expect(await answer(id)).toMatchObject(valid);
    expect(await answer(lost[0]!)).toMatchObject({ verification_status: 'NOT_FOUND' });
    await server.close();
    await registry.verifyAll();
    const env = {
      DATABASE_URL: restored.urlFor('svc_fsck'),
      DATA_DIR: home,
      SNAPSHOT_DIR: directory,
      ...pinning(logVkey),
    };
    expect(await checked(env)).toMatchObject({ code: 0, findings: [] });
  });
});
