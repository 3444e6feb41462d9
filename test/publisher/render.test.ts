import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromHex, fromUtf8 } from '#protocol/bytes';
import { idsOf } from '#protocol/ids';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { RECORD_KINDS, recordBody } from '#protocol/snapshot/record';
import {
  ARTIFACT_KINDS,
  canAssertValidity,
  EFFECTS,
  NO_TRUST_CHAIN,
  trustChainOf,
  type ArtifactKind,
} from '#protocol/status';
import { entriesPath, tilePath } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
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

/** Expected body without its head. */
function expectedBody(facts: ProofFacts, current: CurrentStatus, kind: ArtifactKind): object {
  const { proofId, leafIndex, effect } = facts;
  const status = statusOf(kind, facts, current);
  const { verdict } = current;
  const { proof_id, registry_proof_id, registry_entry_id, execution_id, ...others } =
    idsOf(proofId);
  const own = { proof_id, registry_proof_id, registry_entry_id, execution_id };
  const tile = Math.floor(leafIndex / 256);
  return {
    verification: {
      verification_status: status,
      can_assert_validity: canAssertValidity(status),
      frontend_recomputed: false,
      ...(verdict === undefined ? {} : { verified_at: formatTime(verdict.verifiedAt) }),
    },
    artifact: {
      artifact_level: `${kind.toUpperCase()}_BACKED_PUBLIC_PROJECTION`,
      execution_id,
      aep_hash: facts.aepHash,
      proof_record_hash: facts.proofRecordHash,
      effect,
      environment: facts.environment,
    },
    trust_chain: verdict?.outcome === 'pass' ? trustChainOf(facts) : NO_TRUST_CHAIN,
    ...PUBLIC_FLAGS,
    references: effect === 'ADMIT' && !facts.isOutcome ? { ...own, ...others } : own,
    downloads: {
      log_entry: `/log/entry/${leafIndex}`,
      entry_bundle: `/log/${entriesPath(tile, facts.tileWidth)}`,
      tile: `/log/${tilePath(0, tile, facts.tileWidth)}`,
      checkpoint: '/log/checkpoint',
      inclusion_proof: `/log/proof/${leafIndex}`,
      keys: '/api/public/keys',
    },
    integrity: {
      aep_hash: facts.aepHash,
      proof_record_hash: facts.proofRecordHash,
      log_origin: facts.logOrigin,
      leaf_index: leafIndex,
      key_id: facts.keyId,
      accepted_at: formatTime(facts.acceptedAt),
    },
  };
}

describe('record of a proof', () => {
  it('is canonical JSON for any columns', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(proofFacts, statuses), { maxLength: 5 }), (proofs) => {
        for (const [facts, current] of proofs) {
          const record = renderRecord(facts, current);
          const resolved = RECORD_KINDS.filter((kind) => {
            const body = recordBody(record, fromHex(facts.proofId), kind);
            if (body === null) return false;
            const rendered = `{${fromUtf8(body.part)}${fromUtf8(body.tail)}`;
            expect(rendered).toBe(JSON.stringify(expectedBody(facts, current, kind)));
            return true;
          });
          expect(resolved).toEqual(
            facts.effect === 'ADMIT' && !facts.isOutcome ? RECORD_KINDS : ['proof'],
          );
        }
      }),
      { numRuns: 500 },
    );
  });
});
