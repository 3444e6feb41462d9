import { beforeEach, describe, expect, it } from 'vitest';
import { fromBase64, fromUtf8, utf8 } from '#protocol/bytes';
import { formatCheckpoint, formatTlogProof, parseTlogProof } from '#protocol/checkpoint';
import { UnreachableError, type LogFiles } from '#protocol/monitor/files';
import type { Finding } from '#protocol/monitor/findings';
import { MemoryPages } from '#protocol/monitor/map-store';
import { Monitor } from '#protocol/monitor/monitor';
import { decodeState, encodeState, newState, type MonitorState } from '#protocol/monitor/state';
import { parseWatched, type Watched } from '#protocol/monitor/watch';
import { readLog } from '#protocol/offline/trust';
import type { SnapshotEntry } from '#protocol/schemas/log-entry';
import { COSIGNED_PATH, LOCATION_PATH } from '#protocol/snapshot/location';
import { cosign } from '#protocol/cosignature';
import { COSIGNATURE_TYPE, formatVkey, noteSigner, signNote, splitNote } from '#protocol/note';
import { parseTime } from '#protocol/time';
import { nativeVerify } from '#runtime/crypto/node';
import { sha256 } from '../fixtures/leaves.js';
import { MAP_LIES } from '../fixtures/map-lies.js';
import { receiptEvidence } from '../fixtures/receipt-evidence.js';
import { logKey, ORIGIN, proofIdOf, secondsIn, testKey } from '../fixtures/public-log.js';
import { filesOf, ServedLog } from '../fixtures/served-log.js';

let log: ServedLog;
/** Milliseconds by which the monitor's clock is ahead of the time of the next entry. */
let ahead: number;
const now = (): number => parseTime(secondsIn(log.size)) + ahead;
let stored: MonitorState;
let store: MemoryPages;
beforeEach(async () => {
  log = await ServedLog.open();
  await log.snapshotAll();
  ahead = 0;
  stored = newState(ORIGIN);
  store = new MemoryPages();
});

interface Look {
  main?: LogFiles;
  others?: LogFiles[];
  watched?: Watched[];
  policy?: string;
  vkey?: string;
}

/** A monitor that starts from the state that the last monitor stored. */
function open(policy?: string, vkey = log.keys.log.vkey): Monitor {
  const pin = readLog(sha256, { vkey, origin: ORIGIN, policy })!;
  return new Monitor({
    crypto: { sha256, verify: nativeVerify },
    pin,
    store,
    state: decodeState(encodeState(stored)),
    save: (state) => {
      stored = decodeState(encodeState(state));
      return Promise.resolve();
    },
    now,
    report: () => undefined,
  });
}

async function look({ main, others = [], watched, policy, vkey }: Look = {}): Promise<Finding[]> {
  const found = await open(policy, vkey).pass([main ?? filesOf(log.files), ...others], watched);
  return found.filter(({ code }) => code !== 'key_entry');
}
const codes = (found: readonly Finding[]): string[] => found.map(({ code }) => code);

/** A policy that requires a cosignature by this witness. */
function policyOf({ name, publicKey }: ReturnType<typeof logKey>): string {
  const witness = formatVkey(sha256, name, publicKey, COSIGNATURE_TYPE);
  return `witness w ${witness}\nquorum w\n`;
}
const noteIn = ({ files }: ServedLog): string => fromUtf8(files.get('checkpoint')!);
const watch = (value: object): Watched[] => {
  const json = JSON.stringify(value);
  return parseWatched(sha256, utf8(json), json, now())!;
};
const receipt = (n: number) => watch({ registry_proof_id: proofIdOf(n), vee_recorded: true });
const tlogProofIn = ({ files }: ServedLog): string =>
  (JSON.parse(fromUtf8(files.get(LOCATION_PATH)!)) as { tlog_proof: string }).tlog_proof;

