import { fromUtf8, toBase64Url, utf8 } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import { parseRevocationReason, revocationReasonBytes } from '#protocol/revocation-reason';
import { sha256 } from './leaves.js';
import { admitted } from './worked-log.js';

const reason = revocationReasonBytes({
  proof_id: admitted.proofId,
  artifact_kind: 'certificate',
  reason: 'réservé pour le mauvais jour ✈',
  actor: 'compliance@acme.example',
  salt: hashHex(sha256, utf8('a salt that is public, so never to be used')),
});

const token = `share_${toBase64Url(sha256(utf8('a token that is public, so never to be used')))}`;

/** The documents of a revocation and of a share token whose hashes are what is stored or published. */
export const lifecycleVectors = {
  revocation_reason: {
    document: parseRevocationReason(reason),
    canonical: fromUtf8(reason),
    reason_hash: hashHex(sha256, reason),
  },
  share_token: { token, token_hash: hashHex(sha256, utf8(token)) },
};
