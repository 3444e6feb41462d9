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

/**
 * How an admission is answered, by POST and by every later question about it alike. Only a
 * committed proof with the effect ADMIT is a 200.
 */
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
      if (settlement.state === 'refused') throw refusal(settlement);
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

/** A denial is an answer too, with a receipt; its status stops a client that looks at nothing else. */
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
  const said = Object.values(sentences);
  const because =
    reasons.length === 0 ? 'No policy permits this action.' : `Denied by ${reasons.join(', ')}.`;
  return new Problem('policy_denied', said.length > 0 ? said.join(' ') : because, {
    members: { receipt: receiptOf(proofId, settlement), reasons, sentences },
  });
}

/** Accepted, but closed before it was signed: by a gate, or because it could not be processed. */
export function refusal({ code }: Refused): Problem {
  switch (code) {
    case 'lane_locked':
      return new Problem(code, 'The lane was locked before this was signed. Nothing was admitted.');
    case 'tenant_not_allowlisted':
      return new Problem(
        code,
        'The tenant left the allowlist before this was signed. Nothing was admitted.',
      );
    case 'api_key_revoked':
      return new Problem(
        code,
        'The API key that sent this was revoked before this was signed. Nothing was admitted.',
      );
    default:
      // The detail of a culprit is for the operator, who has it in the registry and in the log.
      return new Problem(
        'admission_failed',
        'This could not be processed and was set aside. Nothing was admitted.',
      );
  }
}
