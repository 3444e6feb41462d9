import type { Response } from 'express';
import { buildReceipt, receiptBytes } from '#protocol/aep';
import { toHex } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeSha256 } from '#runtime/crypto/node';
import { policyAnnotations } from '#sql/admissions/policies';
import type { Settlement } from '#sql/admissions/outcomes';
import type { EngineContext } from '../context.js';
import { Problem } from '../http/problem.js';
import { sendJson } from '../http/send-json.js';
import { erased } from '../proofs/stored-proof.js';

/** Responses of the POST and of GET /v1/admissions. Only a committed proof with effect ADMIT is a 200. */
export interface Answer {
  settled(res: Response, proofId: string, settlement: Settlement): Promise<void>;
  pending(res: Response, proofId: string): void;
}

type Proved = Extract<Settlement, { state: 'proved' }>;
type Refused = Extract<Settlement, { state: 'refused' }>;

export function createAnswer(ctx: EngineContext): Answer {
  return {
    async settled(res, proofId, settlement) {
      if (settlement.state === 'erased') throw erased();
      if (settlement.state === 'refused') throw rejection(settlement);
      if (settlement.effect === 'DENY') {
        const known = await policyAnnotations(ctx.sql, settlement.policyDigest);
        throw denial(proofId, settlement, known);
      }
      sendJson(res, 200, receiptBytes(receiptOf(proofId, settlement)));
    },

    pending(res, proofId) {
      res.setHeader('Location', `/v1/admissions/${proofId}`);
      res.setHeader('Retry-After', '1');
      sendJson(
        res,
        202,
        canonicalBytes({
          schema_version: SCHEMA.admissionStatus,
          proof_id: proofId,
          state: 'pending',
        }),
      );
    },
  };
}

export function receiptOf(proofId: string, settlement: Proved) {
  return buildReceipt(nativeSha256, {
    proof_id: proofId,
    request_hash: toHex(settlement.requestHash),
    effect: settlement.effect,
    lane: settlement.lane === 1 ? 'execute' : 'agent',
  });
}

/** A policy denial has a receipt. It is a 403, so that a client that checks only the status stops. */
export function denial(
  proofId: string,
  settlement: Proved,
  known: Awaited<ReturnType<typeof policyAnnotations>>,
): Problem {
  const { reasons } = settlement;
  const sentences = Object.fromEntries(
    reasons.flatMap((policy) => {
      const sentence = known.get(policy);
      return sentence === undefined ? [] : [[policy, sentence]];
    }),
  );
  const explanation = Object.values(sentences).join(' ');
  const because =
    reasons.length === 0 ? 'No policy permits this action.' : `Denied by ${reasons.join(', ')}.`;
  return new Problem('policy_denied', explanation === '' ? because : explanation, {
    members: { receipt: receiptOf(proofId, settlement), reasons, sentences },
  });
}

/** An accepted admission that was not signed: a check failed since, or processing failed. */
export function rejection({ code }: Refused): Problem {
  switch (code) {
    case 'lane_locked':
      return new Problem(
        code,
        'The environment was locked before the proof was signed. Nothing was admitted. Send a new request later.',
      );
    case 'tenant_not_allowlisted':
      return new Problem(
        code,
        'The tenant left the allowlist before the proof was signed. Nothing was admitted. Contact the operator.',
      );
    case 'api_key_revoked':
      return new Problem(
        code,
        'The API key was revoked before the proof was signed. Nothing was admitted. Send the request with another key.',
      );
    default:
      // Internal errors are for the operator, who finds them in the registry and the log.
      return new Problem(
        'admission_failed',
        'The engine could not process the admission and quarantined it. Nothing was admitted. Contact the operator.',
      );
  }
}
