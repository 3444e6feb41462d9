import { describe, expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { leafHash } from '#protocol/merkle';
import { extendTiles } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptIntake } from '#sql/admissions/intake';
import { claimPending, loadChunks, loadPending } from '#sql/admissions/pending';
import { appendEntries, lockHead, TileDamagedError } from '#sql/log/append';
import { treeSize } from '#sql/log/log';
import { type Db, type Transaction, transaction } from '#sql/db/transaction';
import { processAdmissions } from '#workers/admit/process';
import { acceptedBatch } from '../fixtures/batch-items.js';
import { openRegistry } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';

const db = useDatabase('test');

/** Runs a statement without triggers, like a change by a superuser. */
async function damage(statement: string): Promise<void> {
  await db.sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`;
    expect((await tx.unsafe(statement)).count).toBeGreaterThan(0);
  });
}

/** Flips one bit of the hash at position `at` of a tile; a second call repairs the hash. */
const flip = (level: number, index: number, at: number) =>
  damage(`
    update svc.tile set hashes = set_byte(hashes, ${at * 32}, get_byte(hashes, ${at * 32}) # 1)
    where level = ${level} and tile_index = ${index}`);

const body = (n: number) => utf8(`{"n":${n}}`);

async function append(count: number): Promise<void> {
  await transaction(db.sql, async (tx) => {
    const size = await lockHead(tx);
    const entries = Array.from({ length: count }, (_, n) => ({
      kind: 'key' as const,
      at: 0,
      body: body(size + n),
    }));
    await appendEntries(tx, size, entries);
  });
}

/** A log of `size` leaves, of which only the last `rows` have entries. */
async function growTo(size: number, rows: number): Promise<void> {
  const hashes = Array.from({ length: size }, (_, n) => leafHash(nativeSha256, body(n)));
  for (const tile of extendTiles(nativeSha256, 0, hashes, [])) {
    await db.sql`
      insert into svc.tile values (${tile.level}, ${tile.index}, ${Buffer.from(tile.hashes)})`;
  }
  await db.sql`
    insert into svc.log_entry (leaf_index, kind, at, body)
    select n, 3, now(), convert_to('{"n":' || n || '}', 'UTF8')
    from generate_series(${size - rows}::bigint, ${size - 1}) as n`;
  await damage(`update svc.log_head set tree_size = ${size}`);
}

async function expectTiles(size: number): Promise<void> {
  const hashes = Array.from({ length: size }, (_, n) => leafHash(nativeSha256, body(n)));
  const tiles = extendTiles(nativeSha256, 0, hashes, []);
  const stored = await db.sql<{ level: number; tile_index: number; hashes: Buffer }[]>`
    select level, tile_index, hashes from svc.tile order by level, tile_index`;
  expect(stored.map((row) => [row.level, row.tile_index, row.hashes.toString('hex')])).toEqual(
    tiles.map((tile) => [tile.level, tile.index, Buffer.from(tile.hashes).toString('hex')]),
  );
}

async function expectRefused(appending: Promise<void>, tile: string): Promise<void> {
  // The append may reject before `expect` attaches its handler.
  appending.catch(() => undefined);
  const before = await treeSize(db.sql);
  await expect(appending).rejects.toThrow(TileDamagedError);
  await expect(appending).rejects.toThrow(tile);
  expect(await treeSize(db.sql)).toBe(before);
  const behind = await db.sql`select from svc.log_entry where leaf_index >= ${before}`;
  expect(behind).toHaveLength(0);
}

describe('append to the log fails, and succeeds after a repair,', () => {
  it.each([0, 60, 99])('when hash %i of the tile that it would extend is wrong', async (at) => {
    await append(100);
    await flip(0, 0, at);
    await expectRefused(append(1), 'tile 0/0');
    await expectRefused(append(200), 'tile 0/0');
    await flip(0, 0, at);
    await append(200);
    await expectTiles(300);
  });

  it.each([
    ['is gone', 'delete from svc.tile where level = 0 and tile_index = 1'],
    ['is too short', 'update svc.tile set hashes = substring(hashes for 64) where tile_index = 1'],
    ['is too long', `update svc.tile set hashes = hashes || sha256('x') where tile_index = 1`],
  ])('when the tile that it would extend %s', async (_, statement) => {
    await append(300);
    await damage(statement);
    await expectRefused(append(1), 'tile 0/1');
  });

  it('when a log entry under the tile that it would extend was altered', async () => {
    await append(300);
    await damage(`update svc.log_entry set body = 'other' where leaf_index = 299`);
    await expectRefused(append(1), 'tile 0/1');
    await damage(`delete from svc.log_entry where leaf_index = 299`);
    await expectRefused(append(1), 'tile 0/1');
  });

  it('when a tile was altered after an earlier append checked it', async () => {
    await append(100);
    await append(20);
    await flip(0, 0, 60);
    await expectRefused(append(1), 'tile 0/0');
    await flip(0, 0, 60);
    await append(1);
    await damage(`update svc.tile set hashes = substring(hashes for 3200) where level = 0`);
    await expectRefused(append(1), 'tile 0/0');
  });

  it('when the log has lost leaves after an earlier append checked the tile', async () => {
    await append(100);
    await append(1);
    await damage(`update svc.log_head set tree_size = 50`);
    await damage(`delete from svc.log_entry where leaf_index >= 50`);
    await damage(`update svc.tile set hashes = substring(hashes for 3200) where level = 0`);
    await expectRefused(append(1), 'tile 0/0');
  });

  it('when an entry was altered after an earlier check and the append fills its tile', async () => {
    await append(100);
    await append(20);
    await damage(`update svc.log_entry set body = 'other' where leaf_index = 10`);
    await append(1);
    await expectRefused(append(200), 'tile 0/0');
  });

  it('when a hash of a tile above the leaves is wrong and the append fills that tile', async () => {
    const size = 65_535;
    await growTo(size, 255);
    await flip(1, 0, 3);
    await expectRefused(append(1), 'tile 1/0');
    await flip(1, 0, 3);
    await flip(0, 3, 77); // a tile below must match its hash above
    await expectRefused(append(1), 'tile 1/0');
    await flip(0, 3, 77);
    await append(2);
    await expectTiles(size + 2);
  });
});

it('processAdmissions > leaves an admission pending while the tiles are damaged, and commits it after a repair', async () => {
  const registry = await openRegistry(db);
  await registry.admitAll([registry.item()]);
  const items = [registry.item(), registry.item()];
  const ids = items.map((item) => item.proofId);
  await acceptIntake(registry.engine, items);
  await flip(0, 0, 1);
  await expect(processAdmissions(registry.admit, ids)).rejects.toThrow(TileDamagedError);
  expect((await registry.readOutcomes(ids)).size).toBe(0);
  await flip(0, 0, 1);
  await processAdmissions(registry.admit, ids);
  const settled = await registry.readOutcomes(ids);
  expect(ids.map((id) => settled.get(id)?.state)).toEqual(['proved', 'proved']);
  await registry.verifyAll();
  const failed = await db.sql`select from svc.verdict where outcome = 'fail'`;
  expect(failed).toHaveLength(0);
});

it('claimPending > claims nothing outside a transaction, where a claim would lose the admission', async () => {
  const registry = await openRegistry(db);
  const item = registry.item();
  await acceptIntake(registry.engine, [item]);
  const batch = await acceptedBatch(registry, 2);
  const worker = registry.admit.sql;
  const pending = [
    ...(await loadPending(worker, [item.proofId, ...batch.ids])),
    ...(await loadChunks(worker, batch.ids, 10)),
  ];
  const claim = (tx: Transaction) => claimPending(tx, pending);
  const connection = await worker.reserve();
  expect((await claim(connection)).size).toBe(0);
  connection.release();
  expect([...(await transaction(worker, claim))].sort()).toEqual(
    [item.proofId, ...batch.ids].sort(),
  );
});

it('loadPending > skips admissions that another worker has loaded until its transaction ends, and blocks no claim', async () => {
  const registry = await openRegistry(db);
  const [first, second] = [registry.item(), registry.item()];
  await acceptIntake(registry.engine, [first, second]);
  const worker = registry.admit.sql;
  const idsIn = async (tx: Db, ids: string[]) =>
    (await loadPending(tx, ids)).map(({ proofId }) => proofId);
  const both = [first.proofId, second.proofId].sort();
  await transaction(worker, async (tx) => {
    expect(await idsIn(tx, [first.proofId])).toEqual([first.proofId]);
    expect(await idsIn(worker, both)).toEqual([second.proofId]);
  });
  expect(await idsIn(worker, both)).toEqual(both);
  await transaction(worker, async (tx) => {
    await loadPending(tx, both);
    const claim = (other: Transaction) =>
      claimPending(other, [{ proofId: first.proofId, chunkId: null }]);
    expect((await transaction(worker, claim)).size).toBe(1);
  });
});
