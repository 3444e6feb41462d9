import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { equalBytes, fromUtf8 } from '#protocol/bytes';
import { openCheckpoint } from '#protocol/checkpoint';
import { leafHash } from '#protocol/merkle';
import { runLookup } from '#protocol/snapshot/find';
import { recordBody } from '#protocol/snapshot/record';
import { directorySource } from '#api/public/snapshot/source';
import type { PublicServer } from '#api/public/server';
import {
  decodeEntryBundle,
  entriesPath,
  rootFromTiles,
  tilePath,
  tilesBetween,
} from '#protocol/tiles';
import type { WriteStep } from '#publisher/store/writer';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { ORIGIN, TestSnapshot } from '../fixtures/snapshot.js';

/**
 * Every write of a tick fails in turn, with the file in place and without it, as if the process had
 * been killed there. After each failure the published bytes are looked at as an outsider would, and
 * then the next tick, by a publisher that knows nothing of the one before, has to repair.
 */

let snapshot: TestSnapshot;
let old: string[];
let fresh: string[];
let lived: PublicServer;

beforeEach(async () => {
  snapshot = new TestSnapshot();
  const { registry } = snapshot;
  old = registry.addProofs(260);
  registry.verify();
  const publisher = snapshot.publisher();
  await publisher.runCycle();
  await publisher.close();
  lived = snapshot.publicServer();
  await lived.poller.refresh();
  // A tick with everything in it: full and partial tiles, bodies, merged parts, changed verdicts.
  fresh = registry.addProofs(300);
  registry.revoke(old[5]!);
  registry.recordVerdict(old[6]!, { outcome: 'fail' });
  registry.verify();
  snapshot.clock.at += 1000;
});
afterEach(() => snapshot.close());

class Killed extends Error {}

/** Fails the write number `at`, before or after it was done, and every later one before. */
function dying(at: number, persisted: boolean): { step: WriteStep; writes: string[] } {
  const writes: string[] = [];
  const step: WriteStep = async (path, write) => {
    const number = writes.push(path) - 1;
    if (number > at || (number === at && !persisted)) throw new Killed(path);
    await write();
    if (number === at) throw new Killed(path);
  };
  return { step, writes };
}

function statusIn(publicServer: PublicServer, proofId: string): string {
  const current = publicServer.poller.current!;
  const source = directorySource(snapshot.directory);
  try {
    const found = runLookup(current.proof(proofId, 0), (wanted) => source.read(wanted));
    if (found === null || found instanceof Promise) return 'NOT_FOUND';
    const { part } = recordBody(found.bytes, found.id, 'proof')!;
    return /"verification_status":"([A-Z_]+)"/.exec(fromUtf8(part))![1]!;
  } finally {
    source.close();
  }
}

/** Invariants of the published bytes at any time. */
async function auditAsOutsider(): Promise<number> {
  const read = (path: string): Buffer => readFileSync(join(snapshot.directory, path));
  const checkpoint = openCheckpoint(
    fromUtf8(read('checkpoint')),
    snapshot.logVkey,
    ORIGIN,
    nativeVerify,
  );
  const { size } = checkpoint;
  for (const { level, index, width } of tilesBetween(0, size)) {
    expect(read(tilePath(level, index, width)).length).toBe(32 * width);
    if (level > 0) continue;
    const hashes = read(tilePath(0, index, width));
    const entries = decodeEntryBundle(read(entriesPath(index, width)));
    expect(entries.length).toBe(width);
    entries.forEach((entry, i) => {
      const hash = hashes.subarray(32 * i, 32 * i + 32);
      expect(equalBytes(leafHash(nativeSha256, entry), hash)).toBe(true);
    });
  }
  const root = await rootFromTiles(nativeSha256, size, (level, index, width) =>
    Promise.resolve(read(tilePath(level, index, width))),
  );
  expect(equalBytes(root, checkpoint.root)).toBe(true);

  const young = snapshot.publicServer();
  for (const publicServer of [young, lived]) {
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toBeNull();
    const { manifest } = publicServer.poller.current!.opened;
    expect(manifest.tree_size).toBeLessThanOrEqual(size);
    const grown = manifest.tree_size > 261;
    expect(old.filter((id) => statusIn(publicServer, id) === 'VALID').length).toBe(
      grown ? 258 : 260,
    );
    expect(statusIn(publicServer, old[5]!)).toBe(grown ? 'REVOKED' : 'VALID');
    expect(statusIn(publicServer, old[6]!)).toBe(grown ? 'BACKEND_LOOKUP_REQUIRED' : 'VALID');
    const expected = grown ? 'VALID' : 'NOT_FOUND';
    expect(fresh.every((id) => statusIn(publicServer, id) === expected)).toBe(true);
  }
  return young.poller.current!.opened.manifest.tree_size;
}

