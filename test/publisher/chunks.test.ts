import { beforeEach, expect, it } from 'vitest';
import { entryBytes } from '#protocol/entries';
import { formatTime } from '#protocol/time';
import { useSnapshot } from '../fixtures/use-registry.js';

/** Tests chunks of leaves that a cycle applies in parts, because their entries load too many earlier proofs. */

const snapshot = useSnapshot();
const LIMITS = { chunkLeaves: 1024, mostLeaves: 0 };

beforeEach(async () => {
  snapshot.grow(700);
  await snapshot.publishOnce(LIMITS);
});

/**
 * Appends verdict and erasure entries in one chunk, about proofs of an earlier chunk.
 *
 * @param extra entries to append to this chunk before the verdict and erasure entries
 */
function growLong(...extra: Uint8Array[]): string[] {
  const { registry } = snapshot;
  const ids = registry.addProofs(1000);
  for (const bytes of extra) registry.addEntry(bytes);
  ids.push(...registry.addProofs(700));
  for (const from of [10, 300]) {
    registry.addEntry(
      entryBytes({
        type: 'erasure',
        ranges: [[from, from + 200]],
        cause: 'erased',
        time: formatTime(snapshot.clock.now()),
      }),
    );
    registry.verify();
    ids.push(...registry.addProofs(300));
  }
  registry.verify();
  return ids;
}

it('publish cycle > writes every tile of a chunk that it applies in parts', async () => {
  const ids = growLong();
  const publisher = snapshot.publisher(LIMITS);
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
  const published = await snapshot.published();
  expect(new Set(ids.map((id) => published.status(id)))).toEqual(new Set(['VALID']));
});

it('publish cycle > stops at a hidden snapshot entry in a chunk that it applies in parts', async () => {
  const { registry } = snapshot;
  const { snapshot: entry } = (await snapshot.published()).opened;
  growLong(entryBytes(entry));
  registry.snapshotEntriesFrom = () => Promise.resolve([]);
  await expect(snapshot.publisher(LIMITS).runCycle()).rejects.toThrow('not `snapshot`');
});
