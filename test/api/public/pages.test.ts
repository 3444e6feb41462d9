import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { serialize } from 'node:v8';
import { expect, it } from 'vitest';
import { lookUp } from '#api/public/lookup/resolve';
import { verdictAnswer } from '#api/public/lookup/routes';
import { createPublicServer } from '#api/public/server';
import { PageReader, Snapshot } from '#api/public/snapshot/snapshot';
import { directorySource } from '#api/public/snapshot/source';
import { fromHex, toHex, utf8 } from '#protocol/bytes';
import { BY_PATH } from '#protocol/lookup-routes';
import { mapKey } from '#protocol/map/nodes';
import { decodeRefs, encodeRefs, type MapValue, type PageRef } from '#protocol/map/page';
import { CHECKPOINT_PATH, LOCATION_PATH, pageIdOf, pagePath } from '#protocol/snapshot/location';
import {
  aepKeyMapKey,
  decodeProof,
  encodeAepKey,
  encodeProof,
  proofMapKey,
} from '#protocol/state/record';
import { formatTime, parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { systemClock } from '#runtime/clock';
import { logger } from '#runtime/process/log';
import { DirectoryStore } from '#runtime/store/directory';
import { proofIdOf } from '../../fixtures/public-log.js';
import { refusal } from '../../fixtures/refusal.js';
import { ServedLog } from '../../fixtures/served-log.js';
import { testFolder } from '../../fixtures/test-folder.js';
import { useSnapshot } from '../../fixtures/use-registry.js';

const world = useSnapshot();
/** A snapshot with pages below the head, as a public API server loads it. */
async function opened() {
  const ids = world.grow(300);
  await world.publishOnce();
  const { poller } = world.publicServer();
  await poller.refresh();
  const pages = new PageReader(directorySource(world.directory));
  const load = (opened: Snapshot['opened']) => Snapshot.load(pages, poller.current!.bytes, opened);
  return { ids, served: poller.current!, load };
}

function found(snapshot: Snapshot, proofId: string) {
  return lookUp(snapshot, { route: BY_PATH.proof, requested: proofId }, 0).resolved!;
}

/** Opens a signed snapshot whose map contradicts its log. */
async function openedLying(lie: (values: Map<string, MapValue>) => void) {
  const log = await ServedLog.open({ isLive: true });
  await log.snapshotAll(lie);
  const directory = await testFolder();
  await log.writeTo(directory);
  const { poller, close } = createPublicServer({
    snapshotSource: directorySource(directory),
    logVkey: log.keys.log.vkey,
    clock: systemClock,
    log: logger('facade', 'silent'),
  });
  await poller.refresh();
  return { served: poller.current!, close };
}

it('map pages > return no false value when the origin replaces a page and the digests that lead to the page', async () => {
  const { ids, served, load } = await opened();
  const { location } = served.opened;
  const head = pageIdOf(location.map)!;
  const refs = decodeRefs(head.level, readFileSync(join(world.directory, pagePath(head))));
  const [first, second] = refs as [PageRef, PageRef];
  // The head keeps its root, but refers to the second page in place of the first page.
  const bytes = encodeRefs(head.level, [{ ...first, digest: second.digest }, ...refs.slice(1)]);
  const digest = nativeSha256(bytes);
  const file = join(world.directory, pagePath({ digest }));
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, bytes);
  const lying = { ...location, map: { level: head.level, digest: toHex(digest) } };
  const snapshot = await load({ ...served.opened, location: lying });
  const find = (id: string) =>
    snapshot.find({ map: 'map_root', key: mapKey('proof', fromHex(id)) });
  expect(() => find(ids[0]!)).toThrow('not match its root');
  expect(find(ids.at(-1)!)).not.toBeNull();
});

it('lookup response > has one byte per character in memory', async () => {
  const { ids, served } = await opened();
  const { body } = found(served, ids[0]!);
  // `serialize` writes a string in V8's own representation, of one or two bytes per character.
  expect(serialize(body).length).toBeLessThan(1.5 * body.length);
});

