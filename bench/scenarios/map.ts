import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { toBase64, toBase64Url, toHex } from '#protocol/bytes';
import { formatCheckpoint, formatTlogProof } from '#protocol/checkpoint';
import { entryBytes } from '#protocol/entries';
import { MAP_KINDS, mapKey, mapRoot } from '#protocol/map/nodes';
import { decodeLeaves, type PageId } from '#protocol/map/page';
import { MapPages, type MapHead, type PageStore } from '#protocol/map/paged-map';
import type { MapChange } from '#protocol/map/update';
import { inclusionRanges, leafHash, nodeHash } from '#protocol/merkle';
import { formatVkey, noteSigner, signNote } from '#protocol/note';
import type { SnapshotEntry } from '#protocol/schemas/log-entry';
import { SCHEMA } from '#protocol/schemas/ids';
import { KEYS_SCHEMA } from '#protocol/snapshot/keys';
import {
  encodeLocation,
  LOCATION_PATH,
  LOCATION_SCHEMA,
  pagePath,
} from '#protocol/snapshot/location';
import {
  aepKeyMapKey,
  encodeAepKey,
  encodeProof,
  PROOF_RECORD_BYTES,
  type PublicProof,
} from '#protocol/state/record';
import { formatTime } from '#protocol/time';
import { LOCAL_ORIGIN } from '#runtime/config';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { startServer } from '../harness/child.js';
import { cpuSecondsOf, peakMemoryOf } from '../harness/cpu.js';
import { untilReady } from '../harness/public-api.js';
import { resultOf, type Result, type RunContext, type Scenario } from '../harness/scenario.js';
import { whole } from '../harness/statistics.js';
import { lookUpProofs } from '../lookup/interleaved-load.js';

/** The map of public records, built without a log: its cost, and a public API over a large map. */
export const map: Scenario = { name: 'map', needs: ['wrk', 'taskset'], run };

const QUICK = { proofs: 200_000, seconds: 2 };
const FULL = { proofs: 100_000_000, seconds: 20 };
/** New proofs of an update, as in a publish cycle under load. */
const CYCLE = 4_000;
/** Proofs in the map before its updates are measured. */
const WARM_UP = 100_000;
const PROOFS_PER_MS = 10;

async function run(context: RunContext): Promise<Result[]> {
  const { proofs } = context.quick ? QUICK : FULL;
  const store = new SampledStore();
  const maps = new MapPages(nativeSha256, store, undefined, 256);
  const from = { cpu: 0, written: 0, live: 0 };
  let used = 0;
  let head: MapHead = (await maps.update(null, [KEY_CHANGE])).head;
  for (let first = 0; first < proofs; first += CYCLE) {
    context.signal.throwIfAborted();
    if (first === WARM_UP) Object.assign(from, { written: store.written, live: store.live });
    const changes = changesFrom(first);
    const before = cpuSecondsOf(process.pid);
    const updated = await maps.update(head, changes);
    if (first >= WARM_UP) used += cpuSecondsOf(process.pid) - before;
    head = updated.head;
    store.forget(updated.superseded);
    // Lets the process handle signals, because an update yields to microtasks only.
    await setImmediate();
  }
  const measured = proofs - WARM_UP;
  const note = `${whole(proofs)} proofs, ${whole(CYCLE)} new ones in each update`;
  return [
    resultOf({
      name: 'map: CPU per proof',
      value: (used * 1e6) / measured,
      unit: 'µs',
      against: { what: 'three SHA-256 of 128 bytes', value: hashingMicros() },
      target: { value: { atMost: 5 } },
      note,
    }),
    resultOf({ name: 'map: bytes per proof', value: store.live / proofs, unit: 'bytes', note }),
    resultOf({
      name: 'map: bytes written per byte of new records',
      value: (store.written - from.written) / (store.live - from.live),
      unit: 'bytes',
      target: { value: { atMost: 1.5 } },
      note,
    }),
    ...(await measurePublicApi(context, store, head, proofs)),
  ];
}

