import { canonicalBytes } from '#protocol/canonical-json';
import { aepSchema, type Aep, type AepSubject } from '#protocol/schemas/aep';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { canAssertValidity, verificationStatus, type StatusFacts } from '#protocol/status';
import { admitted, denied, exportOf } from './worked-log.js';

export interface PaperOptions {
  effect?: 'ADMIT' | 'DENY';
  environment?: 'sandbox' | 'live';
  subject?: AepSubject;
  reasons?: string[];
  verdict?: StatusFacts['verdict'];
  revoked?: StatusFacts['revoked'];
  expired?: StatusFacts['expired'];
  /** Whatever else of the AEP. */
  aep?: Partial<Aep>;
}

/**
 * An export document to be printed. Its form and its statement are right; its hashes are those of
 * the worked log, whatever was changed, since the paper judges nothing.
 */
export function documentFor(options: PaperOptions = {}): ProofExport {
  const { effect = 'ADMIT', verdict = 'pass', revoked = [], expired = [] } = options;
  const base = exportOf(effect === 'ADMIT' ? admitted : denied);
  const isOutcome = options.subject?.kind === 'outcome';
  const statusOf = (kind: StatusFacts['kind']) =>
    verificationStatus({ kind, effect, isOutcome, verdict, revoked, expired });
  const aep = aepSchema.parse({
    ...base.aep,
    environment: options.environment ?? 'live',
    subject: options.subject ?? base.aep.subject,
    decision: { effect, reasons: options.reasons ?? base.aep.decision.reasons },
    ...(isOutcome && { valid_until: { proof: base.aep.valid_until.proof } }),
    ...options.aep,
  });
  return proofExportSchema.parse({
    ...base,
    aep,
    verdict: {
      ...base.verdict,
      verification_status: statusOf('proof'),
      can_assert_validity: canAssertValidity(statusOf('proof')),
      artifacts: {
        proof: statusOf('proof'),
        passport: statusOf('passport'),
        certificate: statusOf('certificate'),
        trust: statusOf('trust'),
      },
    },
  });
}

export const LOOKUP_URL = `https://registry.example/api/public/verify/proof/${admitted.proofId}`;

export function pdfRequestFor(options: PaperOptions = {}) {
  return { json: canonicalBytes(documentFor(options)), lookupUrl: LOOKUP_URL };
}
