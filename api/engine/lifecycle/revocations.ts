import { randomBytes } from 'node:crypto';
import type { Response } from 'express';
import { isProofId } from '#protocol/ids';
import { revocationReasonBytes } from '#protocol/entries';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  revocationRequestSchema,
  revocationSchema,
  revocationStatusSchema,
} from '#protocol/schemas/lifecycle';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  insertRevocationRequest,
  revocationState,
  type RevocationItem,
  type RevocationOutcome,
  type LoggedRevocation,
} from '#sql/lifecycle/revocations';
import { wakeWorkers } from '../admission/submit.js';
import { addLogFields, requestIdOf, clientGone, sendJson } from '../http/respond.js';
import { newUuidHex } from '#sql/db/columns';
import { at, Problem, type ProblemCode } from '../http/problem.js';
import { json, type Call } from '../operation.js';
import { documentOperation, tenantOperation } from '../http/request.js';

interface RevokedArtifact {
  proofId: string;
  artifactKind: ArtifactKind;
}

const PROBLEMS: readonly ProblemCode[] = [
  'api_key_revoked',
  'revocation_failed',
  'integrity_failure',
];

export const revokeArtifactOperation = documentOperation(
  {
    id: 'revokeArtifact',
    method: 'post',
    path: '/v1/proofs/{proof_id}/revocations',
    tag: 'Lifecycle',
    summary: 'Revoke an artifact',
    description:
      'Revokes a proof, passport, certificate or trust permanently, with every artifact that ' +
      'depends on it, in the order proof, passport, certificate, trust. Responds once the ' +
      'revocation is in the log. Revoking again changes nothing and returns the first revocation. ' +
      'Revocation also works in a locked environment and for a tenant off the allowlist.',
    scopes: ['lifecycle'],
    body: {
      schema: revocationRequestSchema,
      examples: {
        certificate: {
          schema_version: SCHEMA.revocationRequest,
          artifact_kind: 'certificate',
          reason: 'The reservation was made for the wrong day.',
          actor: 'compliance@acme.example',
        },
      },
    },
    responses: {
      200: json('Revoked before: the first revocation in the log.', revocationSchema, {
        'Idempotent-Replayed': '`true`: the log contained a revocation already.',
      }),
      201: json('Revoked: the revocation is in the log.', revocationSchema, {
        Location: 'Path of the revocation.',
      }),
      202: json(
        'Requested and durable, not in the log yet: follow `Location`.',
        revocationStatusSchema,
        {
          Location: 'Path of the revocation.',
          'Retry-After': 'Seconds to wait before trying again.',
        },
      ),
    },
    problems: ['proof_not_found', 'artifact_absent', ...PROBLEMS],
  },
  async (call, { actor, artifact_kind: artifactKind, reason }) => {
    const { caller, req, res } = call;
    const proofId = String(req.params['proof_id']);
    if (!isProofId(proofId)) throw new Problem('proof_not_found');
    const artifact = { proofId, artifactKind };
    const salt = randomBytes(32).toString('hex');
    const reasonBytes = revocationReasonBytes({
      proof_id: proofId,
      artifact_kind: artifactKind,
      reason,
      actor,
      salt,
    });
    const reasonHash = Buffer.from(nativeSha256(reasonBytes));
    addLogFields(res, { proof_id: proofId });
    const revocation = await requestRevocation(call, {
      ...artifact,
      requestId: newUuidHex(),
      keyNo: caller.keyNo,
      reasonHash,
      document: reasonBytes,
    });
    if (revocation === null) {
      sendPendingRevocation(res, artifact);
      return;
    }
    // The log may already have a revocation that another request caused.
    const isOwn = revocation.entry.reason_hash === reasonHash.toString('hex');
    if (isOwn) res.setHeader('Location', pathOf(artifact));
    else res.setHeader('Idempotent-Replayed', 'true');
    sendRevocation(res, isOwn ? 201 : 200, revocation);
  },
);