const START = Date.now();
const NO_HISTORY = new Uint8Array(0);
const NO_ENDS = [null, null, null, null] as const;
const KEY_CHANGE: MapChange = {
  key: aepKeyMapKey(0, 0),
  value: {
    record: encodeAepKey({
      keyId: toBase64Url(randomBytes(32)),
      from: 1,
      retiredFrom: null,
      compromisedFrom: null,
    }),
    history: new Uint8Array(0),
  },
};

const ID_BYTES = 16;
const RANDOM_BYTES = ID_BYTES + 64;

/** Records of verified proofs, each under a UUIDv7 of the time of its admission. */
function changesFrom(first: number): MapChange[] {
  const random = randomBytes(CYCLE * RANDOM_BYTES);
  // One buffer for all records, as in the publisher: the garbage of one array each would count as the map's cost.
  const records = new Uint8Array(CYCLE * PROOF_RECORD_BYTES);
  return Array.from({ length: CYCLE }, (_, n) => {
    const index = first + n;
    const acceptedAt = START + Math.floor(index / PROOFS_PER_MS);
    const bytes = random.subarray(n * RANDOM_BYTES, (n + 1) * RANDOM_BYTES);
    bytes.writeUIntBE(acceptedAt, 0, 6);
    // A UUIDv7 with shard 0.
    bytes.writeUInt16BE(0x7000, 6);
    bytes[8] = (bytes[8]! & 0x3f) | 0x80;
    const proof: PublicProof = {
      effect: 'ADMIT',
      isLive: true,
      hasArtifacts: true,
      verdict: 'pass',
      isGone: false,
      revoked: 0,
      leafIndex: index + 1,
      acceptedAt,
      verdictSize: index + 2,
      verifiedAt: acceptedAt,
      keyIndex: 0,
      ends: NO_ENDS,
      aepHash: bytes.subarray(ID_BYTES, ID_BYTES + 32),
      proofRecordHash: bytes.subarray(ID_BYTES + 32),
    };
    const place = records.subarray(n * PROOF_RECORD_BYTES, (n + 1) * PROOF_RECORD_BYTES);
    return {
      key: mapKey('proof', bytes.subarray(0, ID_BYTES)),
      value: { record: encodeProof(proof, place), history: NO_HISTORY },
    };
  });
}

function hashingMicros(): number {
  const input = randomBytes(128);
  const from = cpuSecondsOf(process.pid);
  for (let n = 0; n < 3 * WARM_UP; n += 1) nativeSha256(input);
  return ((cpuSecondsOf(process.pid) - from) * 1e6) / WARM_UP;
}

/**
 * Keeps the pages that the next update may change, and one in 256 of the other pages with records of
 * proofs.
 */
class SampledStore implements PageStore {
  readonly pages = new Map<string, { page: PageId; bytes: Uint8Array }>();
  private readonly recent: string[] = [];
  written = 0;
  live = 0;

  read({ digest }: PageId): Promise<Uint8Array> {
    const found = this.pages.get(toHex(digest));
    return found === undefined
      ? Promise.reject(new Error('a page of the map was not kept'))
      : Promise.resolve(found.bytes);
  }

  write(page: PageId, bytes: Uint8Array): Promise<void> {
    const name = toHex(page.digest);
    this.pages.set(name, { page, bytes });
    this.written += bytes.length;
    this.live += bytes.length;
    if (page.level === 0 && bytes[1] === MAP_KINDS.proof && !isSampled(page))
      this.recent.push(name);
    if (this.recent.length > 1_000) this.pages.delete(this.recent.shift()!);
    return Promise.resolve();
  }

  forget(superseded: readonly PageId[]): void {
    for (const { digest } of superseded) {
      const name = toHex(digest);
      this.live -= this.pages.get(name)!.bytes.length;
      this.pages.delete(name);
    }
  }
}

const isSampled = ({ digest }: PageId): boolean => digest[0] === 0;

