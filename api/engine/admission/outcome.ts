import type { Response } from 'express';
import { reasonSentence } from '#policy/cedar-context';
import { buildReceipt } from '#protocol/aep';
import { toHex } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { SCHEMA } from '#protocol/schemas/ids';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Outcome } from '#sql/admissions/outcomes';
import { policyAnnotations } from '#sql/admissions/policies';
import type { EngineContext } from '../context.js';
import { Problem } from '../http/problem.js';
import { sendBytes, sendJson } from '../http/respond.js';

type Proved = Extract<Outcome, { state: 'proved' }>;

/** Reads the human-readable sentences of a policy set, by policy id. */
export type Sentences = (policyDigest: Buffer) => Promise<Map<string, string>>;

/**
 * Responds to a POST of an admission and to GET /v1/admissions. Only a committed proof with effect
 * ADMIT is a 200.
 */
export async function sendOutcome(
  { sql }: EngineContext,
  res: Response,
  tenantNo: number,
  outcome: Outcome,
): Promise<void> {
  const sentences: Sentences = (digest) => policyAnnotations(sql, tenantNo, digest);
  if (outcome.state === 'proved' && outcome.effect === 'REQUIRE_APPROVAL') {
    sendUndecided(res, {
      proof_id: outcome.proofId,
      ...(await approvalRequired(outcome, sentences)),
    });
    return;
  }
  const result = await receiptOrProblem(outcome, sentences);
  if (result instanceof Problem) throw result;
  sendBytes(res, 200, 'application/json', canonicalBytes(result));
}

export function sendPending(res: Response, proofId: string): void {
  sendUndecided(res, { proof_id: proofId, state: 'pending' });
}

function sendUndecided(res: Response, status: { proof_id: string; state: string }): void {
  res.setHeader('Location', `/v1/admissions/${status.proof_id}`);
  res.setHeader('Retry-After', '1');
  sendJson(res, 202, { schema_version: SCHEMA.admissionStatus, ...status });
}

/** The answer for a decision that requires an approval; `expires_at` is the deadline of the approval. */
export async function approvalRequired(outcome: Proved, sentences: Sentences) {
  const { policyDigest, reasons } = outcome;
  return {
    state: 'approval_required',
    receipt: receiptOf(outcome),
    reasons,
    sentences: sentencesOf(reasons, await sentences(policyDigest)),
    expires_at: approvalDeadline(outcome),
  } as const;
}

/** Returns the receipt of an admitted action, or else the problem that the client gets. */
export async function receiptOrProblem(
  outcome: Outcome,
  sentences: Sentences,
): Promise<ReturnType<typeof receiptOf> | Problem> {
  if (outcome.state !== 'proved') return unproved(outcome);
  if (outcome.effect === 'ADMIT') return receiptOf(outcome);
  return denial(outcome, await sentences(outcome.policyDigest));
}

function unproved(outcome: Exclude<Outcome, Proved>): Problem {
  return outcome.state === 'erased' ? new Problem('payload_erased') : rejection(outcome.code);
}

/** Responds to an AuthZEN evaluation. `decision` is `true` only for a committed proof with effect ADMIT. */
export async function sendDecision(
  { sql }: EngineContext,
  res: Response,
  tenantNo: number,
  outcome: Outcome,
): Promise<void> {
  if (outcome.state !== 'proved') throw unproved(outcome);
  const { effect, proofId, reasons, policyDigest } = outcome;
  const isAdmitted = effect === 'ADMIT';
  const known = isAdmitted ? new Map() : await policyAnnotations(sql, tenantNo, policyDigest);
  const context = {
    proof_id: proofId,
    effect,
    ...(!isAdmitted && { reasons, sentences: sentencesOf(reasons, known) }),
    ...(effect === 'REQUIRE_APPROVAL' && { expires_at: approvalDeadline(outcome) }),
  };
  sendJson(res, 200, { decision: isAdmitted, context });
}

function approvalDeadline({ acceptedAt, approvalSeconds }: Proved): string {
  return formatTime(acceptedAt + approvalSeconds * 1000);
}

function receiptOf({ effect, lane, proofId, requestHash }: Proved) {
  return buildReceipt(nativeSha256, {
    proof_id: proofId,
    request_hash: toHex(requestHash),
    effect,
    lane: lane === 1 ? 'execute' : 'agent',
  });
}

/** A policy denial has a receipt, but the status 403, so that a client that checks only the status stops. */
function denial(outcome: Proved, known: Map<string, string>): Problem {
  const { isRejected = false, reasons } = outcome;
  const sentences = sentencesOf(reasons, known);
  const because =
    reasons.length === 0 ? 'No policy permits this action.' : `Denied by ${reasons.join(', ')}.`;
  const explained = Object.values(sentences).join(' ') || because;
  // After a rejection by an approver, the reasons are those of the pending proof: they only state that the action needs
  // an approval.
  const detail = isRejected ? `An approver rejected this action. ${explained}` : explained;
  return new Problem('policy_denied', detail, {
    members: { receipt: receiptOf(outcome), reasons, sentences },
  });
}

/** The human-readable sentences by reason, without the reasons that have no sentence. */
export function sentencesOf(
  reasons: readonly string[],
  known: ReadonlyMap<string, string>,
): Record<string, string> {
  return Object.fromEntries(
    reasons.flatMap((reason) => {
      const sentence = reasonSentence(reason) ?? known.get(reason);
      return sentence === undefined ? [] : [[reason, sentence]];
    }),
  );
}

const REJECTIONS = {
  approval_rejected:
    'The approval was no longer in force when the second decision was made. Nothing was admitted. Send another approval.',
  lane_locked:
    'The environment was locked before the proof was signed. Nothing was admitted. Send the request again later.',
  api_key_revoked:
    'The API key was revoked before the proof was signed. Nothing was admitted. Send the request with another key.',
  tenant_not_allowlisted:
    'The tenant left the allowlist before the proof was signed. Nothing was admitted. Contact the operator.',
  invalid_run:
    'The time in the id of the run was in the future. Nothing was admitted. Create the UUIDv7 with a correct clock.',
  parent_not_found:
    'The parent proof was erased before the proof was signed. Nothing was admitted. Send the request with another parent_proof_id.',
  run_closed:
    'The run was closed before the proof was signed. Nothing was admitted. Send the request in a new run.',
  run_incomplete:
    'A request of the run was pending or missing when the close was decided. Nothing was closed. Read the run, send requests with the missing numbers, then a new close.',
} as const;

export const REJECTION_CODES = Object.keys(REJECTIONS) as (keyof typeof REJECTIONS)[];

const COUNTER_LOST =
  'The service lost the value of a counter that applies to this request. Nothing was admitted. Send the request again on the next day (UTC).';

/** The problem of an admission that was accepted, but then rejected or not processed. */
function rejection(code: string): Problem {
  if (Object.hasOwn(REJECTIONS, code)) {
    const known = code as keyof typeof REJECTIONS;
    return new Problem(known, REJECTIONS[known]);
  }
  if (code === 'counter_lost') return new Problem('admission_failed', COUNTER_LOST);
  // Hides any other code, an internal error: the operator finds it in the registry and the log.
  return new Problem('admission_failed');
}