/** Requests a revocation. Returns the logged revocation, or null if the wait ends first. */
async function requestRevocation(
  { caller, ctx, inTenant, res }: Call,
  item: RevocationItem,
): Promise<LoggedRevocation | null> {
  const { tenantNo } = caller;
  const until = performance.now() + ctx.waitMs;
  const signal = clientGone(res);
  for (;;) {
    const request = await inTenant(insertRevocationRequest, item);
    if (request.outcome === 'unknown_proof') throw new Problem('proof_not_found');
    if (request.outcome === 'absent_artifact') throw artifactAbsent('Revoke');
    if (request.outcome === 'revoked') return request.revocation;
    const isOwn = request.outcome === 'stored';
    addLogFields(res, { revocation_id: request.requestId });
    if (isOwn) {
      const requestId = requestIdOf(res);
      void wakeWorkers(
        ctx,
        ctx.queue.addRevocations([request.requestId], [requestId]),
        'the revocation is delayed until a worker requeues stale revocations',
        { request_id: requestId },
      );
    }
    const outcome = await ctx.revocationOutcomes.wait(
      { tenantNo, id: request.requestId },
      { timeoutMs: Math.max(0, until - performance.now()), checkImmediately: !isOwn, signal },
    );
    if (outcome === null) return null;
    // The earlier request was rejected, perhaps because its key was revoked, so this request is
    // submitted again.
    if (!isOwn && outcome.state === 'refused') continue;
    return loggedRevocation(outcome);
  }
}

export function artifactAbsent(verb: 'Revoke' | 'Share'): Problem {
  return new Problem(
    'artifact_absent',
    `Only the admission of an action has artifacts besides its proof. ${verb} the proof instead.`,
    at('/artifact_kind', 'must be `proof`, because this proof is not the admission of an action'),
  );
}

export const readRevocationOperation = tenantOperation(
  {
    id: 'readRevocation',
    method: 'get',
    path: '/v1/proofs/{proof_id}/revocations/{artifact_kind}',
    tag: 'Lifecycle',
    summary: 'Retrieve a revocation',
    description:
      'Returns only a revocation of the artifact itself. The verdict also covers revocations of the ' +
      'artifacts that this artifact depends on.',
    scopes: ['read', 'lifecycle'],
    responses: {
      200: json('Revoked: the revocation in the log.', revocationSchema),
      202: json('Requested and durable, not in the log yet.', revocationStatusSchema, {
        Location: 'Path of the revocation.',
        'Retry-After': 'Seconds to wait before trying again.',
      }),
    },
    problems: ['revocation_not_found', ...PROBLEMS],
  },
  async ({ inTenant, req, res }) => {
    const proofId = String(req.params['proof_id']);
    const artifactKind = ARTIFACT_KINDS.find((kind) => kind === req.params['artifact_kind']);
    const state =
      isProofId(proofId) && artifactKind !== undefined
        ? await inTenant(revocationState, proofId, artifactKind)
        : null;
    if (state === null || artifactKind === undefined) throw new Problem('revocation_not_found');
    addLogFields(res, { proof_id: proofId });
    if (state === 'pending') sendPendingRevocation(res, { proofId, artifactKind });
    else sendRevocation(res, 200, loggedRevocation(state));
  },
);

const pathOf = ({ proofId, artifactKind }: RevokedArtifact): string =>
  `/v1/proofs/${proofId}/revocations/${artifactKind}`;

function loggedRevocation(outcome: RevocationOutcome): LoggedRevocation {
  if (outcome.state !== 'refused') return outcome;
  throw outcome.code === 'api_key_revoked'
    ? new Problem(
        'api_key_revoked',
        'The API key was revoked before the revocation was logged. Nothing was revoked. Send the request with another key.',
      )
    : new Problem('revocation_failed');
}

function sendRevocation(
  res: Response,
  status: 200 | 201,
  { leafIndex, entry }: LoggedRevocation,
): void {
  sendJson(res, status, {
    schema_version: SCHEMA.revocation,
    proof_id: entry.proof_id,
    artifact_kind: entry.artifact_kind,
    status: entry.status,
    reason_hash: entry.reason_hash,
    leaf_index: leafIndex,
    time: entry.time,
  });
}

function sendPendingRevocation(res: Response, artifact: RevokedArtifact): void {
  res.setHeader('Location', pathOf(artifact));
  res.setHeader('Retry-After', '1');
  sendJson(res, 202, {
    schema_version: SCHEMA.revocationStatus,
    proof_id: artifact.proofId,
    artifact_kind: artifact.artifactKind,
    state: 'pending',
  });
}