it('monitor > reports the keys of a correct log, follows it, and rebuilds its map', async () => {
  const first = await open().pass([filesOf(log.files)]);
  expect(first.map(({ code, where }) => [code, where])).toEqual([
    ['key_entry', 'entry 0'],
    ['key_entry', 'entry 1'],
    ['key_entry', 'entry 8'],
  ]);
  for (let n = 10; n < 1000; n += 150) {
    const proofs = Array.from({ length: 150 }, (_, i) => log.proof(n + i, log.keys.aep));
    await log.append(...proofs);
    await log.snapshotAll();
    expect(await look()).toEqual([]);
  }
  expect(stored.rebuilt.state).toEqual(log.state);
  const { map } = stored.rebuilt;
  // The map depends on the log only, not on when the monitor polls.
  stored = newState(ORIGIN);
  store = new MemoryPages();
  await look();
  expect(stored.rebuilt.map).toEqual(map);
});

describe('monitor of a publisher that misuses its genuine keys', () => {
  it('finds a snapshot that commits to a false map', async () => {
    expect(await look()).toEqual([]);
    const index = await log.snapshotAll(MAP_LIES.validForRevoked);
    expect(await look()).toMatchObject([
      { code: 'map_root_differs', where: `entry ${String(index)}` },
    ]);
    // The log contains the false root permanently.
    expect(stored.lasting).toMatchObject([{ code: 'map_root_differs' }]);
    await log.snapshotAll();
    expect(await look()).toEqual([]);
  });

  it('finds a snapshot entry that breaks a rule', async () => {
    await log.append(log.snapshot({ root: log.rootAt(1) }));
    log.publish();
    expect(codes(await look())).toEqual(['entry_ignored']);
  });

  it('finds a snapshot entry with a size for which the monitor has no map root', async () => {
    await log.append(log.snapshot({ size: log.size - 1 }));
    log.publish();
    expect(codes(await look())).toEqual(['map_root_differs']);
    await log.append(log.proof(30, log.keys.aep), log.proof(31, log.keys.aep));
    log.publish();
    await look();
    await log.append(log.snapshot({ size: log.size - 1 }));
    log.publish();
    expect(codes(await look())).toEqual(['map_root_unchecked']);
  });

  it('follows log keys that the log activates, and refuses larger trees that a retired key signed', async () => {
    const [former, next] = [log.keys.log, logKey(ORIGIN)];
    const { vkey } = former;
    const ofLog = (key: typeof former, fromSize?: number) =>
      log.logKey(ORIGIN, { raw: key.publicKey }, fromSize);
    await log.append(ofLog(former), ofLog(next));
    log.publish();
    expect(await look({ vkey })).toEqual([]);
    const lastSize = log.size;
    Object.assign(log.keys, { log: next });
    await log.snapshotAll();
    expect(await look({ vkey })).toEqual([]);
    await log.append(ofLog(former, lastSize));
    await log.snapshotAll();
    expect(await look({ vkey })).toEqual([]);
    Object.assign(log.keys, { log: former });
    log.publish();
    expect(codes(await look({ vkey }))).toContain('checkpoint_unverifiable');
    // A new monitor that has read the retirement refuses the checkpoint, too.
    [stored, store] = [newState(ORIGIN), new MemoryPages()];
    expect(codes(await look({ vkey }))).toContain('checkpoint_unverifiable');
  });

  it('finds a fork of the same size, at the next poll and at a mirror', async () => {
    const fork = await ServedLog.open({ keys: log.keys });
    fork.entries[2] = log.entries[3]!;
    await fork.snapshotAll();
    const mirror = filesOf(fork.files, 'mirror');
    const found = await look({ others: [mirror] });
    // The served snapshot, too, proves the fork.
    expect(codes(found)).toEqual(['log_forked', 'log_forked']);
    expect(found[0]).toMatchObject({ where: 'mirror', notes: [fork, log].map(noteIn) });
    stored.lasting = [];
    expect(codes(await look({ main: mirror }))[0]).toBe('log_forked');
    expect(stored.head?.note).toBe(noteIn(log));
  });
});

