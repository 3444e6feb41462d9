import { describe, expect, it } from 'vitest';
import { toBase64, toBase64Url, utf8 } from '#protocol/bytes';
import { entryBytes } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { leafHash } from '#protocol/merkle';
import type { ErasureEntry, SnapshotEntry, VerdictEntry } from '#protocol/schemas/log-entry';
import { extendTiles } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendKeyChange } from '#sql/lifecycle/signing-keys';
import { adoptEntries, beginAdoption, finishAdoption } from '#sql/log/adopt';
import { appendEntries, lockHead } from '#sql/log/append';
import { entryRows, treeSize, appendErasure, appendSnapshot, appendVerdict } from '#sql/log/log';
import { databaseTime, transaction } from '#sql/db/transaction';
import { AdministrationError } from '#sql/tenants/audit';
import { withoutTriggers } from '../fixtures/database.js';
import { APPEND_LOCK, holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { openRegistry } from '../fixtures/registry.js';
import { useDatabase } from '../fixtures/use-registry.js';

const db = useDatabase('test');
const ROOT = toBase64(new Uint8Array(32));
const SIG = toBase64(new Uint8Array(64));

/** A registry with an active verifier key, and each function with an entry that it accepts by default. */
async function open() {
  const registry = await openRegistry(db);
  const activate = async (seed: number): Promise<string> => {
    const publicKey = nativeSha256(utf8(`key ${seed}`));
    publicKey[31]! &= 0x3f;
    const keyId = jwkThumbprint(nativeSha256, publicKey);
    const key = { use: 'verifier' as const, keyId, publicKey: toBase64Url(publicKey) };
    await appendKeyChange(registry.admin, { ...key, change: 'activate' });
    return keyId;
  };
  const keyId = await activate(1);
  const [verifier, publisher, erase] = ['svc_verifier', 'svc_publisher', 'svc_erase'].map((role) =>
    db.as(role),
  ) as [typeof registry.admin, typeof registry.admin, typeof registry.admin];
  const at = async (ms = 0) => formatTime((await databaseTime(db.sql)) + ms);
  let latest: number | null = null;
  return {
    registry,
    activate,
    keyId,
    at,
    verdict: async (given: Partial<VerdictEntry> = {}, read: number | null = latest) => {
      const now = await databaseTime(db.sql);
      const entry = {
        previous: latest,
        to: await treeSize(db.sql),
        root: ROOT,
        failed: [],
        restored: [],
        time: formatTime(now),
        expired_through: formatTime(now - 100),
        key_id: keyId,
        sig: SIG,
        ...given,
      };
      return (latest = await transaction(verifier, (tx) => appendVerdict(tx, entry, read)));
    },
    snapshot: async (
      size: number,
      { lease = '7566947, 1', ...given }: Partial<SnapshotEntry> & { lease?: string | null } = {},
    ) =>
      transaction(publisher, async (tx) => {
        if (lease !== null) await tx.unsafe(`select pg_advisory_xact_lock(${lease})`);
        const log = { shard: 0, origin: 'example.org/log', root: ROOT, lookup_from: 0 };
        return appendSnapshot(tx, {
          logs: [{ ...log, size, expired_through: await at() }],
          map_root: ROOT,
          shares_root: ROOT,
          valid_until: await at(60_000),
          max_merge_delay: 60,
          time: await at(),
          ...given,
        });
      }),
    erasure: async (ranges: [number, number][], given: Partial<ErasureEntry> = {}) => {
      const entry = { ranges, cause: 'erased' as const, time: await at(), ...given };
      return transaction(erase, (tx) => appendErasure(tx, entry));
    },
  };
}

it('append functions > extend the tiles like appendEntries, across tile boundaries', async () => {
  const { registry, verdict } = await open();
  const fill = (to: number) =>
    transaction(registry.admin, async (tx) => {
      const size = await lockHead(tx);
      const entry = { kind: 'key' as const, at: 0, body: entryBytes(someKey) };
      await appendEntries(
        tx,
        size,
        Array.from({ length: to - size }, () => entry),
      );
    });
  await fill(255);
  expect([await verdict(), await verdict(), await verdict()]).toEqual([255, 256, 257]);
  await fill(511);
  await verdict();
  await fill(600);
  const entries = await entryRows(db.sql, 0, 600);
  const hashes = entries.map(({ bytes }) => leafHash(nativeSha256, bytes));
  const tiles = extendTiles(nativeSha256, 0, hashes, []).map(({ level, index, hashes: bytes }) => ({
    level,
    index,
    hashes: Buffer.from(bytes).toString('hex'),
  }));
  expect(
    await db.sql`
      select level, tile_index as index, encode(hashes, 'hex') as hashes from svc.tile order by 1, 2`,
  ).toEqual(tiles);
  expect(tiles).toHaveLength(4);
  await withoutTriggers(db, `update svc.tile set hashes = hashes || hashes where tile_index = 2`);
  await expect(verdict()).rejects.toThrow('tile 0/2 does not match the log of 600 leaves');
});

const someKey = {
  type: 'key',
  use: 'approver',
  change: 'activate',
  registration_hash: '0'.repeat(64),
  time: formatTime(0),
} as const;

describe('svc.append_verdict', () => {
  it('rejects an entry that does not continue the last entry or exceeds the log', async () => {
    const { verdict, at, activate } = await open();
    await expect(verdict({ to: 3 })).rejects.toThrow('`to` exceeds the log');
    await expect(verdict({ previous: 0 })).rejects.toThrow('not a verdict entry');
    await expect(verdict({ key_id: 'A'.repeat(43) })).rejects.toThrow('not active');
    for (const ms of [-61_000, 61_000]) {
      const time = await at(ms);
      await expect(verdict({ time, expired_through: await at(-70_000) })).rejects.toThrow('clock');
    }
    expect(await verdict()).toBe(2);
    await expect(verdict({}, null)).rejects.toMatchObject({ code: '40001' });
    await expect(verdict({ to: 1 })).rejects.toThrow('`to` is less');
    const earlier = { expired_through: await at(-5_000) };
    await expect(verdict(earlier)).rejects.toThrow('`expired_through` is less');
    expect(await verdict({ ...earlier, key_id: await activate(2) })).toBe(4);
  });

  it('rejects one of two concurrent entries with the same previous entry', async () => {
    const { verdict } = await open();
    const release = await holdLock(db.sql, APPEND_LOCK);
    const both = Promise.allSettled([verdict(), verdict()]);
    await untilWaiting(db.sql, 2);
    await release();
    const rejected = (await both).filter((one) => one.status === 'rejected');
    expect(rejected).toMatchObject([{ reason: { code: '40001' } }]);
  });

  it('rejects malformed members', async () => {
    const { registry, at, keyId, verdict } = await open();
    await verdict();
    const append = async (given: object, length = 0): Promise<void> => {
      const entry = { schema_version: 'svc.registry.entry/1.1', type: 'verdict', time: await at() };
      const body = Buffer.from(JSON.stringify({ ...entry, ...given }).padEnd(length));
      await registry.verify.sql`select svc.append_verdict(${body}, 2)`;
    };
    const sound = {
      ...{
        to: 2,
        previous: 2,
        expired_through: await at(),
        failed: [],
        restored: [],
        key_id: keyId,
      },
    };
    const many = Array.from({ length: 501 }, (_, n) => n);
    for (const given of [
      { type: 'key' },
      { schema_version: 'svc.registry.entry/1.0' },
      { time: '2026-01-01' },
      { to: 1.5 },
      { to: '2' },
      { to: undefined },
      { previous: '2' },
      { previous: undefined },
      { expired_through: 'never' },
      { expired_through: await at(30_000) },
      { failed: null },
      { failed: many, restored: many.slice(1) },
      { key_id: registry.admit.keyId },
    ]) {
      await expect(append({ ...sound, ...given })).rejects.toMatchObject({ code: '23514' });
    }
    await expect(append(sound, 65_536)).rejects.toThrow('at most 65535 bytes');
    expect(await treeSize(db.sql)).toBe(3);
    await append(sound, 65_535);
  });
});

it('svc.append_snapshot > rejects an invalid size, time or validity, and a caller without the lease', async () => {
  const { snapshot, at } = await open();
  await expect(snapshot(3)).rejects.toThrow('exceeds the log');
  const release = await holdLock(db.sql, 'select pg_advisory_xact_lock(7566947, 1)');
  for (const lease of [null, '1, 1', '7566947, 2', '(7566947::bigint << 32) + 1']) {
    await expect(snapshot(1, { lease })).rejects.toThrow('lease');
  }
  await release();
  expect(await snapshot(1)).toBe(2);
  await expect(snapshot(0)).rejects.toThrow('`size` is less');
  await expect(snapshot(1, { time: await at(-61_000) })).rejects.toThrow('clock');
  const later = await at(86_400_000 - 30_000);
  expect(await snapshot(2, { valid_until: later })).toBe(3);
  await expect(snapshot(1)).rejects.toThrow('`size` is less');
  const [row] = await db.sql<
    [{ body: Buffer }]
  >`select body from svc.log_entry where leaf_index = 3`;
  for (const [found, put, problem] of [
    [later, await at(86_400_000 + 30_000), '`valid_until`'],
    [later, await at(-1000), '`valid_until`'],
    ['"shard":0', '"shard":1', '`size` exceeds'],
  ] as const) {
    const altered = row.body.toString().replace(found, put);
    const appended = transaction(db.as('svc_publisher'), async (tx) => {
      await tx`select pg_advisory_xact_lock(7566947, 1)`;
      await tx`select svc.append_snapshot(${Buffer.from(altered)})`;
    });
    await expect(appended).rejects.toThrow(problem);
  }
});

it('svc.append_erasure > parses the bounds of a range once, not once for each erasure', async () => {
  const { at } = await open();
  await withoutTriggers(
    db,
    `insert into svc.erasure (proof_id, leaf_index, actor, reason_ref)
     select gen_random_uuid(), 100 + 2 * n, 'a', 'r' from generate_series(0, 29) as n`,
  );
  const ranges = Array.from({ length: 30 }, (_, n): [number, number] => [100 + 2 * n, 101 + 2 * n]);
  const time = await at();
  const calls = await transaction(db.sql, async (tx) => {
    await tx`set local track_functions = 'pl'`;
    await appendErasure(tx, { ranges, cause: 'erased', time });
    const [row] = await tx<[{ calls: number }]>`
      select pg_stat_get_xact_function_calls('svc.index_in'::regproc)::int as calls`;
    return row.calls;
  });
  expect(calls).toBe(3 * ranges.length);
});

it('svc.append_erasure > rejects ranges with a leaf that is not erased', async () => {
  const { registry, erasure } = await open();
  await registry.admitAll([registry.item(), registry.item()]); // leaves 2 and 3
  await expect(erasure([[2, 3]])).rejects.toThrow('without a record of its erasure');
  const record = (leaf: number) =>
    withoutTriggers(
      db,
      `insert into svc.erasure (proof_id, leaf_index, actor, reason_ref)
       select proof_id, leaf_index, 'a', 'r' from svc.log_entry where leaf_index = ${leaf}`,
    );
  await record(2);
  await expect(erasure([[2, 4]])).rejects.toThrow('without a record of its erasure');
  await record(3);
  for (const adopted of ['(2, 3)', '(3, 4)']) {
    await withoutTriggers(
      db,
      `delete from svc.adoption; insert into svc.adoption values ${adopted}`,
    );
    await expect(erasure([[2, 4]], { cause: 'lost' })).rejects.toThrow('not lost');
  }
  expect(await erasure([[2, 3]])).toBe(4);
  const append = async (ranges: unknown, cause = 'erased') => {
    const [row] = await db.sql<
      [{ body: Buffer }]
    >`select body from svc.log_entry where leaf_index = 4`;
    const body = row.body
      .toString()
      .replace('[[2,3]]', JSON.stringify(ranges))
      .replace('"erased"', `"${cause}"`);
    await db.as('svc_erase')`select svc.append_erasure(${Buffer.from(body)})`;
  };
  for (const ranges of [[], [[3, 3]], [[2, 3], [1, 2]], [[0, 2], [1, 3]], [[2, 3, 4]]]) {
    await expect(append(ranges)).rejects.toMatchObject({ code: '23514' });
  } // prettier-ignore
  const many = Array.from({ length: 1001 }, (_, n) => [2 * n, 2 * n + 1]);
  await expect(append(many)).rejects.toThrow('expected 1 to 1000 ranges');
  await expect(append([[3, 4]], 'other')).rejects.toThrow('expected the cause');
});

it.each([4, 5, 6])('program roles > cannot insert an entry of kind %i directly', async (kind) => {
  for (const role of ['svc_worker', 'svc_admin', 'svc_verifier', 'svc_publisher', 'svc_erase']) {
    const inserted = db.as(role)`
      insert into svc.log_entry (leaf_index, at, kind, body) values (900, now(), ${kind}, 'x')`;
    await expect(inserted).rejects.toMatchObject({ code: '42501' });
  }
});

it('svc.adopt_entries > rejects times more than 60 seconds ahead of the database clock, except in a proof', async () => {
  const { at, registry } = await open();
  const adopt = (entry: object) =>
    transaction(db.as('svc_erase'), async (tx) =>
      adoptEntries(tx, await beginAdoption(tx, 'example.org/log'), [utf8(JSON.stringify(entry))]),
    );
  const [past, near, ahead] = [await at(-3_600_000), await at(30_000), await at(120_000)];
  for (const entry of [
    { type: 'key', time: ahead },
    { type: 'verdict', time: ahead, expired_through: past },
    { type: 'verdict', time: past, expired_through: ahead },
  ]) {
    const rejected = await adopt(entry).catch((error: unknown) => error);
    expect(rejected).toBeInstanceOf(AdministrationError);
    expect((rejected as Error).message).toContain(
      `the time ${ahead}, more than 60 seconds ahead of the clock of the database`,
    );
  }
  // PostgreSQL 18 reads `Z` as the name of this zone.
  const shifted = transaction(db.as('svc_erase'), async (tx) => {
    await tx`set local timezone = '<Z>-12'`;
    const entry = utf8(JSON.stringify({ type: 'key', time: ahead }));
    await adoptEntries(tx, await beginAdoption(tx, 'example.org/log'), [entry]);
  });
  await expect(shifted).rejects.toThrow('more than 60 seconds ahead');
  const size = await treeSize(db.sql);
  await adopt({ type: 'key', time: past });
  await adopt({ type: 'verdict', time: near, expired_through: near });
  await adopt({
    type: 'proof',
    proof_id: registry.item().proofId,
    effect: 'DENY',
    environment: 'sandbox',
    key_id: 'A'.repeat(43),
    aep_hash: 'ab'.repeat(32),
    proof_record_hash: 'cd'.repeat(32),
    valid_until: { proof: null },
    time: ahead,
  });
  expect(await treeSize(db.sql)).toBe(size + 3);
});

it('svc.adopt_entries > rejects entries while a publisher runs, even without svc.begin_adoption', async () => {
  await open();
  const size = await treeSize(db.sql);
  const release = await holdLock(db.sql, 'select pg_advisory_xact_lock(7566947, 1)');
  const adopted = transaction(db.as('svc_erase'), (tx) =>
    adoptEntries(tx, size, [entryBytes(someKey)]),
  );
  await expect(adopted).rejects.toThrow('a publisher is running');
  await release();
});

it('svc.finish_adoption > rejects a call while a publisher runs, and leaves that were not adopted', async () => {
  const { registry } = await open();
  const finish = (first: number) =>
    transaction(db.as('svc_erase'), (tx) => finishAdoption(tx, first));
  await registry.admitAll([registry.item()]);
  const last = (await treeSize(db.sql)) - 1;
  await expect(finish(last)).rejects.toThrow('a leaf was not adopted');
  const release = await holdLock(db.sql, 'select pg_advisory_xact_lock(7566947, 1)');
  await expect(finish(last)).rejects.toThrow('a publisher is running');
  await release();
});

it('svc.log_entry > rejects a body that no bundle of entries can hold', async () => {
  await open();
  const inserted = db.as('svc_admin')`insert into svc.log_entry (leaf_index, at, kind, body)
    values (900, now(), 3, convert_to('{"type":"key","x":"' || repeat('x', 65536) || '"}', 'UTF8'))`;
  await expect(inserted).rejects.toThrow('log_entry_body_length');
});
