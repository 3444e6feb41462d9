import { cpSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createPublicServer, type PublicServer } from '#api/public/server';
import { directorySource } from '#api/public/snapshot/source';
import { openCheckpoint } from '#protocol/checkpoint';
import { formatVkey } from '#protocol/note';
import type { Publisher } from '#publisher/publisher';
import { publisherReadiness, runPublisher } from '#publisher/run';
import { UnknownSignerError } from '#publisher/errors';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { ORIGIN, SNAPSHOT_NAME, testKey, TestSnapshot } from '../fixtures/snapshot.js';
import { useSnapshot } from '../fixtures/use-registry.js';

/** Rotating the keys that sign checkpoints and snapshots, as docs/operate.md describes. */

const snapshot = useSnapshot();
const facades: PublicServer[] = [];
beforeEach(async () => {
  snapshot.registry.addProofs(3);
  snapshot.registry.verify();
  const publisher = snapshot.publisher();
  await publisher.runCycle();
  await publisher.close();
});
afterEach(() => facades.splice(0).forEach((publicServer) => publicServer.close()));

const newLogKey = testKey();
const newSnapshotKey = testKey();
const newLogVkey = formatVkey(nativeSha256, ORIGIN, newLogKey.publicKey);
const newSnapshotVkey = formatVkey(nativeSha256, SNAPSHOT_NAME, newSnapshotKey.publicKey);

const retired = () => ({ log: [snapshot.logVkey], snapshot: [snapshot.snapshotVkey] });

/** A publisher with the new keys that knows the old ones. */
const rotated = (overrides: Parameters<TestSnapshot['publisher']>[0] = {}): Publisher =>
  snapshot.publisher({
    logKey: newLogKey,
    snapshotKey: newSnapshotKey,
    retired: retired(),
    ...overrides,
  });

function facadePinning(log: string[], snapshotVkeys: string[]): PublicServer {
  const publicServer = createPublicServer({
    snapshotSource: directorySource(snapshot.directory),
    logVkey: log,
    snapshotVkey: snapshotVkeys,
    clock: snapshot.clock,
    log: logger('facade', 'silent'),
  });
  facades.push(publicServer);
  return publicServer;
}
const pinningBoth = () =>
  facadePinning([newLogVkey, snapshot.logVkey], [newSnapshotVkey, snapshot.snapshotVkey]);

const checkpointFile = () => readFileSync(join(snapshot.directory, 'checkpoint'), 'utf8');

async function statusAt(url: string, proofId: string): Promise<number> {
  return (await fetch(`${url}/api/public/verify/proof/${proofId}`)).status;
}

async function grow(publisher: Publisher): Promise<string> {
  snapshot.clock.at += 1000;
  const id = snapshot.registry.addProof();
  snapshot.registry.verify();
  await publisher.runCycle();
  return id;
}

describe('publisher with new keys', () => {
  it('does not become leader unless the old keys are configured as retired', async () => {
    for (const keys of [
      { logKey: newLogKey },
      { snapshotKey: newSnapshotKey },
      { logKey: newLogKey, snapshotKey: newSnapshotKey, retired: { log: [], snapshot: [] } },
    ]) {
      const publisher = snapshot.publisher(keys);
      const error = await publisher.runCycle().catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(UnknownSignerError);
      expect((error as Error).message).toContain('_RETIRED_VKEYS');
      expect(publisher.isLeader()).toBe(false);
    }
  });

  it('signs with the new keys, including the checkpoint of a log that has not grown', async () => {
    const publisher = rotated();
    const before = checkpointFile();
    await publisher.runCycle();
    const after = checkpointFile();
    const open = (note: string, vkey: string) =>
      openCheckpoint(note, vkey, ORIGIN, nativeVerify, nativeSha256);
    expect(open(after, newLogVkey)).toEqual(open(before, snapshot.logVkey));
    expect(() => open(after, snapshot.logVkey)).toThrow();
    // A repeated cycle signs no other checkpoint for an unchanged tree.
    await publisher.runCycle();
    expect(checkpointFile()).toBe(after);
    expect(snapshot.registry.checkpoints).toHaveLength(1);
    await grow(publisher);
    expect(open(checkpointFile(), newLogVkey).size).toBe(5);
    expect(snapshot.registry.checkpoints.map(({ note }) => note)).toEqual([
      before,
      checkpointFile(),
    ]);
  });

  it('never signs with a retired key, and rejects its own key when configured as retired', () => {
    expect(() => rotated({ retired: { log: [newLogVkey], snapshot: [] } })).toThrow(/duplicate/);
    const elsewhere = formatVkey(nativeSha256, 'elsewhere.example/log', testKey().publicKey);
    expect(() => rotated({ retired: { log: [elsewhere], snapshot: [] } })).toThrow(
      /different names/,
    );
  });

  it('still checks that the log extends the tree that the old key signed', async () => {
    const publisher = rotated();
    const forked = snapshot.registry.all.findLast((leaf) => leaf.kind === 'proof')!;
    snapshot.registry.truncate(snapshot.registry.all.length - 1);
    snapshot.registry.addProof({ aepHash: 'f'.repeat(64) });
    snapshot.registry.addProof();
    snapshot.registry.verify();
    expect(forked.leafIndex).toBe(3);
    await expect(publisher.runCycle()).rejects.toMatchObject({ code: 'log_forked' });
  });
});

