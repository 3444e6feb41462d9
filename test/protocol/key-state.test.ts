import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { readEntry } from '#protocol/entries';
import type { KeyedEntry } from '#protocol/keys';
import { KeyStates, withLogKeys } from '#protocol/state/log-keys';
import { keyStatusAt } from '#protocol/state/log-state';
import { nativeVerify } from '#runtime/crypto/node';
import { sha256 } from '../fixtures/leaves.js';
import { logKey, ORIGIN } from '../fixtures/public-log.js';
import { delegated, plain, randomLog, randomNumbers, successor } from '../fixtures/random-log.js';

it('KeyStates > agrees with the reducer about every key at every leaf', async () => {
  const seen = new Set<string>();
  const ctx = { sha256, verify: nativeVerify, origins: ['log.example/ended', ORIGIN] };
  await fc.assert(
    fc.asyncProperty(randomNumbers, async (all) => {
      const log = await randomLog(all);
      const entries = log.entries.flatMap((bytes, leafIndex): KeyedEntry[] => {
        const entry = readEntry(bytes);
        return entry === null ? [] : [{ leafIndex, entry }];
      });
      const [counted, uncounted] = [new KeyStates(ctx, entries), new KeyStates(ctx, entries)];
      const ids = [plain, delegated, successor].map(({ key_id }) => key_id);
      for (const { id, index, maxProofs } of counted.toCount(ids)) {
        const firsts = new Map<string, { by: string; at: number }>();
        for (const { entry, leafIndex: at } of entries) {
          if (entry.type !== 'proof' || firsts.has(entry.proof_id)) continue;
          firsts.set(entry.proof_id, { by: entry.key_id, at });
        }
        const own = [...firsts.values()].filter(({ at, by }) => by === id && at > index);
        const last = own[maxProofs! - 1];
        counted.countProofs(id, last === undefined ? null : last.at + 1);
      }
      for (const id of ids) {
        const key = log.state.keys.get(id);
        for (let at = 0; at < log.entries.length; at++) {
          const expected = key?.use === 'aep' ? keyStatusAt(key, at) : 'unknown';
          expect(counted.at(id, at).state).toBe(expected);
          expect([expected, 'unknown']).toContain(uncounted.at(id, at).state);
          const voidedAt = counted.voidedAt(id, at);
          expect(voidedAt !== null).toBe(expected === 'compromised');
          seen.add(`${key?.root === null ? 'plain' : 'delegated'} ${expected}`);
        }
      }
    }),
    { numRuns: 150, seed: 1 },
  );
  const states = ['active', 'compromised', 'unknown'];
  const expected = [...states.map((state) => `plain ${state}`), 'delegated retired'];
  expect([...seen]).toEqual(
    expect.arrayContaining([...expected, ...states.map((state) => `delegated ${state}`)]),
  );
});

it('withLogKeys > never raises the bound of a pinned key', () => {
  const key = { ...logKey(), maxSize: 7 };
  expect(withLogKeys([key], [{ ...key, maxSize: 8 }])).toEqual([key]);
});
