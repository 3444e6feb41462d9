import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { toBase64Url, toHex, utf8 } from '#protocol/bytes';
import { smallOrderPublicKeys } from '#protocol/ed25519';
import { jwkThumbprint } from '#protocol/keys';
import { encodeLogState } from '#protocol/state/log-state';
import {
  aepKeyMapKey,
  decodeAepKey,
  decodeHistory,
  decodeProof,
  proofMapKey,
} from '#protocol/state/record';
import { fullLog } from '../fixtures/full-log.js';
import { sha256 } from '../fixtures/leaves.js';
import { delegationBy, proofIdOf, PublicLog, secondsIn } from '../fixtures/public-log.js';
import {
  delegated,
  type Entry,
  plain,
  randomLog,
  randomNumbers,
  root,
  startedLog,
  successor,
  unknown,
  verifier,
} from '../fixtures/random-log.js';

/** The state and the map that result from the entries of a log, as texts to compare. */
const resultOf = (log: PublicLog) => ({
  state: toHex(encodeLogState(log.state)),
  map: [...log.map]
    .map(([key, { record, history }]) => [key, toHex(record), toHex(history)])
    .sort(),
});

it.each([[[1]], [[2, 5]], [[18]]])(
  'reducer > gives the map of the Python implementation for batches of %j entries',
  async (sizes) => {
    const entries = fullLog.entries.map(({ canonical }) => utf8(canonical));
    const log = await PublicLog.replay(entries, sizes);
    const isPublic = ({ key }: { key: string }): boolean => /^0[12]/.test(key);
    const expected = fullLog.map.filter(isPublic);
    expect(resultOf(log).map).toEqual(
      expected.map(({ key, record, history }) => [key, record, history]),
    );
    expect(log.state.snapshot).toEqual({ index: 17, size: 17, lookupFrom: 0 });
  },
);

it('reducer > gives the same result however a log is divided into batches', async () => {
  const seen = new Set<string>();
  const sizes = fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(randomNumbers, sizes, async (all, batches) => {
      const log = await randomLog(all);
      for (const { history } of log.map.values()) {
        for (const { type } of decodeHistory(history)) seen.add(type);
      }
      const result = resultOf(log);
      expect(resultOf(await PublicLog.replay(log.entries, batches))).toEqual(result);
      expect(resultOf(await PublicLog.replay(log.entries, [log.size]))).toEqual(result);
      expect(resultOf(await PublicLog.replay(log.entries, [log.size], 0))).toEqual(result);
    }),
    { numRuns: 150 },
  );
  expect([...seen].sort()).toEqual(['erased', 'failed', 'lost', 'passed', 'restored', 'revoked']);
});

const proofIn = (log: PublicLog, number: number) => {
  const value = log.map.get(toHex(proofMapKey(proofIdOf(number))))!;
  const events = decodeHistory(value.history).map(({ type, index }) => `${type} ${String(index)}`);
  return { ...decodeProof(value.record), events };
};
const lifeIn = (log: PublicLog, activation: number) => {
  const value = log.map.get(toHex(aepKeyMapKey(0, activation)))!;
  const { from, retiredFrom, compromisedFrom } = decodeAepKey(value.record);
  return [from, retiredFrom, compromisedFrom];
};

const NO_ENDS = { proof: null, certificate: null, passport: null, trust: null };
const IN_1969 = '1969-12-31T23:59:59.999Z';
const smallOrder = smallOrderPublicKeys()[1]!;
const smallOrderKey = {
  ...unknown,
  public_key: toBase64Url(smallOrder),
  key_id: jwkThumbprint(sha256, smallOrder),
};