describe('standby that has only the old keys', () => {
  const idOf = (vkey: string): string => vkey.split('+').slice(0, 2).join('+');

  it('remains a standby, and its readiness names the unknown key', async () => {
    const leader = rotated({ snapshotKey: snapshot.snapshotKey, retired: { log: [snapshot.logVkey], snapshot: [] } }); // prettier-ignore
    await grow(leader);
    const standby = snapshot.publisher();
    // The standby reports the key at once, while the leader still runs.
    await expect(standby.runCycle()).rejects.toMatchObject({ key: idOf(newLogVkey) });
    await leader.close();
    const signed = checkpointFile();
    const stopping = new AbortController();
    const watch = publisherReadiness();
    const log = logger('publisher', 'silent');
    const running = runPublisher(standby, { signal: stopping.signal, log, watch });
    const expected = {
      ready: false,
      details: { status: 'unavailable', role: 'standby', unknown_signer: idOf(newLogVkey) },
    };
    await expect.poll(() => watch.find()).toMatchObject(expected);
    stopping.abort();
    await running;
    expect(checkpointFile()).toBe(signed);
  });
});

describe('list of retired log keys', () => {
  const unused = formatVkey(nativeSha256, ORIGIN, testKey().publicKey);
  const listed = async () => {
    const publicServer = facadePinning([newLogVkey], [newSnapshotVkey]);
    await publicServer.poller.refresh();
    return publicServer.poller.current!.keys.retired!.log;
  };

  it('has the size of the last tree of each key, also after lookup/ was deleted', async () => {
    const keys = { log: [snapshot.logVkey, unused], snapshot: [snapshot.snapshotVkey] };
    const expected = [
      { vkey: snapshot.logVkey, from_size: 4 },
      { vkey: unused, from_size: 0 },
    ];
    const publisher = rotated({ retired: keys });
    await publisher.runCycle();
    expect(await listed()).toEqual(expected);
    await grow(publisher);
    await grow(publisher);
    expect(await listed()).toEqual(expected);
    await publisher.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    await rotated({ retired: keys }).runCycle();
    expect(await listed()).toEqual(expected);
  });
});

describe('public API server during a key rotation', () => {
  it('accepts both keys when both are pinned, and checks consistency across the rotation', async () => {
    const publicServer = pinningBoth();
    const { url } = await snapshot.serve(publicServer);
    const publisher = rotated();
    const id = await grow(publisher);
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toBeNull();
    expect(await statusAt(url, id)).toBe(200);
    const keys: unknown = await (await fetch(`${url}/api/public/keys`)).json();
    expect(keys).toMatchObject({
      log: {
        origin: ORIGIN,
        vkey: newLogVkey,
        retired: [{ vkey: snapshot.logVkey, from_size: 4 }],
      },
      snapshot: { vkey: newSnapshotVkey, retired: [snapshot.snapshotVkey] },
    });
  });

  it('rejects a fork at the rotation although both keys are pinned', async () => {
    const publicServer = pinningBoth();
    await publicServer.poller.refresh();
    const before = publicServer.poller.current;
    // An attacker with the new keys and another, larger log.
    const other = new TestSnapshot();
    other.registry.addProof({ aepHash: 'f'.repeat(64) });
    other.registry.addProofs(7);
    other.registry.verify();
    other.clock.at = snapshot.clock.at + 5000;
    const forger = other.publisher({ logKey: newLogKey, snapshotKey: newSnapshotKey });
    await forger.runCycle();
    cpSync(other.directory, snapshot.directory, { recursive: true });
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('does not extend');
    expect(publicServer.poller.current).toBe(before);
    await other.close();
  });

  it('keeps the last valid snapshot when only the old key is pinned', async () => {
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    const old = snapshot.registry.all.find((leaf) => leaf.kind === 'proof')!;
    const publisher = rotated();
    const id = await grow(publisher);
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('no signature by a pinned key');
    expect(await statusAt(url, old.proofId)).toBe(200);
    expect(await statusAt(url, id)).toBe(404);
    snapshot.clock.at = publicServer.poller.current!.opened.validUntil;
    expect(await statusAt(url, old.proofId)).toBe(503);
  });
});
