import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { beforeEach, expect, it } from 'vitest';
import { Findings } from '#fsck/findings';
import type { SnapshotStore } from '#runtime/store/store';
import { bucketLike } from '../fixtures/snapshot.js';
import { useSnapshot } from '../fixtures/use-registry.js';

/** Tests failures within a running process; write-order.test.ts verifies the files after each write. */

const snapshot = useSnapshot();
const fileAt = (path: string): string | null => {
  const file = join(snapshot.directory, path);
  return existsSync(file) ? readFileSync(file, 'hex') : null;
};

beforeEach(async () => {
  const { registry } = snapshot;
  const old = snapshot.grow(260);
  registry.bundle([old[5]!, old[7]!]);
  await snapshot.publishOnce();
  // A cycle with every kind of change: full and partial tiles, pages of both maps, changed verdicts.
  registry.addProofs(300);
  registry.share('proof', old[7]!);
  registry.bundle([old[8]!]);
  registry.revoke(old[5]!);
  registry.recordVerdict(old[6]!, { outcome: 'fail' });
  registry.verify();
  snapshot.clock.at += 1000;
});

it('publisher > never exposes a partly written file', async () => {
  let reads = 0;
  const publisher = snapshot.publisher({
    step: async (path, write) => {
      const seen = new Set([fileAt(path)]);
      let writing = true;
      const written = write().finally(() => (writing = false));
      while (writing) {
        seen.add(fileAt(path));
        reads++;
        await setImmediate();
      }
      await written;
      seen.add(fileAt(path));
      expect(seen.size).toBe(2);
    },
  });
  await publisher.runCycle();
  expect(reads).toBeGreaterThan(20);
});

it('publisher > writes a lost entry bundle again only after the deletion that fsck advises', async () => {
  const path = 'tile/entries/000';
  const bundle = fileAt(path);
  expect(bundle).not.toBeNull();
  rmSync(join(snapshot.directory, path));
  await snapshot.publishOnce();
  expect(fileAt(path)).toBeNull();
  const findings = new Findings();
  findings.add('bundle_missing', path, '');
  const { advice } = findings.state.reported[0]!;
  for (const [folder] of advice.matchAll(/\w+\/(?= )/g)) {
    rmSync(join(snapshot.directory, folder), { recursive: true });
  }
  await snapshot.publishOnce();
  expect(fileAt(path)).toBe(bundle);
});

it('publisher > publishes no state of leaves that a failover lost after a failed cycle', async () => {
  const { registry } = snapshot;
  snapshot.grow(10);
  const publisher = snapshot.publisher();
  await publisher.runCycle();
  const kept = registry.size;
  const lost = snapshot.grow(3);
  registry.onCall = (what) => {
    if (what === 'appendSnapshot') throw new Error('the primary is down');
  };
  await expect(publisher.runCycle()).rejects.toThrow('the primary is down');
  registry.onCall = () => undefined;
  registry.truncate(kept);
  snapshot.clock.at += 5_000;
  const next = snapshot.grow(3);
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
  const published = await snapshot.published();
  const statuses = [...lost, ...next].map((id) => published.status(id));
  expect(statuses).toEqual([null, null, null, 'VALID', 'VALID', 'VALID']);
  await publisher.close();
  expect(await snapshot.publisher().runCycle()).toMatchObject({ outcome: 'unchanged' });
});

/** Grows the log by `leaves`, and runs a cycle in which the primary fails at `call`. */
async function failedCycle(leaves: number, call: string) {
  const { registry } = snapshot;
  const publisher = snapshot.publisher();
  await publisher.runCycle();
  const kept = registry.size;
  snapshot.grow(leaves);
  const grown = registry.size;
  registry.onCall = (what) => {
    if (what === call) throw new Error('the primary is down');
  };
  await expect(publisher.runCycle()).rejects.toThrow('the primary is down');
  registry.onCall = () => undefined;
  snapshot.clock.at += 5_000;
  return { publisher, kept, grown };
}

it('publisher > replaces the files of a failed cycle whose leaves a failover lost', async () => {
  const { registry } = snapshot;
  // Leaf tiles are full before the snapshot entry, and partial with it.
  for (const call of ['appendSnapshot', 'insertCheckpoint']) {
    const { publisher, kept } = await failedCycle(300, call);
    registry.truncate(kept);
    const [first] = snapshot.grow(300);
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    expect((await snapshot.published()).status(first!)).toBe('VALID');
    await publisher.close();
  }
});

it('publisher > appends a snapshot entry of a failed cycle again that a failover lost', async () => {
  const { registry } = snapshot;
  for (const later of [0, 3]) {
    const { publisher, grown } = await failedCycle(10, 'insertCheckpoint');
    registry.truncate(grown);
    if (later > 0) registry.addProofs(later);
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    await publisher.close();
  }
});

/** Calls `beforeTile` before each tile is written. */
const bucket = (beforeTile: () => Promise<void> = () => Promise.resolve()): SnapshotStore =>
  bucketLike(snapshot.directory, (store) => ({
    create: async (path, bytes) => {
      if (path.startsWith('tile/')) await beforeTile();
      return store.create(path, bytes);
    },
  }));

it('publisher > replaces no file of a checkpoint that the publisher of the new primary signed', async () => {
  const { registry } = snapshot;
  snapshot.grow(200);
  const first = snapshot.publisher({ directory: bucket() });
  await first.runCycle();
  await first.close();
  const kept = registry.size;
  snapshot.grow(300);
  const publishNew = async (): Promise<string | null> => {
    registry.truncate(kept);
    snapshot.clock.at += 1_000;
    snapshot.grow(300);
    const publisher = snapshot.publisher({ directory: bucket() });
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    await publisher.close();
    return fileAt('tile/0/000');
  };
  const published: Promise<string | null>[] = [];
  const old = snapshot.publisher({
    directory: bucket(async () => void (await (published[0] ??= publishNew()))),
  });
  await expect(old.runCycle()).rejects.toThrow('another publisher replaced the checkpoint');
  expect(await published[0]).toBe(fileAt('tile/0/000'));
});

it('publisher > signs no other tree of the size of a stored checkpoint that a failover lost', async () => {
  const { registry } = snapshot;
  snapshot.grow(200);
  let fails = false;
  const publisher = snapshot.publisher({
    step: async (path, write) => {
      if (fails && path === 'checkpoint') throw new Error('the disk is full');
      await write();
    },
  });
  await publisher.runCycle();
  const kept = registry.size;
  snapshot.grow(300);
  fails = true;
  await expect(publisher.runCycle()).rejects.toThrow('the disk is full');
  fails = false;
  registry.truncate(kept);
  snapshot.clock.at += 5_000;
  snapshot.grow(300);
  await expect(publisher.runCycle()).rejects.toThrow('the last one that this process signed');
});