describe('a log entry that breaks a rule changes nothing', () => {
  it.each<[string, (log: PublicLog) => Entry]>([
    ['junk', () => utf8('{}')],
    ['proof of another shard', (log) => log.proof(9, plain, { proof_id: proofIdOf(9, '001') })],
    ['repeated proof', (log) => log.proof(1, plain, { aep_hash: 'cc'.repeat(32) })],
    ['proof before 1970', (log) => log.proof(9, plain, { time: IN_1969 })],
    [
      'proof with an expiry in 1969',
      (log) => log.proof(9, plain, { valid_until: { ...NO_ENDS, trust: IN_1969 } }),
    ],
    ['status of an unknown proof', (log) => log.status(9, 'proof')],
    ['repeated status', (log) => log.status(2, 'trust')],
    ['erasure above its index', (log) => log.erasure([[2, log.size + 1]])],
    ['repeated erasure', (log) => log.erasure([[4, 5]])],
    ['activation under another use', (log) => log.key('verifier', 'activate', plain)],
    ['retirement under another use', (log) => log.key('aep_root', 'retire', plain)],
    ['retirement of an unknown key', (log) => log.key('aep', 'retire', unknown)],
    [
      'key with the id of another key',
      (log) => log.key('aep', 'activate', { ...unknown, key_id: root.key_id }),
    ],
    ['key of small order', (log) => log.key('aep', 'activate', smallOrderKey)],
    ['key of another log', (log) => log.logKey('other.example/svc', unknown)],
    ['verdict that omits the previous verdict', (log) => log.verdict(verifier, { previous: null })],
    [
      'verdict above its index',
      (log) => log.verdict(verifier, { to: log.size + 1, root: NO_ROOT }),
    ],
    ['verdict below the last verdict', (log) => log.verdict(verifier, { to: 4 })],
    ['verdict on another tree', (log) => log.verdict(verifier, { root: NO_ROOT })],
    [
      'verdict with an earlier expiry scan',
      (log) => log.verdict(verifier, { expired_through: secondsIn(1) }),
    ],
    ['verdict by an unknown key', (log) => log.verdict(unknown)],
    ['verdict by an AEP key', (log) => log.verdict(plain)],
    ['verdict with another signature', (log) => log.verdict({ ...verifier, sign: plain.sign })],
    ['snapshot of another log', (log) => log.snapshot({ origin: 'other.example/svc' })],
    ['snapshot without this log', (log) => log.snapshot({ shard: 1 })],
    ['snapshot above its index', (log) => log.snapshot({ size: log.size + 1, root: NO_ROOT })],
    ['smaller snapshot', (log) => log.snapshot({ size: log.state.snapshot!.size - 1 })],
    ['snapshot with a lower lookup_from', (log) => log.snapshot({ lookup_from: 0 })],
    ['snapshot of another tree', (log) => log.snapshot({ root: NO_ROOT })],
    ['snapshot with another expiry scan', (log) => log.snapshot({ expired_through: secondsIn(0) })],
  ])('%s', async (_, make) => {
    const log = await startedLog();
    await log.append(log.proof(1, plain), log.proof(2, plain), log.proof(3, plain));
    await log.append(log.status(2, 'trust'), log.erasure([[4, 5]]));
    await log.append(log.verdict(verifier, { failed: [3] }));
    await log.append(log.snapshot({ lookup_from: 1 }));
    const { size, ...state } = log.state;
    const { map } = resultOf(log);
    await log.append(make(log));
    expect(log.state).toEqual({ ...state, size: size + 1 });
    expect(resultOf(log).map).toEqual(map);
  });

  it('a snapshot entry that names shard 0, in the log of shard 1', async () => {
    const log = await startedLog(1);
    await log.append(log.verdict(verifier));
    await log.append(log.snapshot());
    expect(log.state).toMatchObject({ size: 4, verdict: { index: 2 }, snapshot: null });
  });
});
const NO_ROOT = new PublicLog().rootAt(0);

it('a snapshot entry has an effect only with the `expired_through` of the last verdict entry below its size', async () => {
  const log = await startedLog();
  const first = await log.append(log.verdict(verifier));
  await log.append(log.verdict(verifier));
  const expired_through = secondsIn(first);
  await log.append(log.snapshot({ size: first }), log.snapshot({ size: first + 1 }));
  expect(log.state.snapshot).toBeNull();
  await log.append(log.snapshot({ size: first + 1, expired_through }));
  expect(log.state.snapshot).toMatchObject({ size: first + 1 });
});

