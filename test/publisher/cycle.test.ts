import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { equalBytes, toBase64, toBase64Url, toHex } from '#protocol/bytes';
import { entryBytes } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { decodeLeaves, decodeRefs, encodeLeaves, encodeRefs } from '#protocol/map/page';
import { encodeLocation, LOCATION_PATH, pagePath, pageIdOf } from '#protocol/snapshot/location';
import { delegationToSign } from '#protocol/state/log-keys';
import { decodeProof, encodeProof, proofMapKey } from '#protocol/state/record';
import { rootFromTiles, tilePath } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { ORIGIN, testKey, type TestKey } from '../fixtures/snapshot.js';
import { fatalErrorOf } from '../fixtures/sql-publisher.js';
import { useSnapshot } from '../fixtures/use-registry.js';

const snapshot = useSnapshot();
const read = (path: string): Buffer => readFileSync(join(snapshot.directory, path));
describe('publish cycle', () => {
  it('publishes the leaves up to the last verdict entry, under a checkpoint over every leaf', async () => {
    const { registry } = snapshot;
    const [first] = snapshot.grow(3);
    const unverified = registry.addProof();
    expect(await snapshot.publisher().runCycle()).toMatchObject({
      outcome: 'published',
      generation: 7,
      treeSize: 6,
      newLeaves: 6,
    });
    const published = await snapshot.published();
    expect(published.status(first!)).toBe('VALID');
    expect(published.status(unverified)).toBeNull();
    expect(published.opened.checkpoint.size).toBe(8);
    expect(published.opened.snapshot).toMatchObject({ max_merge_delay: 60 });
  });

  it('reports the snapshot as current until the log has another verdict entry or a share changes', async () => {
    const { registry } = snapshot;
    const publisher = snapshot.publisher();
    const [proof = ''] = snapshot.grow(1);
    expect(await publisher.isCurrent()).toBe(false);
    for (const change of [() => snapshot.grow(1), () => registry.share('proof', proof)]) {
      await publisher.runCycle();
      expect(await publisher.isCurrent()).toBe(true);
      change();
      expect(await publisher.isCurrent()).toBe(false);
    }
    await publisher.runCycle();
    await publisher.close();
    expect(await publisher.isCurrent()).toBe(false);
  });

  it('waits for a verdict entry', async () => {
    snapshot.registry.addProof();
    expect(await snapshot.publisher().runCycle()).toEqual({ outcome: 'waiting' });
    expect(await snapshot.registry.checkpoints()).toHaveLength(0);
  });

  it('stops at a first verdict entry with a wrong root, even in a log that follows a retired log', async () => {
    const { registry } = snapshot;
    registry.addProof();
    registry.endLog('test.example/old');
    vi.spyOn(registry, 'root').mockReturnValueOnce(new Uint8Array(32));
    registry.verify();
    const { code, message } = await fatalErrorOf(snapshot.publisher().runCycle());
    expect(code).toBe('tree_mismatch');
    expect(message).toContain('does not have the root in the verdict entry at leaf');
  });

  it('skips the snapshot entries of the retired log when a new log continues it', async () => {
    const { registry } = snapshot;
    const [root, time] = [toBase64(new Uint8Array(32)), formatTime(snapshot.clock.now())];
    const log = { shard: 0, origin: 'test.example/old', size: 1, root, lookup_from: 0 };
    const validity = { time, valid_until: formatTime(snapshot.clock.now() + 1000) };
    const entry = entryBytes({
      ...{ type: 'snapshot', ...validity, max_merge_delay: 60 },
      ...{ logs: [{ ...log, expired_through: time }], map_root: root, shares_root: root },
    });
    for (let i = 0; i < 600; i++) registry.addEntry(entry);
    registry.endLog('test.example/old');
    snapshot.grow(1);
    const reads: string[] = [];
    registry.onCall = (name) => reads.push(name);
    const publisher = snapshot.publisher({ chunkLeaves: 256 });
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    expect(reads.filter((name) => name === 'entries').length).toBeLessThan(10);
  });

  it('writes a log that can be verified from its files at every published size', async () => {
    const publisher = snapshot.publisher({ chunkLeaves: 256 });
    const sizes: number[] = [];
    for (const count of [1, 3, 250, 1, 1, 300, 600]) {
      snapshot.grow(count);
      await publisher.runCycle();
      const { opened } = await snapshot.published();
      sizes.push(opened.checkpoint.size);
    }
    for (const earlier of sizes) {
      await rootFromTiles(nativeSha256, earlier, (level, index, width) =>
        Promise.resolve(read(tilePath(level, index, width))),
      );
    }
  });

  it('appends no snapshot entry to an idle log until the log has a new verdict entry', async () => {
    const { registry, clock } = snapshot;
    snapshot.grow(5);
    const publisher = snapshot.publisher();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    const { size } = registry;
    const { files } = publisher.written();
    clock.at += 60_000;
    expect(await publisher.runCycle()).toEqual({ outcome: 'unchanged', generation: size - 1 });
    expect(publisher.written().files).toBe(files);
    expect(registry.size).toBe(size);
    registry.verify();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', changedRecords: 0 });
    const { opened } = await snapshot.published();
    expect(opened.validUntil).toBe(clock.at + 15 * 60_000);
  });

  it('publishes revocations, failures, repairs, expiries and compromises of published proofs', async () => {
    const { registry, clock } = snapshot;
    const ids = registry.addProofs(5);
    const ending = registry.addProof({
      validUntil: {
        proof: null,
        passport: '2026-11-20T12:00:30.000Z',
        certificate: null,
        trust: null,
      },
    });
    registry.verify();
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    registry.revoke(ids[0]!);
    registry.revoke(ids[1]!, 'passport');
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
    registry.recordVerdict(ids[2]!, { outcome: 'fail' });
    clock.at += 60_000;
    registry.verify();
    expect(await publisher.runCycle()).toMatchObject({ changedRecords: 3 });
    let published = await snapshot.published();
    const statuses = (of: string) =>
      (['proof', 'passport', 'certificate', 'trust'] as const).map((kind) =>
        published.status(of, kind),
      );
    expect(statuses(ids[0]!)).toEqual(Array(4).fill('REVOKED'));
    expect(statuses(ids[1]!)).toEqual(['VALID', 'REVOKED', 'REVOKED', 'REVOKED']);
    expect(statuses(ids[2]!)).toEqual(Array(4).fill('BACKEND_LOOKUP_REQUIRED'));
    expect(statuses(ending)).toEqual(['VALID', 'EXPIRED', 'EXPIRED', 'EXPIRED']);

    registry.recordVerdict(ids[2]!, { outcome: 'pass' });
    registry.addKeyEntry('compromise', published.proof(ids[4]!)!.leafIndex);
    registry.verify();
    await publisher.runCycle();
    published = await snapshot.published();
    expect(published.status(ids[2]!)).toBe('VALID');
    expect(published.status(ids[4]!)).toBe('BACKEND_LOOKUP_REQUIRED');
  });

  it('rebuilds lost and damaged pages of the maps from the log', async () => {
    const { registry } = snapshot;
    const ids = snapshot.grow(700);
    const token = registry.share('proof', ids[0]!);
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const files = snapshot.pages();
    rmSync(files[0]!);
    writeFileSync(files[1]!, 'damaged');
    registry.verify();
    for (const id of ids) registry.revoke(id, 'trust');
    registry.verify();
    await publisher.close();
    expect(await snapshot.publisher().runCycle()).toMatchObject({ outcome: 'published' });
    const published = await snapshot.published();
    expect(published.share(token)).toMatchObject({ id: ids[0] });
    expect(published.status(ids[699]!, 'trust')).toBe('REVOKED');
  });

  it('writes a lost page again, even if no change affects the page', async () => {
    snapshot.grow(700);
    await snapshot.publishOnce();
    const { location } = (await snapshot.published()).opened;
    const head = join(snapshot.directory, pagePath(pageIdOf(location.map)!));
    const leaf = snapshot.pages().find((path) => path !== head)!;
    rmSync(leaf);
    expect(await snapshot.publisher().runCycle()).toMatchObject({ outcome: 'unchanged' });
    await snapshot.published();
  });

  it('reports the published snapshot after a restart, although nothing has changed', async () => {
    snapshot.grow(3);
    await snapshot.publishOnce();
    const { index } = (await snapshot.published()).opened;
    const reported: number[] = [];
    const publisher = snapshot.publisher({ onPublished: (opened) => reported.push(opened.index) });
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
    expect(reported).toEqual([index]);
  });

  it('continues after a cycle that took longer than the validity of its snapshot', async () => {
    const { registry, clock } = snapshot;
    const ids = snapshot.grow(1100);
    registry.onCall = (what) => {
      if (what === 'shareChangesSince') clock.at += 16 * 60_000;
    };
    const publisher = snapshot.publisher();
    await expect(publisher.runCycle()).rejects.toThrow('took longer');
    registry.onCall = () => undefined;
    registry.verify();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', changedRecords: 0 });
    expect((await snapshot.published()).status(ids[0]!)).toBe('VALID');
  });

  it('never lowers `lookup_from`', async () => {
    const { registry } = snapshot;
    snapshot.grow(10);
    const first = snapshot.publisher({ recentLookupLimit: 4 });
    await first.runCycle();
    expect((await snapshot.published()).log).toMatchObject({ size: 13, lookup_from: 9 });
    await first.close();
    registry.verify();
    await snapshot.publisher({ recentLookupLimit: 100 }).runCycle();
    expect((await snapshot.published()).log).toMatchObject({ size: 15, lookup_from: 9 });
  });
});

