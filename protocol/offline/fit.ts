import { aepBytes, buildProofRecord, laneOf, proofRecordHash } from '../aep.js';
import { equalBytes, fromBase64Url } from '../bytes.js';
import { canonicalize, isCanonical } from '../canonical-json.js';
import { parseEnvelope } from '../dsse.js';
import { hashHex, type Sha256 } from '../hash.js';
import { jwkThumbprint } from '../keys.js';
import type { ProofExport } from '../schemas/proof-export.js';
import { faultOf } from './read.js';
import type { OfflineFault, OfflineFaultCode } from './result.js';

/** The first part of the document that is not the one which the other parts imply, or null. */
export function findInconsistency(document: ProofExport, sha256: Sha256): OfflineFault | null {
  try {
    return envelopeMisfit(document, sha256) ?? commitmentMisfit(document, sha256);
  } catch (error) {
    // A text that has no UTF-8 form, in a value that did not come as bytes: nobody can have signed it.
    const { code, detail } = faultOf(error, 'malformed_export');
    return { code, detail };
  }
}

/** The AEP as shown against the one in the envelope, and who is said to have signed it. */
function envelopeMisfit(document: ProofExport, sha256: Sha256): OfflineFault | null {
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

/** What is hashed and logged, against what follows from the AEP and its signature. */
function commitmentMisfit(document: ProofExport, sha256: Sha256): OfflineFault | null {
  const { aep, entry } = document;
  const { payload, signature } = parseEnvelope(document.envelope);
  const record = buildProofRecord(sha256, {
    proof_id: aep.proof_id,
    aep: payload,
    signature,
    key_id: aep.key_id,
    request_hash: aep.request_hash,
    effect: aep.decision.effect,
    lane: laneOf(aep.subject),
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
  payload_mismatch: 'the AEP that is shown is not the one in the envelope',
  proof_id_mismatch: 'not the proof id of the AEP',
  key_id_mismatch: 'not the key that the AEP names',
  proof_record_mismatch: 'not the proof record that follows from the envelope',
  request_hash_mismatch: 'not the request hash of the AEP',
  response_hash_mismatch: 'not the hash of the receipt that follows from the AEP',
  entry_time_mismatch: 'not the time at which the AEP says it was accepted',
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