describe('verdict', () => {
  it('fails and restores proofs, and keeps the tree size of their first verdict', async () => {
    const log = await startedLog();
    await log.append(log.proof(1, plain), log.proof(2, plain));
    await log.append(log.verdict(verifier, { failed: [2] }));
    await log.append(log.verdict(verifier, { failed: [3], restored: [2] }));
    const time = Date.parse(secondsIn(5));
    const first = {
      verdict: 'pass',
      verdictSize: 4,
      verifiedAt: time,
      events: ['failed 4', 'restored 5'],
    };
    const second = {
      verdict: 'fail',
      verdictSize: 4,
      verifiedAt: time,
      events: ['passed 4', 'failed 5'],
    };
    expect(proofIn(log, 1)).toMatchObject(first);
    expect(proofIn(log, 2)).toMatchObject(second);
    await log.append(log.verdict(verifier, { failed: [3], restored: [2] }));
    expect(proofIn(log, 1)).toMatchObject(first);
    expect(proofIn(log, 2)).toMatchObject(second);
  });

  it('does not change proofs without payload, or whose key is not active', async () => {
    const log = await startedLog();
    await log.append(log.proof(1, plain), log.proof(2, unknown), log.proof(3, plain));
    await log.append(log.erasure([[2, 3]]), log.key('aep', 'compromise', plain, { from_index: 4 }));
    await log.append(log.verdict(verifier, { failed: [2, 3, 4] }));
    for (const number of [1, 2, 3]) {
      expect(proofIn(log, number)).toMatchObject({
        verdict: 'none',
        verdictSize: null,
        verifiedAt: null,
      });
    }
    expect(proofIn(log, 2).keyIndex).toBeNull();
  });

  it('has an effect until its key is retired; then one verdict by the next key may lower `expired_through`', async () => {
    const log = await startedLog();
    await log.append(log.verdict(verifier), log.key('verifier', 'activate', successor));
    await log.append(log.key('verifier', 'retire', verifier));
    await log.append(log.verdict(verifier));
    expect(log.state.verdict).toMatchObject({ index: 2 });
    await log.append(log.verdict(successor, { expired_through: secondsIn(1) }));
    await log.append(log.verdict(successor, { expired_through: secondsIn(0) }));
    expect(log.state.verdict).toMatchObject({ index: 6, expiredThrough: secondsIn(1) });
  });
});

describe('AEP key', () => {
  const delegatedLog = async (until: number, max: number, by = root) => {
    const log = await startedLog();
    await log.append(log.key('aep_root', 'activate', root));
    const delegation = { ...delegationBy(by, delegated, until, max), root_key_id: root.key_id };
    await log.append(log.key('aep', 'activate', delegated, { delegation }));
    return log;
  };

  it('is retired by an entry, from the next leaf on', async () => {
    const log = await startedLog();
    await log.append(log.key('aep', 'retire', plain));
    expect(lifeIn(log, 0)).toEqual([1, 3, null]);
  });

  it.each([
    ['at until_index', 5, 9, [4, 5, null]],
    ['after max_proofs proofs', 100, 2, [4, 6, null]],
    ['before its first leaf', 4, 9, [null, 4, null]],
    ['at an index that no record can have', 2 ** 53 - 1, 9, [4, null, null]],
  ])('is retired %s', async (_, until, max, life) => {
    const log = await delegatedLog(until, max);
    for (const number of [1, 2, 3]) await log.append(log.proof(number, delegated));
    expect(lifeIn(log, 3)).toEqual(life);
  });

  it('has no valid signatures if its delegation is invalid', async () => {
    expect(lifeIn(await delegatedLog(100, 9, plain), 3)).toEqual([null, 100, null]);
    const log = await startedLog();
    const delegation = delegationBy(root, delegated, 100, 9);
    await log.append(log.key('aep', 'activate', delegated, { delegation }));
    expect(lifeIn(log, 2)).toEqual([null, 100, null]);
    const retired = await startedLog();
    await retired.append(retired.key('aep_root', 'activate', root));
    await retired.append(retired.key('aep_root', 'retire', root));
    await retired.append(retired.key('aep', 'activate', delegated, { delegation }));
    expect(lifeIn(retired, 4)).toEqual([null, 100, null]);
  });

  it('is compromised when its root is compromised, but not retired when its root is retired', async () => {
    const log = await delegatedLog(100, 9);
    await log.append(log.key('aep_root', 'retire', root));
    expect(lifeIn(log, 3)).toEqual([4, 100, null]);
    await log.append(log.key('aep_root', 'compromise', root, { from_index: 8 }));
    await log.append(log.key('aep', 'compromise', delegated, { from_index: 9 }));
    expect(lifeIn(log, 3)).toEqual([4, 100, 8]);
    expect(lifeIn(log, 0)).toEqual([1, null, null]);
  });
});