describe('monitor of one source', () => {
  const altered = (bytes: Uint8Array): Uint8Array =>
    bytes.map((byte, at) => (at === bytes.length - 1 ? byte ^ 1 : byte));

  it.each([
    ['no checkpoint', 'checkpoint', null, 'checkpoint_missing'],
    ['an unsigned checkpoint', 'checkpoint', utf8('x'), 'checkpoint_unverifiable'],
    ['no entries', 'tile/entries/000.p/11', null, 'log_damaged'],
    ['other entries', 'tile/entries/000.p/11', altered, 'log_damaged'],
    ['fewer entries', 'tile/entries/000.p/11', utf8('\0\u0001x'), 'log_damaged'],
    ['a malformed snapshot location', LOCATION_PATH, utf8('{}'), 'snapshot_unverifiable'],
  ])('reports %s', async (_what, path, bytes, code) => {
    if (bytes === null) log.files.delete(path);
    else log.files.set(path, bytes instanceof Uint8Array ? bytes : bytes(log.files.get(path)!));
    expect(codes(await look())).toEqual([code]);
  });

  it('reports altered tiles when it needs these tiles to prove that the log only grew', async () => {
    await look();
    await log.snapshotAll();
    const path = `tile/0/000.p/${String(log.size)}`;
    log.files.set(path, altered(log.files.get(path)!));
    expect(codes(await look())).toContain('log_damaged');
    expect(stored.head?.size).toBe(log.size - 2);
  });

  it('reports a checkpoint that no pinned key signed, or that lacks the quorum of the policy', async () => {
    const other = new Map(log.files);
    log.publish();
    Object.assign(log.keys, { log: logKey(ORIGIN) });
    expect(codes(await look({ main: filesOf(other) }))).toEqual(['checkpoint_unverifiable']);
    log.publish();
    expect(codes(await look({ policy: policyOf(logKey('w.example')) }))).toContain(
      'checkpoint_unverifiable',
    );
    expect(await look()).toEqual([]);
  });

  it('accepts the cosigned checkpoint of a static mirror beside newer checkpoints without cosignatures', async () => {
    const key = logKey('w.example');
    const policy = policyOf(key);
    const note = noteIn(log);
    const signer = noteSigner(sha256, key.name, key, COSIGNATURE_TYPE);
    log.files.set(COSIGNED_PATH, utf8(note + cosign(splitNote(note).text, signer, 1)));
    await log.snapshotAll();
    const { proof_id, aep_hash } = JSON.parse(fromUtf8(log.entries[2]!)) as Record<string, string>;
    const tlog_proof = tlogProofIn(log);
    const watched = watch({ entry: { proof_id, aep_hash }, tlog_proof });
    expect(await look({ policy, watched })).toEqual([]);
    expect(stored.head!.size).toBe(log.size - 2);
    expect(await look()).toEqual([]);
    expect(stored.head!.size).toBe(log.size);
  });

  it('resumes after a checkpoint whose signer name has a character that strict JSON excludes', async () => {
    log.files.set('checkpoint', utf8(`${noteIn(log)}\u2014 \0 AAAAAAA=\n`));
    expect(await look()).toEqual([]);
    expect(await look()).toEqual([]);
  });

  it('reports an unreachable source', async () => {
    const main = filesOf(log.files);
    const down = { ...main, read: () => Promise.reject(new UnreachableError('down')) };
    expect(codes(await look({ main: down }))).toEqual(['unreachable']);
    expect(await look({ main, others: [down] })).toMatchObject([{ code: 'unreachable' }]);
  });

  it('reports a checkpoint or snapshot that is older than one that the source served before', async () => {
    const earlier = new Map(log.files);
    await log.snapshotAll();
    await look();
    const found = codes(await look({ main: filesOf(earlier) }));
    expect(found).toContain('checkpoint_went_back');
    expect(found).not.toContain('log_forked');
    log.files.set(LOCATION_PATH, earlier.get(LOCATION_PATH)!);
    expect(codes(await look())).toEqual(['snapshot_went_back']);
  });

  it('reports an expired snapshot', async () => {
    ahead = 1_000_000;
    expect(codes(await look())).toEqual(['snapshot_expired']);
  });

  it('reports a snapshot as expired 24 hours after its expiry scan, even before its valid_until', async () => {
    const day = 24 * 60 * 60;
    const [time, valid_until] = [secondsIn(day - 60), secondsIn(day + 840)];
    // The snapshot entry is the last entry; the verdict entry with the expiry scan precedes it.
    await log.snapshotAll(undefined, (entry) => ({ ...entry, time, valid_until }));
    ahead = 1000 * (day - 2) - 1;
    expect(await look()).toEqual([]);
    ahead += 1;
    expect(codes(await look())).toEqual(['snapshot_expired']);
  });

  it('dates a poll before its requests, so that slow tiles raise no false alarm', async () => {
    const watched = receipt(77);
    await look();
    const monitor = open();
    await log.append(log.status(4, 'proof'));
    log.publish();
    const slow: LogFiles = {
      where: 'log',
      read: (path) => {
        // Longer than the merge delay, and than the snapshot is valid.
        if (path.startsWith('tile/')) ahead = 1_000_000;
        return filesOf(log.files).read(path);
      },
    };
    expect(codes(await monitor.pass([slow], watched))).toEqual([]);
    ahead = 0;
    await log.append(log.status(1, 'proof'));
    log.publish();
    expect(codes(await monitor.pass([filesOf(log.files)]))).toEqual([]);
  });

  it.each(['the same monitor', 'another monitor'])(
    'reports entries that an earlier checkpoint should have covered, also when %s reads them after an interrupted pass',
    async (which) => {
      const monitor = open();
      const pass = (files: ServedLog['files']): Promise<readonly Finding[]> =>
        which === 'the same monitor'
          ? monitor.pass([filesOf(files)])
          : look({ main: filesOf(files) });
      ahead = 60_500;
      await pass(log.files);
      await log.append(log.status(4, 'proof'));
      log.publish();
      const damaged = new Map(log.files);
      damaged.delete(`tile/entries/000.p/${String(log.size)}`);
      expect(codes(await pass(damaged))).toEqual(['log_damaged']);
      expect(stored.looks).toHaveLength(1);
      await log.append(log.status(1, 'proof'));
      log.publish();
      expect(await pass(log.files)).toMatchObject([
        { code: 'merge_delay_exceeded', where: 'entry 11' },
        { code: 'merge_delay_exceeded', where: 'entry 12' },
      ]);
      await log.append(log.proof(30, log.keys.aep));
      log.publish();
      expect(await pass(log.files)).toEqual([]);
      expect(stored.looks).toBeUndefined();
    },
  );

  it('rebuilds the map when a stored page is damaged', async () => {
    await look();
    for (const page of store.pages.values()) page.fill(0);
    await log.snapshotAll();
    expect(await look()).toEqual([]);
    expect(stored.rebuilt.state).toEqual(log.state);
  });
});

