import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { statusEntryBytes } from '#protocol/entries';
import { CompactRange, leafHash } from '#protocol/merkle';
import { extendTiles } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { entryRows, treeSize } from '#sql/log/log';
import { verifiedPrefix, insertVerdicts, verdictsForLeaves } from '#sql/log/verdicts';
import { NO_KEYS, appendIfKeyEntry } from '#workers/verify/keys';
import { scrub } from '#workers/verify/scrub';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { tampering } from '../fixtures/tampering.js';

let db: TestDatabase;
let registry: TestRegistry;

beforeEach(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterEach(() => db.drop());

const { leafOf, outcomeOf, tamper } = tampering(() => ({ db, registry }));

describe('flipped bit of a tile', () => {
  const flip = (level: number, at: number, tileIndex = 0) =>
    tamper(
      `update svc.tile set hashes = set_byte(hashes, ${at}, get_byte(hashes, ${at}) # 1)
       where level = ${level} and tile_index = ${tileIndex}`,
      [],
    );

  it('fails its leaf', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await flip(0, (await leafOf(ids[1]!)) * 32);
    await registry.verifyAll();
    expect(await outcomeOf(ids[1]!)).toBe('fail');
  });

  it('fails every leaf under a tile above the leaves', async () => {
    const ids = await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await flip(1, 3);
    await registry.verifyAll();
    expect(await outcomeOf(ids[0]!)).toBe('fail');
    expect(await outcomeOf(ids[299]!)).toBe('fail');
  });

  it('fails only its leaf in a full tile', async () => {
    const ids = await registry.admitAll(Array.from({ length: 520 }, () => registry.item()));
    const at = await leafOf(ids[299]!);
    await flip(0, (at - 256) * 32, 1);
    await registry.verifyAll();
    expect(await outcomeOf(ids[299]!)).toBe('fail');
    for (const id of [ids[298]!, ids[300]!, ids[519]!]) expect(await outcomeOf(id)).toBe('pass');
  });

  it('fails new leaves when it hits a verified one', async () => {
    const before = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    const [id = ''] = await registry.admitAll([registry.item()]);
    await flip(0, (await leafOf(before[1]!)) * 32);
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('fails new leaves when it hits a full tile above the leaves', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    const body = statusEntryBytes({
      proof_id: id,
      artifact_kind: 'trust',
      reason_hash: '0'.repeat(64),
      time: formatTime(0),
    });
    const [key, proof] = await entryRows(registry.engine, 0, 2);
    const keysDigest = appendIfKeyEntry(NO_KEYS, 0, key!.bytes).digest;
    const [verified, size] = [65_530, 65_540];
    const leaf = leafHash(nativeSha256, body);
    const hashes = [key, proof].map((entry) => leafHash(nativeSha256, entry!.bytes));
    while (hashes.length < size) hashes.push(leaf);
    await tamper('delete from svc.tile', []);
    for (const { level, index, hashes: bytes } of extendTiles(nativeSha256, 0, hashes, [])) {
      await db.sql`insert into svc.tile values (${level}, ${index}, ${Buffer.from(bytes)})`;
    }
    await db.sql`
      insert into svc.log_entry (leaf_index, kind, proof_id, at, body)
      select at, 2, ${id}::uuid, now(), ${Buffer.from(body)}
      from generate_series(${verified}::bigint, ${size - 1}) as at`;
    await tamper(`update svc.log_head set tree_size = ${size}`, []);
    const range = new CompactRange(nativeSha256);
    for (const hash of hashes.slice(0, verified)) range.append(hash);
    await insertVerdicts(registry.verify.sql, [
      {
        prefix: { subtrees: Buffer.concat(range.hashes), keysDigest },
        firstIndex: 0,
        lastIndex: verified - 1,
        treeSize: verified,
        root: range.root(),
        outcome: 'pass',
        expired: [],
        checks: [],
      },
    ]);
    await flip(1, 3 * 32);
    await registry.verifyAll();
    const verdicts = await verdictsForLeaves(registry.verify.sql, [size - 1]);
    expect(verdicts.get(size - 1)?.outcome).toBe('fail');
  });

  it('fails new leaves when the tile above them is missing, and the verifier continues', async () => {
    await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await registry.verifyAll();
    await tamper('delete from svc.tile where level = 1', []);
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
    expect((await verifiedPrefix(registry.verify.sql))?.treeSize).toBe(
      await treeSize(registry.engine),
    );
  });

  it('fails verified leaves when their tile is missing', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper('delete from svc.tile', []);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('fails a verified leaf when it is scrubbed', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    await flip(0, (await leafOf(ids[1]!)) * 32);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[1]!)).toBe('fail');
  });
});