/** Starts a public API over the kept pages, and looks up the proofs in the sampled pages. */
async function measurePublicApi(
  { quick, dir, signal, cleanup }: RunContext,
  store: SampledStore,
  head: MapHead,
  proofs: number,
): Promise<Result[]> {
  const root = join(dir, 'public');
  const write = async (path: string, bytes: Uint8Array | string): Promise<void> => {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), bytes);
  };
  for (const { page, bytes } of store.pages.values()) await write(pagePath(page), bytes);
  const ids = [...store.pages.values()]
    .filter(({ page }) => page.level === 0 && isSampled(page))
    .flatMap(({ bytes }) => decodeLeaves(nativeSha256, bytes))
    .flatMap(({ key }) => (key[0] === MAP_KINDS.proof ? [toHex(key.subarray(1))] : []));
  const { logVkey, checkpoint, location } = signedSnapshot(join(dir, 'log-key.pem'), head, proofs);
  await write('checkpoint', checkpoint);
  await write(LOCATION_PATH, location);

  const startedAt = performance.now();
  const pins = { origin: LOCAL_ORIGIN, vkey: logVkey, retired: [] };
  await writeFile(
    join(dir, 'pins.json'),
    JSON.stringify({ schema_version: KEYS_SCHEMA, aep: [], log: pins }),
  );
  const env = { LOG_LEVEL: 'warn', SNAPSHOT_DIR: root, DATA_DIR: dir, PUBLIC_PORT: '0' };
  const { url, pid } = await startServer({ module: 'programs/facade', env }, cleanup);
  await untilReady(url);
  const seconds = (performance.now() - startedAt) / 1_000;

  const { seconds: duration } = quick ? QUICK : FULL;
  const requests = await lookUpProofs(url, ids, { dir, seconds: duration, signal });
  const note = `a map of ${whole(proofs)} proofs`;
  return [
    resultOf({
      name: 'map: start of a public API',
      value: seconds,
      unit: 's',
      target: { value: { atMost: 2 } },
      note: `${note}, from the start of the process to its readiness`,
    }),
    resultOf({
      name: 'map: memory of a public API',
      value: peakMemoryOf(pid),
      unit: 'MiB',
      target: { value: { atMost: 512 } },
      note: `${note}, peak of ${whole(requests)} lookups of ${whole(ids.length)} proofs`,
    }),
  ];
}

/** A snapshot entry over the map, in a log whose other leaves do not exist. */
function signedSnapshot(keyFile: string, head: MapHead, proofs: number) {
  const key = createSigningKey(keyFile);
  const now = Date.now();
  const size = proofs + 1;
  const snapshot: SnapshotEntry = {
    schema_version: SCHEMA.logEntry,
    type: 'snapshot',
    time: formatTime(now),
    logs: [
      {
        shard: 0,
        origin: LOCAL_ORIGIN,
        size,
        root: toBase64(randomBytes(32)),
        expired_through: formatTime(now),
        lookup_from: 0,
      },
    ],
    map_root: toBase64(head!.hash),
    shares_root: toBase64(mapRoot(nativeSha256, [])),
    valid_until: formatTime(now + 3_600_000),
    max_merge_delay: 60,
  };
  // The last leaf: every sibling on its path is to the left.
  const path = inclusionRanges(size, size + 1).map(() => randomBytes(32));
  const root = path.reduce<Uint8Array>(
    (hash, sibling) => nodeHash(nativeSha256, sibling, hash),
    leafHash(nativeSha256, entryBytes(snapshot)),
  );
  const checkpoint = signNote(
    formatCheckpoint({ origin: LOCAL_ORIGIN, size: size + 1, root }),
    noteSigner(nativeSha256, LOCAL_ORIGIN, key),
  );
  const location = encodeLocation({
    schema_version: LOCATION_SCHEMA,
    snapshot,
    tlog_proof: formatTlogProof({ index: size, path, checkpoint }),
    map: { level: head!.level, digest: toHex(head!.digest) },
    shares: null,
    share_change: 0,
  });
  const logVkey = formatVkey(nativeSha256, LOCAL_ORIGIN, key.publicKey);
  return { logVkey, checkpoint, location };
}
