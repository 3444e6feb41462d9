import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromHex, fromUtf8 } from '#protocol/bytes';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { RECORD_KINDS, recordBody } from '#protocol/snapshot/record';
import {
  ARTIFACT_KINDS,
  canAssertValidity,
  EFFECTS,
  NO_TRUST_CHAIN,
  trustChainOf,
} from '#protocol/status';
import {
  type ProofFacts,
  renderRecord,
  statusOf,
  type CurrentStatus,
} from '#publisher/render/record';

const hex = (bytes: number) =>
  fc
    .uint8Array({ minLength: bytes, maxLength: bytes })
    .map((value) => Buffer.from(value).toString('hex'));
/** A damaged column may hold any text. */
const text = fc.string({ unit: 'grapheme', maxLength: 20 });
const time = fc.integer({ min: 0, max: 4e12 });
const kinds = fc.subarray([...ARTIFACT_KINDS]);

const proofFacts: fc.Arbitrary<ProofFacts> = fc.record({
  leafIndex: fc.nat(10_000_000),
  proofId: hex(16),
  aepHash: fc.oneof(hex(32), text),
  proofRecordHash: fc.oneof(hex(32), text),
  acceptedAt: time,
  effect: fc.constantFrom(...EFFECTS),
  isOutcome: fc.boolean(),
  environment: fc.constantFrom('sandbox' as const, 'live' as const),
  keyId: text,
  logOrigin: text,
  tileWidth: fc.integer({ min: 1, max: 256 }),
});
const statuses: fc.Arbitrary<CurrentStatus> = fc.record({
  verdict: fc.option(
    fc.record({
      outcome: fc.constantFrom('pass' as const, 'fail' as const),
      expired: kinds,
      verifiedAt: time,
    }),
    { nil: undefined },
  ),
  revoked: kinds,
});

describe('public record of a proof', () => {
  it('is canonical JSON for any column values', () => {
    fc.assert(
      fc.property(proofFacts, statuses, (facts, current) => {
        const record = renderRecord(facts, current);
        const resolved = RECORD_KINDS.filter((kind) => {
          const body = recordBody(record, fromHex(facts.proofId), kind);
          if (body === null) return false;
          const rendered = `{${fromUtf8(body.part)}${fromUtf8(body.tail)}`;
          const parsed = JSON.parse(rendered) as object;
          expect(JSON.stringify(parsed)).toBe(rendered);
          const status = statusOf(kind, facts, current);
          const hashes = { aep_hash: facts.aepHash, proof_record_hash: facts.proofRecordHash };
          expect(parsed).toMatchObject({
            verification: {
              verification_status: status,
              can_assert_validity: canAssertValidity(status),
            },
            artifact: { ...hashes, effect: facts.effect, environment: facts.environment },
            trust_chain: current.verdict?.outcome === 'pass' ? trustChainOf(facts) : NO_TRUST_CHAIN,
            ...PUBLIC_FLAGS,
            downloads: { inclusion_proof: `/log/proof/${facts.leafIndex}` },
            integrity: { ...hashes, log_origin: facts.logOrigin, key_id: facts.keyId },
          });
          return true;
        });
        const all = facts.effect === 'ADMIT' && !facts.isOutcome;
        expect(resolved).toEqual(all ? RECORD_KINDS : ['proof']);
      }),
      { numRuns: 500 },
    );
  });
});
