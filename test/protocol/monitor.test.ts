import { describe, expect, it } from 'vitest';
import { concat, fromUtf8, utf8 } from '#protocol/bytes';
import { cosign } from '#protocol/cosignature';
import { UnreachableError, type LogFiles } from '#protocol/monitor/files';
import type { Finding } from '#protocol/monitor/findings';
import { COSIGNATURE_TYPE, formatVkey, noteSigner, splitNote } from '#protocol/note';
import { COSIGNED_PATH, LOCATION_PATH } from '#protocol/snapshot/location';
import { encodeEntryBundle } from '#protocol/tiles';
import { sha256 } from '../fixtures/leaves.js';
import { MAP_LIES } from '../fixtures/map-lies.js';
import {
  codes,
  forget,
  log,
  look,
  open,
  receipt,
  setAhead,
  stored,
  tlogProofIn,
  useMonitoredLog,
  watch,
} from '../fixtures/monitored-log.js';
import { logKey, ORIGIN, secondsIn, testKey } from '../fixtures/public-log.js';
import { filesOf, ServedLog } from '../fixtures/served-log.js';

useMonitoredLog();

function policyOf({ name, publicKey }: ReturnType<typeof logKey>): string {
  const witness = formatVkey(sha256, name, publicKey, COSIGNATURE_TYPE);
  return `witness w ${witness}\nquorum w\n`;
}
const noteIn = ({ files }: ServedLog): string => fromUtf8(files.get('checkpoint')!);

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
  forget();
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

  it('finds an entry that is more than a minute ahead of its clock', async () => {
    const ahead = (seconds: number) =>
      log.snapshotAll(undefined, (entry) => ({
        ...entry,
        time: secondsIn(log.size + 1 + seconds),
      }));
    await ahead(60);
    expect(await look()).toEqual([]);
    const index = await ahead(61);
    expect(await look()).toMatchObject([{ code: 'entry_ahead', where: `entry ${String(index)}` }]);
    expect(stored.lasting).toMatchObject([{ code: 'entry_ahead' }]);
  });

  it.each([0, 1])(
    'finds an entry ahead of its clock although the log served it late (with %i later entries)',
    async (more) => {
      const index = await log.snapshotAll(undefined, (entry) => ({
        ...entry,
        time: secondsIn(600),
      }));
      const withheld = new Map(log.files);
      withheld.delete(`tile/entries/000.p/${String(log.size)}`);
      for (const ahead of [0, 600_000]) {
        setAhead(ahead);
        expect(codes(await look({ main: filesOf(withheld) }))).toEqual(['log_damaged']);
      }
      await log.append(...[log.proof(30, log.keys.aep)].slice(0, more));
      log.publish();
      expect(await look()).toMatchObject([
        { code: 'entry_ahead', where: `entry ${String(index)}` },
      ]);
    },
  );

  it('does not report an entry that the log appended during a slow request of the monitor', async () => {
    setAhead(-90_000);
    const slow: LogFiles = {
      where: 'log',
      read: (path) => {
        if (path === 'checkpoint') setAhead(0);
        return filesOf(log.files).read(path);
      },
    };
    expect(await look({ main: slow })).toEqual([]);
  });

  it('keeps room for other lasting alarms while its own clock is behind', async () => {
    const time = secondsIn(log.size + 1001 + 61);
    const keys = Array.from({ length: 1001 }, () =>
      log.key('aep', 'activate', testKey(), { time }),
    );
    await log.append(...keys);
    await log.snapshotAll(MAP_LIES.validForRevoked);
    setAhead(-10_000);
    await look();
    expect(new Set(codes(stored.lasting))).toEqual(new Set(['entry_ahead', 'map_root_differs']));
  });

  it('reports every ignored entry, and keeps the first 100', async () => {
    await log.append(...Array.from({ length: 150 }, () => log.snapshot({ root: log.rootAt(1) })));
    log.publish();
    let reported = 0;
    const found = await open(undefined, undefined, () => (reported += 1)).pass([
      filesOf(log.files),
    ]);
    expect(codes(found).filter((code) => code === 'entry_ignored')).toHaveLength(100);
    expect(stored.lasting.map(({ where }) => where)).toEqual(
      Array.from({ length: 100 }, (_, n) => `entry ${String(log.size - 150 + n)}`),
    );
    // The log also has three key entries.
    expect(reported).toBe(153);
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
    forget();
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

  it('reports that a checkpoint is not UTF-8', async () => {
    const line = concat(utf8('\u2014 '), Uint8Array.of(0xff), utf8(' AAAAAAA=\n'));
    log.files.set('checkpoint', concat(log.files.get('checkpoint')!, line));
    const detail = 'invalid_utf8: not valid UTF-8';
    expect(await look()).toMatchObject([{ code: 'checkpoint_unverifiable', detail }]);
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

  it('reads full tiles when the partial tiles are gone', async () => {
    const files = new Map(log.files);
    for (const [path, bytes] of log.files) {
      const full = path.replace(/\.p\/.*/, '');
      if (full === path) continue;
      files.delete(path);
      const isBundle = path.startsWith('tile/entries');
      const later = [...log.entries, utf8('later')];
      files.set(full, isBundle ? encodeEntryBundle(later) : concat(bytes, new Uint8Array(32)));
    }
    expect(await look({ main: filesOf(files) })).toEqual([]);
  });

  it.each([{ origin: 'other.example/log' }, { shard: 1 }, { size: 99 }])(
    'rejects a location whose snapshot entry states %j',
    async (lie) => {
      await log.snapshotAll(undefined, (entry) => ({
        ...entry,
        logs: [{ ...entry.logs[0]!, ...lie }],
      }));
      expect(codes(await look())).toEqual(['entry_ignored', 'snapshot_unverifiable']);
    },
  );

  it('reports an expired snapshot', async () => {
    setAhead(1_000_000);
    expect(codes(await look())).toEqual(['snapshot_expired']);
  });

  it('reports a missing snapshot as expired', async () => {
    const young = await ServedLog.open({ keys: log.keys });
    young.publish();
    expect(codes(await look({ main: filesOf(young.files) }))).toEqual(['snapshot_expired']);
  });

  it('reports a snapshot as expired 24 hours after its expiry scan, even before its valid_until', async () => {
    const day = 24 * 60 * 60;
    const [time, valid_until] = [secondsIn(day - 60), secondsIn(day + 840)];
    // The snapshot entry is the last entry; the verdict entry with the expiry scan precedes it.
    await log.snapshotAll(undefined, (entry) => ({ ...entry, time, valid_until }));
    setAhead(1000 * (day - 2) - 1);
    expect(await look()).toEqual([]);
    setAhead(1000 * (day - 2));
    expect(codes(await look())).toEqual(['snapshot_expired']);
  });

  it('uses the time before its first request as the time of a poll, so slow tiles raise no alarm', async () => {
    const watched = receipt(77);
    await look();
    const monitor = open();
    await log.append(log.status(4, 'proof'));
    log.publish();
    const slow: LogFiles = {
      where: 'log',
      read: (path) => {
        // This read takes longer than the merge delay and the validity of the snapshot.
        if (path.startsWith('tile/')) setAhead(1_000_000);
        return filesOf(log.files).read(path);
      },
    };
    expect(codes(await monitor.pass([slow], watched))).toEqual([]);
    setAhead(0);
    await log.append(log.status(1, 'proof'));
    log.publish();
    expect(codes(await monitor.pass([filesOf(log.files)]))).toEqual([]);
  });

  it.each(['the same monitor', 'another monitor'])(
    'reports entries that an earlier checkpoint should have covered, even when %s reads them after an interrupted pass',
    async (which) => {
      const monitor = open();
      const pass = (files: ServedLog['files']): Promise<readonly Finding[]> =>
        which === 'the same monitor'
          ? monitor.pass([filesOf(files)])
          : look({ main: filesOf(files) });
      setAhead(60_500);
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

  it.each([
    [0, []],
    [1, ['merge_delay_exceeded']],
  ])('caps the declared merge delay at a day (a day plus %i ms)', async (more, found) => {
    await log.snapshotAll(undefined, (entry) => ({ ...entry, max_merge_delay: 1e9 }));
    setAhead(24 * 60 * 60 * 1000 + more);
    await look();
    await log.append(log.status(4, 'proof'));
    log.publish();
    setAhead(0);
    expect(codes(await look())).toEqual(found);
  });
});
