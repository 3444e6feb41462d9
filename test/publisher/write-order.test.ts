import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { EventfulRegistry } from '../fixtures/eventful-registry.js';
import { readPublished, type PublishedSnapshot } from '../fixtures/published.js';
import { sqlPublisher, testKeys, vkeysOf } from '../fixtures/sql-publisher.js';
import { testFolder } from '../fixtures/test-folder.js';

/**
 * A publish cycle with every kind of change, on a real database and directory. The test verifies the snapshot with
 * public data after each write, which shows that the snapshot stays valid wherever the publisher is killed.
 * The fault scenario "publisher killed at each write" kills the process.
 */

const home = await testFolder();
const directory = join(home, 'public');
const keys = testKeys();

let db: TestDatabase;
/** The files that the cycle writes, in order, and what a client verifies after each write. */
const writes: string[] = [];
const found: PublishedSnapshot[] = [];
let before: PublishedSnapshot;
let after: PublishedSnapshot;

const published = () => readPublished({ directory, logVkey: vkeysOf(keys).logVkey });

beforeAll(async () => {
  db = await freshDatabase();
  const world = await EventfulRegistry.open(db);
  let isExamined = false;
  const publisher = sqlPublisher(db.as('svc_publisher', 1), {
    directory,
    ...keys,
    snapshotTtlMs: 15 * 60_000,
    step: async (path, write) => {
      await write();
      if (!isExamined) return;
      writes.push(path);
      found.push(await published());
    },
  });
  await world.begin(() => publisher.runCycle());
  before = await published();
  await world.addEvents();
  isExamined = true;
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
  await publisher.close();
  after = await published();
}, 120_000);
afterAll(() => db.drop());

describe('publish cycle', () => {
  it('writes pages first, then the log, its checkpoint, and the location of the snapshot', () => {
    expect(writes.slice(-2)).toEqual(['checkpoint', 'lookup/snapshot']);
    const kinds = writes.map((path) => path.split('/')[0]);
    expect(kinds.lastIndexOf('map')).toBeLessThan(kinds.indexOf('.next-shares'));
    expect(writes.filter((path) => path.startsWith('tile/0/'))).not.toEqual([]);
  });

  it('changes shares and statuses in the cycle whose writes are checked', () => {
    expect(before.shares).not.toEqual(after.shares);
    const statuses = (of: PublishedSnapshot) =>
      new Set([...of.records.keys()].map((key) => of.status(key.slice(2), 'certificate')));
    expect([...statuses(after)]).toEqual(
      expect.arrayContaining(['VERIFIED', 'REVOKED', 'BACKEND_LOOKUP_REQUIRED']),
    );
  });

  it('leaves the old or the new snapshot, complete, after each write', () => {
    const contentOf = ({ records, shares, log }: PublishedSnapshot) => [log.size, records, shares];
    for (const [i, path] of writes.entries()) {
      const expected = path === 'lookup/snapshot' ? after : before;
      expect([path, contentOf(found[i]!)]).toEqual([path, contentOf(expected)]);
    }
  });
});
