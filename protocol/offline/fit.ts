import { aepBytes, buildProofRecord, requestTypeOf, proofRecordHash } from '../aep.js';
import { equalBytes, fromBase64Url } from '../bytes.js';
import { canonicalize, isCanonical } from '../canonical-json.js';
import { parseEnvelope } from '../dsse.js';
import { hashHex, type Sha256 } from '../hash.js';
import { jwkThumbprint } from '../keys.js';
import type { ProofExport } from '../schemas/proof-export.js';
import { faultOf } from './read.js';
import type { OfflineFault, OfflineFaultCode } from './result.js';

/** The first part of the document that does not follow from the other parts, or null. */
export function findInconsistency(document: ProofExport, sha256: Sha256): OfflineFault | null {
  try {
    return (
      findEnvelopeInconsistency(document, sha256) ?? findCommitmentInconsistency(document, sha256)
    );
  } catch (error) {
    // A lone surrogate in an already parsed value has no UTF-8 form, so no signature can cover it.
    const { code, detail } = faultOf(error, 'malformed_export');
    return { code, detail };
  }
}

/** Compares the shown AEP with the one in the envelope, and the key ids. */
function findEnvelopeInconsistency(document: ProofExport, sha256: Sha256): OfflineFault | null {
  const { aep, envelope, keys, entry, proof_id } = document;
  const { payload, keyid } = parseEnvelope(envelope);
  const listed = keys[0];
  return firstBroken([
    ['payload_not_canonical', '/envelope/payload', isCanonical(payload)],
    ['payload_mismatch', '/aep', equalBytes(payload, aepBytes(aep))],
    ['proof_id_mismatch', '/proof_id', proof_id === aep.proof_id],
    ['proof_id_mismatch', '/entry/proof_id', entry.proof_id === aep.proof_id],
    ['key_id_mismatch', '/envelope/signatures/0/keyid', keyid === aep.key_id],
    ['key_id_mismatch', '/keys/0/key_id', listed.key_id === aep.key_id],
    [
      'key_id_mismatch',
      '/keys/0/public_key',
      jwkThumbprint(sha256, fromBase64Url(listed.public_key)) === aep.key_id,
    ],
  ]);
}

/** Compares the hashes and the log entry with those that follow from the AEP and its signature. */
function findCommitmentInconsistency(document: ProofExport, sha256: Sha256): OfflineFault | null {
  const { aep, entry } = document;
  const { payload, signature } = parseEnvelope(document.envelope);
  const record = buildProofRecord(sha256, {
    proof_id: aep.proof_id,
    aep: payload,
    signature,
    key_id: aep.key_id,
    request_hash: aep.request_hash,
    effect: aep.decision.effect,
    lane: requestTypeOf(aep.subject),
  });
  const recordHash = proofRecordHash(sha256, record);
  return firstBroken([
    [
      'proof_record_mismatch',
      '/proof_record',
      canonicalize(document.proof_record) === canonicalize(record),
    ],
    ['request_hash_mismatch', '/request_hash', document.request_hash === record.request_hash],
    ['response_hash_mismatch', '/response_hash', document.response_hash === record.response_hash],
    ['entry_time_mismatch', '/entry/time', entry.time === aep.accepted_at],
    ['aep_hash_mismatch', '/entry/aep_hash', entry.aep_hash === hashHex(sha256, payload)],
    [
      'proof_record_hash_mismatch',
      '/entry/proof_record_hash',
      entry.proof_record_hash === recordHash,
    ],
  ]);
}

const DETAIL: Partial<Record<OfflineFaultCode, string>> = {
  payload_not_canonical: 'the payload is not JSON in its RFC 8785 form',
  payload_mismatch: 'the shown AEP differs from the one in the envelope',
  proof_id_mismatch: 'proof_id differs from the id that the AEP gives',
  key_id_mismatch: 'the key id differs from the one in the AEP',
  proof_record_mismatch: 'the proof record differs from the one derived from the envelope',
  request_hash_mismatch: 'request_hash differs from the one in the AEP',
  response_hash_mismatch: 'response_hash differs from the hash of the receipt derived from the AEP',
  entry_time_mismatch: 'the entry time differs from the acceptance time in the AEP',
  aep_hash_mismatch: 'the log entry commits to another AEP',
  proof_record_hash_mismatch: 'the log entry commits to another proof record',
};

function firstBroken(
  rules: readonly [code: OfflineFaultCode, pointer: string, holds: boolean][],
): OfflineFault | null {
  for (const [code, pointer, holds] of rules) {
    if (!holds) return { code, detail: DETAIL[code] ?? code, pointer };
  }
  return null;
}
