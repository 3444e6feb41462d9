import { type PinnedIntake, readPinnedIntake, statedRun } from '#sql/proofs/rebuild-aep';
import { fromHex, toHex } from '#protocol/bytes';
import { attempt } from '#protocol/errors';
import { canonicalize, parseStrict, type JsonValue } from '#protocol/json';
import { aepDecisionSchema, type Aep } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  type Counterfactual,
  type Replay,
  type ReplayBody,
  replayBodySchema,
  replaySchema,
} from '#protocol/schemas/proof-export';
import { rejectionIn } from '#policy/decide';
import { CEDAR_VERSION } from '#policy/policy-set';
import {
  decideUnder,
  replay,
  type Replayed,
  type ReplayPolicy,
  replayPolicies,
} from '#policy/replay';
import type { Pool } from '#sql/db/transaction';
import { readTenantPolicySet } from '#sql/admissions/policies';
import type { StoredProof } from '#sql/proofs/read';
import { EXAMPLE_PROOF_ID, exampleExport } from '../../openapi/example-export.js';
import { sentencesOf } from '../admission/outcome.js';
import type { Caller } from '../http/authenticate.js';
import { documentOperation, hasScope } from '../http/request.js';
import { at, Problem } from '../http/problem.js';
import { addLogFields, sendJson } from '../http/respond.js';
import { json } from '../operation.js';
import { altered, findWithPayload } from '../proofs/stored-proof.js';
import { SUBMISSION_LIMIT } from './verify-proof.js';

/** Compiles each policy set once, for the replays of all tenants. */
const policies = replayPolicies();

export const replayOperation = documentOperation(
  {
    id: 'replayProof',
    method: 'post',
    path: '/v1/proofs/replay',
    tag: 'Verification',
    summary: 'Replay a decision',
    description:
      'Derives the AEP again from the accepted request, with the policy set, time and seed pinned at ' +
      'acceptance, and the recorded counter values. With `policy_digest`, also reports what that policy set would have decided. The ' +
      'response names every difference, and has the values only for a key with the scope `read` or `export`.',
    scopes: ['verify'],
    body: {
      schema: replayBodySchema,
      examples: {
        by_id: { schema_version: SCHEMA.replayRequest, proof_id: EXAMPLE_PROOF_ID },
        counterfactual: {
          schema_version: SCHEMA.replayRequest,
          proof_id: EXAMPLE_PROOF_ID,
          policy_digest: exampleExport.aep.policy.digest,
        },
        export: exampleExport,
      },
      limit: SUBMISSION_LIMIT,
    },
    responses: { 200: json('The result of the replay, with all differences.', replaySchema) },
    problems: ['proof_not_found', 'policy_unknown', 'payload_erased', 'integrity_failure'],
  },
  async ({ caller, inTenant, res }, document) => {
    addLogFields(res, { proof_id: document.proof_id });
    sendJson(res, 200, await inTenant((sql) => replayed(sql, caller, document)));
  },
);

async function replayed(sql: Pool, caller: Caller, body: ReplayBody): Promise<JsonValue> {
  // Reads the proof after the request: if an erasure deleted the request before, the proof shows the erasure.
  const intake = await readPinnedIntake(sql, caller.tenantNo, body.proof_id);
  const stored = await findWithPayload(sql, caller.tenantNo, body.proof_id);
  if (stored.isErased) throw new Problem('payload_erased');
  if (intake === null) throw altered(stored, 'the intake');
  // Reads and hashes the stored policy set on every replay, to detect tampering.
  const set = await readTenantPolicySet(sql, caller.tenantNo, intake.policyDigest);
  if (set === null) throw altered(stored, 'the policy set');
  const policy = await policies(set);
  const aep = 'aep' in body ? (body.aep as unknown as JsonValue) : recordedAep(stored);
  const outcome = replay(intake, policy, {
    aep,
    aepHash: toHex(stored.aepHash),
    keyId: stored.keyId,
    budgets: stored.budgets,
    closedRun: statedRun(stored.runMembers),
  });
  const version = (aep as Partial<Aep> | null)?.policy?.engine_version;
  const recordedVersion = typeof version === 'string' ? version : CEDAR_VERSION;
  const sameEngine = policy.sameEngine && recordedVersion === CEDAR_VERSION;
  const otherDigest = 'policy_digest' in body ? body.policy_digest : undefined;
  const answer: Replay = {
    schema_version: SCHEMA.replay,
    proof_id: stored.proofId,
    result: !sameEngine
      ? 'engine_version_differs'
      : outcome.differences.length === 0
        ? 'match'
        : 'divergence',
    differences: hasScope(caller, ['read', 'export'])
      ? outcome.differences
      : // A submission that is wrong in every member would reveal the whole AEP.
        outcome.differences.map(({ pointer }) => ({ pointer })),
    engine: { recorded_version: recordedVersion, running_version: CEDAR_VERSION },
    policy_digest: toHex(intake.policyDigest),
    input_hash: outcome.inputHash,
    counterfactual:
      otherDigest === undefined
        ? null
        : await counterfactual(sql, caller, otherDigest, { policy, intake, aep, ...outcome }),
  };
  return answer as unknown as JsonValue;
}

/** The stored AEP. A missing or unparsable AEP gives a value that differs from the replayed AEP in every member. */
function recordedAep({ aep }: StoredProof): JsonValue {
  if (aep === null) return null;
  return attempt(() => parseStrict(aep) ?? 'null') ?? aep.toString('latin1');
}

async function counterfactual(
  sql: Pool,
  { tenantNo }: Caller,
  digest: string,
  original: { policy: ReplayPolicy; intake: PinnedIntake; aep: JsonValue } & Replayed,
): Promise<Counterfactual | null> {
  const set = await readTenantPolicySet(sql, tenantNo, fromHex(digest));
  if (set === null) throw new Problem('policy_unknown', at('/policy_digest', 'is not known'));
  const { aep, input, intake, policy } = original;
  if (input === null) return null;
  const other = await policies(set);
  const { effect, reasons } = rejectionIn(intake) ?? decideUnder(other, policy, input);
  const decision = { effect, reasons: [...reasons] };
  const recorded = aepDecisionSchema.safeParse((aep as Partial<Aep> | null)?.decision).data;
  return {
    policy_digest: digest,
    decision,
    sentences: sentencesOf(decision.reasons, new Map(Object.entries(set.files.sentences))),
    differs: recorded === undefined || canonicalize(recorded) !== canonicalize(decision),
  };
}
