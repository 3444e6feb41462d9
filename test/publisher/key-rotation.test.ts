import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { entryBytes } from '#protocol/entries';
import { formatVkey, parseVkey } from '#protocol/note';
import { type Publisher, publisherReadiness, runPublisher } from '#publisher/publisher';
import { UnknownSignerError } from '#publisher/errors';
import { nativeSha256 } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { formatTime } from '#protocol/time';
import { openCheckpoint } from '../fixtures/checkpoints.js';
import { ORIGIN, testKey, type TestSnapshot } from '../fixtures/snapshot.js';
import { useSnapshot } from '../fixtures/use-registry.js';

/** The rotation of the log key that docs/operate.md describes. */

const snapshot = useSnapshot();
beforeEach(async () => {
  snapshot.grow(3);
  await snapshot.publishOnce();
});

const newLogKey = testKey();
const newLogVkey = formatVkey(nativeSha256, ORIGIN, newLogKey.publicKey);

/** A publisher that signs with the new key and accepts the old key. */
const rotated = (overrides: Parameters<TestSnapshot['publisher']>[0] = {}): Publisher =>
  snapshot.publisher({ logKey: newLogKey, logged: [parseVkey(snapshot.logVkey)], ...overrides });

const checkpointFile = () => readFileSync(join(snapshot.directory, 'checkpoint'), 'utf8');

const grow = (publisher: Publisher) => snapshot.publishProof(publisher);

/** Appends the activation of a log key, or its retirement. */
function nameLogKey(vkey: string, fromSize?: number): void {
  const time = formatTime(snapshot.clock.now());
  const change =
    fromSize === undefined ? { change: 'activate' } : { change: 'retire', from_size: fromSize };
  const entry = { type: 'key', use: 'log', vkey, ...change, time };
  snapshot.registry.addEntry(entryBytes(entry as Parameters<typeof entryBytes>[0]));
}

const idOf = (vkey: string): string => vkey.split('+').slice(0, 2).join('+');

describe('publisher with a new key', () => {
  it('does not become leader unless a key entry of the log activates the old key', async () => {
    const publisher = snapshot.publisher({ logKey: newLogKey });
    const error = await publisher.runCycle().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(UnknownSignerError);
    expect((error as Error).message).toContain('admin log-key activate');
    expect(publisher.isLeader()).toBe(false);
  });

  it('signs with the new key at once, although nothing else has changed', async () => {
    const publisher = rotated();
    const before = checkpointFile();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    const after = checkpointFile();
    const open = (note: string, vkey: string) => openCheckpoint(note, vkey, ORIGIN);
    expect(open(after, newLogVkey).size).toBe(open(before, snapshot.logVkey).size + 1);
    expect(() => open(after, snapshot.logVkey)).toThrow();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
    const stored = await snapshot.registry.checkpoints();
    expect(stored.map(({ note }) => note)).toEqual([before, after]);
  });

  it('signs only with an active key, after a checkpoint by the previous key covers its activation', async () => {
    const former = snapshot.publisher();
    nameLogKey(snapshot.logVkey);
    await grow(former);
    nameLogKey(newLogVkey);
    await former.close();
    snapshot.registry.verify();
    const publisher = rotated();
    await expect(publisher.runCycle()).rejects.toThrow('No checkpoint by a former log key covers');
    await publisher.close();
    await grow(former);
    await former.close();
    await grow(publisher);
    await publisher.close();
    const informed = snapshot.publisher({ logged: [parseVkey(newLogVkey)] });
    const signed = checkpointFile();
    // The key is retired after the cycle has read the tree, and before the cycle appends its snapshot entry.
    snapshot.registry.onCall = (query) => {
      if (query !== 'appendSnapshot') return;
      snapshot.registry.onCall = () => undefined;
      nameLogKey(snapshot.logVkey, snapshot.registry.size);
    };
    await expect(grow(informed)).rejects.toMatchObject({ code: 'log_key_retired' });
    expect(checkpointFile()).toBe(signed);
    await informed.close();
    const restarted = snapshot.publisher({ logged: [parseVkey(newLogVkey)] });
    const { size } = snapshot.registry;
    // No verdict covers the retirement yet.
    await expect(restarted.runCycle()).rejects.toMatchObject({ code: 'log_key_retired' });
    expect(checkpointFile()).toBe(signed);
    expect(await snapshot.registry.treeSize()).toBe(size);
    await restarted.close();
    await expect(grow(former)).rejects.toMatchObject({ key: idOf(newLogVkey) });
    await expect(grow(restarted)).rejects.toMatchObject({ code: 'log_key_retired' });
  });

  it('still checks that the log extends the tree that the old key signed', async () => {
    const publisher = rotated();
    snapshot.registry.truncate(3, 'kept');
    snapshot.registry.addProof({ aepHash: 'f'.repeat(64) });
    snapshot.grow(4);
    await expect(publisher.runCycle()).rejects.toMatchObject({ code: 'log_forked' });
  });

  it('reports lost leaves, not its key, when the database also lost the activation of its key', async () => {
    const former = snapshot.publisher();
    nameLogKey(snapshot.logVkey);
    await grow(former);
    const { size } = snapshot.registry;
    nameLogKey(newLogVkey);
    await grow(former);
    await former.close();
    const publisher = rotated();
    await grow(publisher);
    await publisher.close();
    snapshot.registry.truncate(size);
    await expect(rotated().runCycle()).rejects.toMatchObject({ code: 'database_behind' });
  });
});

it('standby that has only the old key > remains a standby, and its readiness names the unknown key', async () => {
  const leader = rotated();
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

it('standby whose key the log does not name > is not ready', async () => {
  const leader = snapshot.publisher();
  nameLogKey(snapshot.logVkey);
  await grow(leader);
  const standby = rotated();
  const queries: string[] = [];
  snapshot.registry.onCall = (query) => void queries.push(query);
  await expect(standby.runCycle()).rejects.toThrow('No checkpoint by a former log key covers');
  // The check runs every second, so it must not read all key entries: a log may have thousands of delegations.
  expect(queries).not.toContain('keyEntries');
  nameLogKey(newLogVkey);
  await grow(leader);
  expect(await standby.runCycle()).toEqual({ outcome: 'standby' });
});

it('public API server > accepts both keys when both are pinned, and checks consistency across the rotation', async () => {
  const publicServer = snapshot.publicServer({ logVkey: [newLogVkey, snapshot.logVkey] });
  const { url } = await snapshot.serve(publicServer);
  const publisher = rotated();
  const id = await grow(publisher);
  await publicServer.poller.refresh();
  expect(publicServer.poller.rejection).toBeNull();
  expect((await fetch(`${url}/api/public/verify/proof/${id}`)).status).toBe(200);
  const keys: unknown = await (await fetch(`${url}/api/public/keys`)).json();
  expect(keys).toMatchObject({
    // Omits the old key: a former key can be pinned only with a bound, and this log has none.
    log: { origin: ORIGIN, vkey: newLogVkey, retired: [] },
  });
});
