import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { PageReader } from '#api/public/snapshot/pages';
import { Snapshot } from '#api/public/snapshot/snapshot';
import { directorySource } from '#api/public/snapshot/source';
import { fromHex, toHex } from '#protocol/bytes';
import { mapKey } from '#protocol/map/nodes';
import { decodeRefs, encodeRefs, type PageRef } from '#protocol/map/page';
import { pageIdOf, pagePath } from '#protocol/snapshot/location';
import { formatTime, parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { TestSnapshot } from '../../fixtures/snapshot.js';

/** A snapshot with pages below the head, as a public API server loads it. */
async function opened() {
  const world = new TestSnapshot();
  const ids = world.registry.addProofs(300);
  world.registry.verify();
  await world.publisher().runCycle();
  const { poller } = world.publicServer();
  await poller.refresh();
  return { world, ids, served: poller.current! };
}

it('pages > never lead to another value when an origin replaces a page and every digest above it', async () => {
  const { world, ids, served } = await opened();
  const { location } = served.opened;
  const head = pageIdOf(location.map)!;
  const refs = decodeRefs(head.level, readFileSync(join(world.directory, pagePath(head))));
  const [first, second] = refs as [PageRef, PageRef];
  // The head keeps its root, but names the second page where the first one belongs.
  const bytes = encodeRefs(head.level, [{ ...first, digest: second.digest }, ...refs.slice(1)]);
  const digest = nativeSha256(bytes);
  const file = join(world.directory, pagePath({ digest }));
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, bytes);
  const lying = { ...location, map: { level: head.level, digest: toHex(digest) } };
  const pages = new PageReader(directorySource(world.directory));
  const snapshot = await Snapshot.load(pages, served.bytes, { ...served.opened, location: lying });
  const find = async (id: string) =>
    snapshot.find({ map: 'map_root', key: mapKey('proof', fromHex(id)) });
  await expect(find(ids[0]!)).rejects.toThrow('another root');
  expect(await find(ids.at(-1)!)).not.toBeNull();
  await world.close();
});

it('snapshot > is valid for at most 24 hours after the last expiry scan, whatever its entry states', async () => {
  const { world, served } = await opened();
  const { snapshot } = served.opened;
  const [log] = snapshot.logs;
  const expired_through = formatTime(parseTime(log!.expired_through) - 24 * 60 * 60_000);
  const stale = {
    ...served.opened,
    snapshot: { ...snapshot, logs: [{ ...log!, expired_through }] },
  };
  const pages = new PageReader(directorySource(world.directory));
  const loaded = await Snapshot.load(pages, served.bytes, stale);
  expect(loaded.validUntil).toBe(parseTime(log!.expired_through));
  expect(served.validUntil).toBeGreaterThan(loaded.validUntil);
  await world.close();
});
