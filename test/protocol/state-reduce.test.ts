import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fromHex, toHex, utf8 } from '#protocol/bytes';
import { entryBytes } from '#protocol/entries';
import { attempt } from '#protocol/errors';
import { mapKey } from '#protocol/map/nodes';
import { encodeLogState } from '#protocol/state/log-state';
import { decodeAepKey, decodeHistory, decodeProof } from '#protocol/state/record';
import { aepKeyKey } from '#protocol/state/reduce';
import { packageRoot } from '#runtime/process/files';
import {
  delegationBy,
  proofIdOf,
  PublicLog,
  secondsIn,
  testKey,
  type TestKey,
} from '../fixtures/public-log.js';

interface Vectors {
  entries: { canonical: string }[];
  map: { key: string; record: string; history: string }[];
}
const vectors = JSON.parse(
  readFileSync(join(packageRoot, 'protocol/vectors/next.json'), 'utf8'),
) as Vectors;

/** All that a log's entries give, in a form to compare. */
const resultOf = (log: PublicLog) => ({
  state: toHex(encodeLogState(log.state)),
  map: [...log.map]
    .map(([key, { record, history }]) => [key, toHex(record), toHex(history)])
    .sort(),
});

it.each([[1], [2, 5], [18]])(
  'batches of %j give the map of the Python implementation',
  async (...sizes) => {
    const entries = vectors.entries.map(({ canonical }) => utf8(canonical));
    const log = await PublicLog.replay(entries, sizes);
    const { map } = resultOf(log);
    const public_ = vectors.map.filter(({ key }) => key.startsWith('01') || key.startsWith('02'));
    expect(map).toEqual(public_.map(({ key, record, history }) => [key, record, history]));
    expect(log.state.snapshot).toEqual({ index: 17, size: 17, lookupFrom: 0 });
  },
);

const [root, plain, delegated, verifier, verifier2, unknown] = Array.from(
  { length: 6 },
  testKey,
) as [TestKey, TestKey, TestKey, TestKey, TestKey, TestKey];

const index = fc.nat(30);
const someKey = fc.constantFrom(plain, delegated, unknown);
const indexes = fc.uniqueArray(index, { maxLength: 4 }).map((list) => list.sort((a, b) => a - b));
const anyUse = fc.constantFrom('aep', 'aep_root', 'verifier') as fc.Arbitrary<'aep'>;
const anyKey = fc.constantFrom(root, plain, delegated, verifier, verifier2);
type Make = (log: PublicLog) => Parameters<PublicLog['append']>[0];
const commands: fc.Arbitrary<Make>[] = [
  fc.tuple(fc.nat(20), someKey).map(
    ([n, key]) =>
      (log) =>
        log.proof(n, key),
  ),
  fc.tuple(fc.nat(20), someKey).map(
    ([n, key]) =>
      (log) =>
        log.proof(n, key),
  ),
  fc.tuple(fc.nat(20), someKey).map(
    ([n, key]) =>
      (log) =>
        log.proof(n, key, { effect: 'DENY', valid_until: { proof: null } }),
  ),
  fc
    .tuple(fc.nat(3), indexes, indexes, fc.constantFrom(verifier, verifier2))
    .map(([lag, failed, restored, key]) => (log) => {
      const to = Math.max(log.state.verdict?.to ?? 0, log.size - lag);
      const below = failed.filter((leaf) => leaf < to);
      const others = restored.filter((leaf) => leaf < to && !below.includes(leaf));
      return log.verdict(key, { to, failed: below, restored: others });
    }),
  fc.tuple(index, fc.integer({ min: 1, max: 5 })).map(([from, length]) => (log) => {
    const start = Math.min(from, Math.max(0, log.size - length));
    return log.erasure([[start, start + length]], from % 2 === 0 ? 'erased' : 'lost');
  }),
  fc.tuple(fc.nat(20), fc.constantFrom('proof', 'trust')).map(
    ([n, kind]) =>
      (log) =>
        log.status(n, kind as 'proof'),
  ),
  fc.tuple(anyUse, fc.constantFrom('activate', 'retire'), anyKey).map(
    ([use, change, key]) =>
      (log) =>
        log.key(use, change, key),
  ),
  fc.tuple(anyUse, anyKey, index).map(
    ([use, key, from_index]) =>
      (log) =>
        log.key(use, 'compromise', key, { from_index }),
  ),
  fc.nat(2).map((lag) => (log) => log.snapshot({ size: Math.max(0, log.size - lag) })),
  fc.uint8Array({ maxLength: 20 }).map((bytes) => () => bytes),
];

it('the result does not depend on how a log is divided into batches', async () => {
  const seen = new Set<string>();
  const sizes = fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.oneof(...commands), { minLength: 10, maxLength: 40 }),
      sizes,
      async (made, batches) => {
        const log = new PublicLog();
        await log.append(log.key('aep_root', 'activate', root));
        const delegation = delegationBy(root, delegated, 35, 6);
        await log.append(log.key('aep', 'activate', delegated, { delegation }));
        await log.append(
          log.key('aep', 'activate', plain),
          log.key('verifier', 'activate', verifier),
        );
        for (const make of made) {
          const entry = make(log);
          const bytes = entry instanceof Uint8Array ? entry : attempt(() => entryBytes(entry));
          if (bytes !== undefined) await log.append(bytes);
        }
        for (const { history } of log.map.values()) {
          for (const { type } of decodeHistory(history)) seen.add(type);
        }
        for (const value of [...log.map].filter(([key]) => key.startsWith('01'))) {
          decodeProof(value[1].record);
        }
        const result = resultOf(log);
        expect(resultOf(await PublicLog.replay(log.entries, batches))).toEqual(result);
        expect(resultOf(await PublicLog.replay(log.entries, [log.size]))).toEqual(result);
      },
    ),
    { numRuns: 200 },
  );
  expect([...seen].sort()).toEqual(['erased', 'failed', 'lost', 'passed', 'restored', 'revoked']);
});
