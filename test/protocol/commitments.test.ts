import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { fromHex } from '#protocol/bytes';
import {
  commitmentsOf,
  type Disclosure,
  disclosuresOf,
  firstUncommitted,
  saltsFrom,
} from '#protocol/commitments';
import type { AgentEnvelope } from '#protocol/schemas/admission';
import { documentHash } from '#protocol/hash';
import type { Budgets } from '#protocol/policy-input';
import type { JsonValue } from '#protocol/json';
import log from '../../protocol/vectors/full-log.json' with { type: 'json' };
import { sha256 } from '../fixtures/leaves.js';

it('salts are HMAC-SHA-256 of the name under the seed', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 32, maxLength: 32 }),
      fc.string({ maxLength: 80, size: 'max' }),
      (seed, name) => {
        const expected = createHmac('sha256', seed).update(name, 'utf8').digest('hex');
        expect(saltsFrom(sha256, seed)(name)).toBe(expected);
      },
    ),
  );
});

it('disclosures and commitments equal those of the Python implementation', () => {
  const requests = new Map(
    log.requests.map((request) => [documentHash(sha256, request as JsonValue), request]),
  );
  let compared = 0;
  for (const { aep, disclosures, seed } of log.proofs) {
    const all = disclosures as Disclosure[];
    const requestHash = all.find(([, name]) => name === 'request_hash')![2] as string;
    const request = requests.get(requestHash);
    if (request === undefined) continue;
    const saltOf = saltsFrom(sha256, fromHex(seed));
    const made = disclosuresOf(
      saltOf,
      request as AgentEnvelope,
      requestHash,
      Object.fromEntries(
        all.flatMap(([, name, value]) =>
          name.startsWith('budget.') ? [[name.slice('budget.'.length), value]] : [],
        ),
      ) as unknown as Budgets,
    );
    expect(made).toEqual(all);
    expect(commitmentsOf(sha256, all)).toEqual({
      request_commitment: aep.request_commitment,
      commitments: aep.commitments,
    });
    expect(saltOf('aep')).toBe(aep.salt);
    expect(firstUncommitted(sha256, aep, all)).toBe(-1);
    compared++;
  }
  expect(compared).toBeGreaterThan(0);
});
