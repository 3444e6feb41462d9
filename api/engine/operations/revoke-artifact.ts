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
  standingOrThrow,
} from '../lifecycle/documents.js';

const spec: OperationSpec = {
  id: 'revokeArtifact',
  method: 'post',
  path: '/v1/proofs/{proof_id}/revocations',
  tag: 'Lifecycle',
  summary: 'Revoke a proof, passport, certificate or trust',
  description:
    'For ever, and with it everything that rests on it, in the order proof, passport, ' +
    'certificate, trust. Answered once the log says so. What is revoked already stays revoked ' +
    'for the reason that was given first: asking again changes nothing and is answered with what ' +
    'stands. A locked lane and a tenant off the allowlist do not stop a revocation.',
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
      description: 'Revoked before this was asked: what the log said first, which stands.',
      content: { 'application/json': revocationSchema },
      headers: { 'Idempotent-Replayed': '`true`: nothing was added.' },
    },
    201: {
      description: 'Revoked: it is in the log.',
      content: { 'application/json': revocationSchema },
      headers: { Location: 'Where this can be read again.' },
    },
    202: {
      description: 'Asked for and durable, not yet in the log: follow `Location`.',
      content: { 'application/json': revocationStatusSchema },
      headers: { Location: 'Where the answer will be.', 'Retry-After': 'Seconds.' },
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
    const standing = await settled(ctx, caller, res, item);
    if (standing === null) {
      sendPendingRevocation(res, artifact);
      return;
    }
    // Somebody else may have been first between the question and the append.
    const isOwn = standing.entry.reason_hash === reasonHash.toString('hex');
    if (isOwn) res.setHeader('Location', revocationPath(artifact));
    else res.setHeader('Idempotent-Replayed', 'true');
    sendRevocation(res, isOwn ? 201 : 200, standing);
  };
}

/** What the log says in the end; null when it says nothing yet and has been waited for. */
async function settled(
  ctx: EngineContext,
  caller: Caller,
  res: Response,
  item: RevocationItem,
): Promise<StandingRevocation | null> {
  const { tenantNo } = caller;
  const until = performance.now() + ctx.waitMs;
  for (;;) {
    const asked = await ctx.tenantSql.run(tenantNo, (sql) => askRevocation(sql, tenantNo, item));
    if (asked.outcome === 'unknown_proof') throw proofNotFound();
    if (asked.outcome === 'absent_artifact') throw artifactAbsent();
    if (asked.outcome === 'revoked') return asked.standing;
    const isOwn = asked.outcome === 'asked';
    addLogFields(res, { revocationId: asked.requestId });
    if (isOwn) void enqueue(ctx, asked.requestId, requestIdOf(res));
    const timeoutMs = Math.max(0, until - performance.now());
    const settlement = await ctx.revocations.settlement(
      { tenantNo, id: asked.requestId },
      { timeoutMs, checkImmediately: !isOwn, response: res },
    );
    if (settlement === null) return null;
    // Refused for what somebody else asked, or for the key that it was asked with: it gave way.
    if (!isOwn && settlement.state === 'refused') continue;
    return standingOrThrow(settlement);
  }
}

/** A queue that is away costs time, never a revocation: the sweeper enqueues what was not. */
async function enqueue(ctx: EngineContext, revocationId: string, requestId: string): Promise<void> {
  try {
    await ctx.queue.addRevocations([revocationId], [requestId]);
  } catch (error) {
    ctx.log.warn({ err: error, request_id: requestId }, 'the queue cannot be reached');
  }
}

function artifactAbsent(): Problem {
  return new Problem('artifact_absent', 'A denial or an outcome has only its proof to revoke.', {
    errors: [
      { pointer: '/artifact_kind', detail: 'must be proof: this is a denial or an outcome' },
    ],
  });
}

function proofNotFound(): Problem {
  return new Problem('proof_not_found', 'This tenant has no proof of that id.');
}