it('restarted publisher > counts the proofs of each delegated key from its activation on', async () => {
  const { registry } = snapshot;
  const [root, other, key] = [testKey(), testKey(), testKey()];
  const idOf = ({ publicKey }: TestKey): string => jwkThumbprint(nativeSha256, publicKey);
  const activate = (use: 'aep' | 'aep_root', activated: TestKey, more: object = {}) => {
    const names = { key_id: idOf(activated), public_key: toBase64Url(activated.publicKey) };
    const change = { change: 'activate' as const, time: formatTime(snapshot.clock.at) };
    registry.addEntry(entryBytes({ type: 'key', use, ...change, ...names, ...more }));
  };
  const delegate = (to: TestKey): void => {
    const limits = { root_key_id: idOf(root), until_index: 1000, max_proofs: 3 };
    const sig = toBase64(root.sign(delegationToSign(ORIGIN, idOf(to), limits)));
    activate('aep', to, { delegation: { ...limits, sig } });
  };
  activate('aep_root', root);
  delegate(other);
  // A proof that names a key before its activation does not verify, and does not count for `max_proofs`.
  registry.addProof({ keyId: idOf(key) });
  delegate(key);
  registry.addProof({ keyId: idOf(key) });
  registry.verify();
  await snapshot.publishOnce();
  const [, third, fourth] = [2, 3, 4].map(() => registry.addProof({ keyId: idOf(key) }));
  registry.verify();
  await snapshot.publishOnce();
  const published = await snapshot.published();
  expect(published.status(third!)).toBe('VALID');
  expect(published.status(fourth!)).toBe('BACKEND_LOOKUP_REQUIRED');
});

