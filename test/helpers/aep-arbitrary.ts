import fc from 'fast-check';
import { buildAep, type AepInput } from '#protocol/aep';
import { isWellFormed } from '#protocol/bytes';
import type { Aep } from '#protocol/schemas/aep';
import { formatTime } from '#protocol/time';

const hex = (length: number) =>
  fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: length, maxLength: length });
const hash = hex(64);
const proofId = fc
  .tuple(hex(12), hex(3), fc.constantFrom(...'89ab'), hex(15))
  .map(([time, a, variant, b]) => `${time}7${a}${variant}${b}`);
/** Free text, with the characters that serializers get wrong. */
const text = fc
  .string({
    unit: fc.oneof(
      fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }),
      fc.constantFrom('"', '\\', '/', '\\ud800', '\u007f', '\u2028', '\n', '\u0001', 'é', '😀'),
    ),
    minLength: 1,
    maxLength: 12,
  })
  .filter(isWellFormed);
const action = fc.stringMatching(/^[A-Z0-9_.:-]{1,20}$/);
const time = fc.integer({ min: 0, max: 4102444800000 }).map(formatTime);
const end = fc.option(time);

const optional = { requiredKeys: [] };
const subject = fc.oneof(
  fc.record({ kind: fc.constant('execute' as const), intent_id: text, action }),
  fc
    .tuple(
      fc.record({ kind: fc.constant('admission' as const), action }),
      fc.tuple(fc.record({ id: text }), fc.record({ framework: text }, optional)),
      fc.record({ tool: text, arguments_hash: hash, parent_proof_id: proofId }, optional),
    )
    .map(([fixed, [agent, framework], more]) => ({
      ...fixed,
      agent: { ...agent, ...framework },
      ...more,
    })),
  fc
    .tuple(
      fc.record({
        kind: fc.constant('outcome' as const),
        parent_proof_id: proofId,
        result: fc.constantFrom('succeeded' as const, 'failed' as const),
      }),
      fc.record({ result_hash: hash }, optional),
    )
    .map(([fixed, more]) => ({ ...fixed, ...more })),
);

const input: fc.Arbitrary<AepInput> = fc.record({
  proof_id: proofId,
  environment: fc.constantFrom('sandbox' as const, 'live' as const),
  tenant_id: fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9_.:-]{0,20}$/),
  subject,
  request_hash: hash,
  decision: fc.record({
    effect: fc.constantFrom('ADMIT' as const, 'DENY' as const),
    reasons: fc.array(text, { maxLength: 4 }),
  }),
  policy: fc.record({ digest: hash, input_hash: hash, engine_version: text }),
  evidence: fc.record({ fixture_ref: fc.option(text), fixture_hash: fc.option(hash) }),
  valid_until: fc.record({ proof: end, certificate: end, passport: end, trust: end }),
  accepted_at: time,
  salt: hash,
  key_id: fc.stringMatching(/^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/),
});

/** AEPs of every shape that the schema knows. */
export const anyAep: fc.Arbitrary<Aep> = input.map(buildAep);