async function writesOfATick(): Promise<string[]> {
  const { step, writes } = dying(Infinity, true);
  const publisher = snapshot.publisher({ step });
  await publisher.runCycle();
  await publisher.close();
  return writes;
}

describe('publisher that crashes at a write', () => {
  it('writes the pointers last', async () => {
    const writes = await writesOfATick();
    expect(writes.slice(-2)).toEqual(['checkpoint', 'lookup/manifest']);
    expect(writes.filter((path) => path.startsWith('tile/')).length).toBe(5);
    expect(writes.filter((path) => path.startsWith('lookup/segments/')).length).toBe(3);
    expect(await auditAsOutsider()).toBe(562);
  });

  for (const persisted of [false, true]) {
    for (let at = 0; at < 10; at++) {
      it(`leaves a whole snapshot and is repaired: write ${at}, ${persisted ? 'done' : 'not done'}`, async () => {
        const { step, writes } = dying(at, persisted);
        const dead = snapshot.publisher({ step });
        await expect(dead.runCycle()).rejects.toThrow(Killed);
        await dead.close();
        const last = writes[at] === 'lookup/manifest' && persisted;
        expect(await auditAsOutsider()).toBe(last ? 562 : 261);

        // The log went on in the meantime.
        snapshot.clock.at += 1000;
        const later = snapshot.registry.addProof();
        snapshot.registry.verify();
        const next = snapshot.publisher();
        expect(await next.runCycle()).toMatchObject({ outcome: 'published', treeSize: 563 });
        expect(await auditAsOutsider()).toBe(563);
        expect(statusIn(lived, later)).toBe('VALID');
      });
    }
  }

  it('never shows a partly written file', async () => {
    const look = (path: string): string | null => {
      const file = join(snapshot.directory, path);
      return existsSync(file) ? readFileSync(file, 'hex') : null;
    };
    let looks = 0;
    const publisher = snapshot.publisher({
      step: async (path, write) => {
        const before = look(path);
        const seen = new Set([before]);
        let writing = true;
        const written = write().finally(() => (writing = false));
        while (writing) {
          seen.add(look(path));
          looks++;
          await setImmediate();
        }
        await written;
        seen.add(look(path));
        expect(seen.size).toBe(2);
      },
    });
    await publisher.runCycle();
    expect(looks).toBeGreaterThan(20);
  });

  it('performs only the ten listed writes', async () => {
    expect(await writesOfATick()).toHaveLength(10);
  });
});

describe('failing registry', () => {
  it.each([
    'verifiedPrefix',
    'latestCheckpoint',
    'insertCheckpoint',
    'tile',
    'leaves',
    'statusEntries',
    'statusEntriesOf',
    'keyEntries',
    'verdictsForRange',
    'verdictHistories',
    'verdictChangesSince',
  ] as const)('leaves the published snapshot unchanged at %s', async (question) => {
    const publisher = snapshot.publisher();
    snapshot.registry.onCall = (what) => {
      if (what === question) throw new Killed(what);
    };
    await expect(publisher.runCycle()).rejects.toThrow(Killed);
    expect(await auditAsOutsider()).toBe(261);
    snapshot.registry.onCall = () => undefined;
    await publisher.runCycle();
    expect(await auditAsOutsider()).toBe(562);
  });

  it('leads to the same checkpoint again when it fails after the checkpoint commit', async () => {
    const { registry } = snapshot;
    const insert = registry.insertCheckpoint.bind(registry);
    registry.insertCheckpoint = async (checkpoint) => {
      await insert(checkpoint);
      throw new Killed('no answer');
    };
    const publisher = snapshot.publisher();
    await expect(publisher.runCycle()).rejects.toThrow(Killed);
    expect(await auditAsOutsider()).toBe(261);
    registry.insertCheckpoint = insert;
    await publisher.runCycle();
    expect(await auditAsOutsider()).toBe(562);
    expect(readFileSync(join(snapshot.directory, 'checkpoint'), 'utf8')).toBe(
      registry.checkpoints.at(-1)!.note,
    );
    expect(registry.checkpoints).toHaveLength(2);
  });
});