it('restarted publisher > signs no record from a page that was replaced together with its digest', async () => {
  const { directory, registry } = snapshot;
  const ids = snapshot.grow(300);
  const [hidden, other] = ids.slice(-2);
  registry.revoke(hidden!);
  registry.verify();
  await snapshot.publishOnce();
  const { location } = (await snapshot.published()).opened;
  const head = pageIdOf(location.map)!;
  const refs = decodeRefs(head.level, read(pagePath(head)));
  const put = (bytes: Uint8Array): { digest: Uint8Array } => {
    const page = { digest: nativeSha256(bytes) };
    mkdirSync(dirname(join(directory, pagePath(page))), { recursive: true });
    writeFileSync(join(directory, pagePath(page)), bytes);
    return page;
  };
  // A page is named by the hash of its bytes. Only the root in the page above determines the page's items.
  const lying = refs.map((ref) => {
    const leaves = decodeLeaves(nativeSha256, read(pagePath(ref)));
    const changed = leaves.map((leaf) => {
      if (!equalBytes(leaf.key, proofMapKey(hidden!))) return leaf;
      return { ...leaf, record: encodeProof({ ...decodeProof(leaf.record), revoked: 0 }) };
    });
    return { ...ref, ...put(encodeLeaves(changed)) };
  });
  const { digest } = put(encodeRefs(head.level, lying));
  const map = { level: head.level, digest: toHex(digest) };
  writeFileSync(join(directory, LOCATION_PATH), encodeLocation({ ...location, map }));
  registry.revoke(other!);
  registry.verify();
  await snapshot.publishOnce();
  const published = await snapshot.published();
  expect(published.status(hidden!)).toBe('REVOKED');
  expect(published.status(other!)).toBe('REVOKED');
});