it('map pages > are rejected when the digest of a page is wrong, even if its root is right', async () => {
  const { served, load } = await opened();
  const { location } = served.opened;
  const head = pageIdOf(location.map)!;
  const file = join(world.directory, pagePath(head));
  const [first, ...others] = decodeRefs(head.level, readFileSync(file));
  // The root does not cover the last bits of a reference's key, so only the digest reveals this change.
  const key = first!.key.map((byte, at) => (at === 16 ? byte ^ 1 : byte));
  writeFileSync(file, encodeRefs(head.level, [{ ...first!, key }, ...others]));
  await expect(load(served.opened)).rejects.toThrow(`${pagePath(head)} does not match its digest`);
});

it('snapshot directory > errors name the file that cannot be read, for the public API and the publisher', async () => {
  const root = await testFolder();
  const digest = new Uint8Array(32);
  // A folder in place of a file replaces a damaged disk: the error of the read has no path either.
  for (const path of [pagePath({ digest }), CHECKPOINT_PATH, LOCATION_PATH]) {
    mkdirSync(join(root, path), { recursive: true });
  }
  const source = directorySource(root);
  const unreadable = (path: string): string => `${join(root, path)}: EISDIR`;
  expect(() => source.page({ level: 0, digest })).toThrow(unreadable(pagePath({ digest })));
  await expect(source.location()).rejects.toThrow(unreadable(LOCATION_PATH));
  await expect(source.logFile(CHECKPOINT_PATH)).rejects.toThrow(unreadable(CHECKPOINT_PATH));
  const store = new DirectoryStore(root);
  await expect(store.read(CHECKPOINT_PATH)).rejects.toThrow(unreadable(CHECKPOINT_PATH));
});

it.each<[what: string, lie: (values: Map<string, MapValue>) => void]>([
  [
    'a leaf that the snapshot does not cover',
    (values) => {
      const key = toHex(proofMapKey(proofIdOf(0)));
      const { record, history } = values.get(key)!;
      const proof = { ...decodeProof(record), leafIndex: 1_000, verdictSize: 1_001 };
      values.set(key, { record: encodeProof(proof), history });
    },
  ],
  ['a key without a record', (values) => values.delete(toHex(aepKeyMapKey(0, 0)))],
])('lookup > rejects the record of %s', async (_what, lie) => {
  const { served, close } = await openedLying(lie);
  const error = refusal(() => found(served, proofIdOf(0)));
  expect(error.code).toBe('malformed_snapshot');
  close();
});

it('snapshot > finds the records of the AEP keys of any shard', async () => {
  const { served, close } = await openedLying((values) => {
    for (const [index, compromisedFrom] of [
      [3, null],
      [4, 9],
    ] as const) {
      const life = { keyId: 'A'.repeat(43), from: index + 1, retiredFrom: null, compromisedFrom };
      const value = { record: encodeAepKey(life), history: new Uint8Array(0) };
      values.set(toHex(aepKeyMapKey(0xfff, index)), value);
    }
  });
  const found = [3, 4].map((index) => served.aepKey(0xfff, index).compromisedFrom);
  expect(found).toEqual([null, 9]);
  close();
});

it('snapshot > is valid for at most 24 hours after the last expiry scan, whatever its entry states', async () => {
  const { served, load } = await opened();
  const { snapshot } = served.opened;
  const [log] = snapshot.logs;
  const expired_through = formatTime(parseTime(log!.expired_through) - 24 * 60 * 60_000);
  const logs = [{ ...log!, expired_through }];
  const loaded = await load({ ...served.opened, snapshot: { ...snapshot, logs } });
  expect(loaded.validUntil).toBe(parseTime(log!.expired_through));
  expect(served.validUntil).toBeGreaterThan(loaded.validUntil);
});

it('lookup > sends UTF-8 when the origin of the log is not ASCII', async () => {
  const { ids, served, load } = await opened();
  const { snapshot } = served.opened;
  const logs = [{ ...snapshot.logs[0]!, origin: 'log.example/é日' }];
  const loaded = await load({ ...served.opened, snapshot: { ...snapshot, logs } });
  const resolved = found(loaded, ids[0]!);
  expect(resolved.body).toContain('é日');
  expect(verdictAnswer(BY_PATH.proof, ids[0]!, resolved).body).toEqual(utf8(resolved.body));
});