describe('monitor of watched proofs', () => {
  it('reports a receipt whose proof the log lacks after the merge delay', async () => {
    const watched = [...receipt(0), ...receipt(77)];
    expect(await look({ watched })).toEqual([]);
    ahead = 61_000;
    expect(await look({ watched })).toMatchObject([
      { code: 'proof_omitted', where: proofIdOf(77) },
    ]);
  });

  it('rebuilds the map when the page of a watched proof is damaged', async () => {
    const watched = receipt(0);
    expect(await look({ watched })).toEqual([]);
    ahead = 61_000;
    for (const page of store.pages.values()) page.fill(0);
    expect(await look({ watched })).toEqual([]);
    expect(stored.rebuilt.state).toEqual(log.state);
    expect(stored.watched[proofIdOf(0)]).toMatchObject({ status: 'VALID' });
  });

  it('reports no change and no omission while a damaged map cannot be rebuilt', async () => {
    const watched = [0, 1].flatMap(receipt);
    expect(await look({ watched })).toEqual([]);
    ahead = 61_000;
    for (const page of store.pages.values()) page.fill(0);
    const files = new Map(log.files);
    files.delete(`tile/entries/000.p/${String(log.size)}`);
    expect(codes(await look({ watched, main: filesOf(files) }))).toEqual(['log_damaged']);
    expect(await look({ watched })).toEqual([]);
  });

  it('reports no omission while it cannot read every entry', async () => {
    const watched = receipt(77);
    expect(await look({ watched })).toEqual([]);
    ahead = 61_000;
    await log.append(log.proof(77, log.keys.aep));
    await log.snapshotAll();
    log.files.delete(`tile/entries/000.p/${String(log.size)}`);
    const found = codes(await look({ watched }));
    expect(found).toContain('log_damaged');
    expect(found).not.toContain('proof_omitted');
  });

  it('reports that the log omits the proof of stored evidence, after the declared merge delay', async () => {
    const delayed = (entry: SnapshotEntry) => ({ ...entry, max_merge_delay: 600 });
    await log.snapshotAll(undefined, delayed);
    const logged = receiptEvidence(76, log.keys.aep);
    await log.append(logged.entry);
    await log.snapshotAll(undefined, delayed);
    const omitted = receiptEvidence(77, log.keys.aep);
    const watched = [...watch(logged), ...watch(omitted)];
    ahead = 599_000;
    expect(await look({ watched })).toEqual([]);
    ahead = 601_000;
    const [found] = await look({ watched });
    expect(found).toMatchObject({ code: 'proof_omitted', where: proofIdOf(77) });
    expect(found?.detail).toContain('600 s after its receipt');
  });

  it('reports evidence without a signature by an AEP key of the log as unverifiable, not as omitted', async () => {
    ahead = 61_000;
    const genuine = receiptEvidence(77, log.keys.aep);
    const stranger = receiptEvidence(77, testKey());
    const { signatures } = stranger.proof_record.envelope;
    const unsigned = { ...genuine, proof_record: stranger.proof_record };
    const otherSignature = receiptEvidence(77, { ...log.keys.aep, sign: () => signatures[0].sig });
    for (const [evidence, detail] of [
      [stranger, 'the log has no AEP key'],
      [unsigned, 'key_id_mismatch'],
      [otherSignature, 'did not sign the document'],
    ] as const) {
      const found = await look({ watched: watch(evidence) });
      expect(codes(found)).toEqual(['receipt_unverifiable']);
      expect(found[0]?.detail).toContain(detail);
    }
  });

  it('reports a document that contradicts the log, and a checkpoint of a fork', async () => {
    const fork = await ServedLog.open({ keys: log.keys });
    fork.entries[2] = log.entries[3]!;
    await fork.snapshotAll();
    const entry = { proof_id: proofIdOf(0), aep_hash: 'cc'.repeat(32) };
    const tlog_proof = tlogProofIn(fork);
    // Receipt evidence has a tlog-proof, and an export has only the checkpoint.
    const { checkpoint } = parseTlogProof(tlog_proof);
    for (const proved of [{ tlog_proof }, { inclusion: { checkpoint } }]) {
      stored = newState(ORIGIN);
      const found = await look({ watched: watch({ entry, ...proved }) });
      expect(codes(found)).toEqual(['log_forked', 'receipt_contradicted']);
    }
  });

  it('gives notice of a document with a checkpoint of another log', async () => {
    const [index, former] = [2, logKey('former.example/log')];
    const entry = JSON.parse(fromUtf8(log.entries[index]!)) as object;
    const head = { origin: former.name, size: 3, root: fromBase64(log.rootAt(3)) };
    const checkpoint = signNote(formatCheckpoint(head), former);
    const tlog_proof = formatTlogProof({ index, path: [], checkpoint });
    for (const proved of [{ tlog_proof }, { inclusion: { checkpoint } }]) {
      const found = await look({ watched: watch({ entry, ...proved }) });
      expect(codes(found)).toEqual(['checkpoint_of_other_log']);
    }
  });

  it('reports each change of the status of a watched proof id', async () => {
    const ids = [0, 1, 2, 3, 4, 78].map((n) => proofIdOf(n)).join('\n');
    const watched = parseWatched(sha256, utf8(ids), ids, 0)!;
    expect(await look({ watched })).toEqual([]);
    expect(Object.values(stored.watched).map(({ status }) => status)).toEqual([
      'VALID',
      'VALID',
      'REVOKED',
      'EXPIRED',
      'BACKEND_LOOKUP_REQUIRED',
      'ABSENT',
    ]);
    await log.append(log.status(0, 'proof'));
    await log.snapshotAll();
    expect(await look({ watched })).toMatchObject([
      { code: 'status_changed', detail: 'from VALID to REVOKED' },
    ]);
  });
});
