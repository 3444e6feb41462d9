import { randomBytes } from 'node:crypto';
import type { Request, Response } from 'express';
import { isProofId } from '#protocol/ids';
import { revocationReasonBytes } from '#protocol/revocation-reason';
import { SCHEMA } from '#protocol/schemas/ids';
import {
  revocationRequestSchema,
  revocationSchema,
  revocationStatusSchema,
} from '#protocol/schemas/lifecycle';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  askRevocation,
  type RevocationItem,
  type StandingRevocation,
} from '#sql/lifecycle/revocations';
import type { Caller } from '../http/authenticate.js';
import type { EngineContext } from '../context.js';
import { authorize } from '../http/authorize.js';
import { addLogFields, requestIdOf } from '../http/request-context.js';
import { newUuidHex } from '../http/new-id.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { parseBody, readBody } from '../http/parse-body.js';
import { Problem } from '../http/problem.js';
import {
  REVOCATION_PROBLEMS,
  revocationPath,
  sendPendingRevocation,
  sendRevocation,
  loggedRevocation,
} from '../lifecycle/documents.js';

const spec: OperationSpec = {
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
  produces: ['application/json'],
  responses: {
    200: {
      description: 'Revoked before: the first revocation in the log.',
      content: { 'application/json': revocationSchema },
      headers: { 'Idempotent-Replayed': '`true`: nothing was added.' },
    },
    201: {
      description: 'Revoked: it is in the log.',
      content: { 'application/json': revocationSchema },
      headers: { Location: 'Path of the revocation.' },
    },
    202: {
      description: 'Requested and durable, not in the log yet: follow `Location`.',
      content: { 'application/json': revocationStatusSchema },
      headers: { Location: 'Path of the revocation.', 'Retry-After': 'Seconds.' },
    },
  },
  problems: ['proof_not_found', 'artifact_absent', ...REVOCATION_PROBLEMS],
};

export const revokeArtifactOperation: Operation = { spec, handler: revokeArtifact };

function revokeArtifact(deps: EngineDeps) {
  const { ctx } = deps;
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const body = await readBody(req, ctx.bodyLimit);
    const { document } = parseBody(revocationRequestSchema, body, SCHEMA.revocationRequest);
    const proofId = String(req.params['proof_id']);
    if (!isProofId(proofId)) throw proofNotFound();
    const artifact = { proofId, artifactKind: document.artifact_kind };
    const reason = revocationReasonBytes({
      proof_id: proofId,
      artifact_kind: document.artifact_kind,
      reason: document.reason,
      actor: document.actor,
      salt: randomBytes(32).toString('hex'),
    });
    const reasonHash = Buffer.from(nativeSha256(reason));
    const item = {
      ...artifact,
      requestId: newUuidHex(),
      keyNo: caller.keyNo,
      reasonHash,
      document: reason,
    };
    addLogFields(res, { proofId });
    const revocation = await requestRevocation(ctx, caller, res, item);
    if (revocation === null) {
      sendPendingRevocation(res, artifact);
      return;
    }
    // Another request may have appended its revocation first.
    const isOwn = revocation.entry.reason_hash === reasonHash.toString('hex');
    if (isOwn) res.setHeader('Location', revocationPath(artifact));
    else res.setHeader('Idempotent-Replayed', 'true');
    sendRevocation(res, isOwn ? 201 : 200, revocation);
  };
}

/** The revocation in the log, or null if it is not logged within the wait. */
async function requestRevocation(
  ctx: EngineContext,
  caller: Caller,
  res: Response,
  item: RevocationItem,
): Promise<StandingRevocation | null> {
  const { tenantNo } = caller;
  const until = performance.now() + ctx.waitMs;
  for (;;) {
    const request = await ctx.tenantSql.run(tenantNo, (sql) => askRevocation(sql, tenantNo, item));
    if (request.outcome === 'unknown_proof') throw proofNotFound();
    if (request.outcome === 'absent_artifact') throw artifactAbsent();
    if (request.outcome === 'revoked') return request.standing;
    const isOwn = request.outcome === 'asked';
    addLogFields(res, { revocationId: request.requestId });
    if (isOwn) void enqueue(ctx, request.requestId, requestIdOf(res));
    const timeoutMs = Math.max(0, until - performance.now());
    const settlement = await ctx.revocations.settlement(
      { tenantNo, id: request.requestId },
      { timeoutMs, checkImmediately: !isOwn, response: res },
    );
    if (settlement === null) return null;
    // The earlier request was rejected, for example for its revoked key: submit this one again.
    if (!isOwn && settlement.state === 'refused') continue;
    return loggedRevocation(settlement);
  }
}

/** Best effort: the requeue of stale revocations delivers what the queue lost. */
async function enqueue(ctx: EngineContext, revocationId: string, requestId: string): Promise<void> {
  try {
    await ctx.queue.addRevocations([revocationId], [requestId]);
  } catch (error) {
    ctx.log.warn(
      { err: error, request_id: requestId },
      'queue unavailable, revocation is left to the requeue',
    );
  }
}

function artifactAbsent(): Problem {
  return new Problem(
    'artifact_absent',
    'A denial or an outcome has no artifact except its proof. Revoke the proof instead.',
    {
      errors: [
        { pointer: '/artifact_kind', detail: 'must be proof: this is a denial or an outcome' },
      ],
    },
  );
}

function proofNotFound(): Problem {
  return new Problem('proof_not_found', 'This tenant has no proof with that id. Check the id.');
}