describe('snapshot entry of another process', () => {
  it.each([
    ['is appended after the publisher read the tree', 'another publisher appended', 0],
    ['replaces the last leaf that the publisher read', 'leaves changed', 1],
  ])('is covered by no checkpoint when it %s', async (_, message, replaced) => {
    const { registry } = snapshot;
    snapshot.grow(3);
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const { snapshot: entry } = (await snapshot.published()).opened;
    snapshot.grow(3);
    const { length } = await registry.checkpoints();
    registry.onCall = (what) => {
      if (what !== 'appendSnapshot') return;
      if (replaced > 0) registry.truncate(registry.size - replaced);
      registry.addEntry(entryBytes(entry));
    };
    await expect(publisher.runCycle()).rejects.toThrow(message);
    expect(await registry.checkpoints()).toHaveLength(length);
    registry.onCall = () => undefined;
  });

  const hidden = { snapshotEntriesFrom: () => Promise.resolve([]) };
  const empty = toBase64(nativeSha256(new Uint8Array(0)));
  const old = { size: 0, root: empty, lookup_from: 0 };
  const early = { expired_through: '2026-11-20T11:00:00.000Z' };
  const grown = () => ({ size: snapshot.registry.size, root: toBase64(snapshot.registry.root()) });
  it.each<[string, () => object, object, string, isLast?: boolean]>([
    ['has a map that differs from the log', grown, {}, 'states a map root that differs'],
    ['names the root of another tree', () => ({ root: empty }), {}, 'does not have'],
    ['is about an older tree', () => old, {}, 'below the published'],
    ['hides expiries', () => early, {}, 'expired_through'],
    ['is hidden in the database', () => ({}), hidden, 'not `snapshot`'],
    [
      'follows the last verdict entry and is hidden in the database',
      () => ({}),
      hidden,
      'not `snapshot`',
      true,
    ],
  ])(
    'is covered by no checkpoint when it %s',
    async (_, members, queries, message, isLast = false) => {
      const { registry } = snapshot;
      snapshot.grow(3);
      const publisher = snapshot.publisher();
      await publisher.runCycle();
      const { length } = await registry.checkpoints();
      const { snapshot: entry } = (await snapshot.published()).opened;
      if (isLast) registry.verify();
      else snapshot.grow(3);
      registry.addEntry(entryBytes({ ...entry, logs: [{ ...entry.logs[0]!, ...members() }] }));
      if (!isLast) snapshot.grow(300);
      Object.assign(registry, queries);
      const stopped = publisher.runCycle();
      await expect(stopped).rejects.toThrow(message);
      await expect(stopped).rejects.toMatchObject({ code: 'map_mismatch' });
      expect(await registry.checkpoints()).toHaveLength(length);
    },
  );

  it('is ignored when no reader accepts it', async () => {
    const { registry } = snapshot;
    snapshot.grow(3);
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const { snapshot: entry } = (await snapshot.published()).opened;
    const logs = [{ ...entry.logs[0]!, origin: 'another.example/log' }];
    registry.addEntry(entryBytes({ ...entry, logs }));
    registry.addEntry(Buffer.from('{"type":"snapshot"}'));
    registry.verify();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    await snapshot.published(['entry_ignored', 'entry_ignored']);
  });

  it('delays checkpoints until it expires if its map of shares was not stored', async () => {
    const { registry, clock } = snapshot;
    const [id] = snapshot.grow(1);
    registry.share('proof', id!);
    const elsewhere = join(snapshot.directory, 'elsewhere');
    const first = snapshot.publisher({
      directory: elsewhere,
      step: (path, write) =>
        path === 'checkpoint' ? Promise.reject(new Error('the host failed')) : write(),
    });
    registry.onCall = (what) => {
      if (what === 'insertCheckpoint') throw new Error('the host failed');
    };
    await expect(first.runCycle()).rejects.toThrow('the host failed');
    await first.close();
    registry.onCall = () => undefined;
    registry.share('proof', id!);
    registry.verify();
    const checkpoints = (await registry.checkpoints()).length;
    const second = snapshot.publisher();
    await expect(second.runCycle()).rejects.toThrow('until then no checkpoint is signed');
    expect(await registry.checkpoints()).toHaveLength(checkpoints);
    clock.at += 15 * 60_000;
    registry.verify();
    expect(await second.runCycle()).toMatchObject({ outcome: 'published' });
    await snapshot.published();
  });
});
