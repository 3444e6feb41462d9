import {
  buildEnvelope,
  AEP_PAYLOAD_TYPE,
  aepBytes,
  buildProofRecord,
  laneOf,
  proofRecordHash,
} from '#protocol/aep';
import { toBase64Url } from '#protocol/bytes';
import { pae } from '#protocol/dsse';
import { hashHex } from '#protocol/hash';
import { jwkThumbprint } from '#protocol/keys';
import type { Aep } from '#protocol/schemas/aep';
import type { ProofExport } from '#protocol/schemas/proof-export';
import type { DsseEnvelope } from '#protocol/schemas/proof-record';
import { nativeSha256 } from '#runtime/crypto/node';

/** A key to sign a forgery with. */
export interface ForgersKey {
  publicKey: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
}

/** An AEP with some of its members changed, signed anew under a key that it names. */
export function forge(
  aep: Aep,
  key: ForgersKey,
  changes: Partial<Aep> = {},
): { aep: Aep; envelope: DsseEnvelope } {
  const changed: Aep = { ...aep, ...changes, key_id: jwkThumbprint(nativeSha256, key.publicKey) };
  const payload = aepBytes(changed);
  const signature = key.sign(pae(AEP_PAYLOAD_TYPE, payload));
  return { aep: changed, envelope: buildEnvelope(payload, signature, changed.key_id) };
}

/** A whole export around a forged AEP, in which everything fits together but the log. */
export function forgeExport(
  genuine: ProofExport,
  key: ForgersKey,
  changes: Partial<Aep> = {},
): ProofExport {
  const { aep, envelope } = forge(genuine.aep, key, changes);
  const payload = aepBytes(aep);
  const record = buildProofRecord(nativeSha256, {
    proof_id: aep.proof_id,
    aep: payload,
    signature: Buffer.from(envelope.signatures[0].sig, 'base64'),
    key_id: aep.key_id,
    request_hash: aep.request_hash,
    effect: aep.decision.effect,
    lane: laneOf(aep.subject),
  });
  return {
    ...genuine,
    proof_id: aep.proof_id,
    aep,
    envelope,
    proof_record: record,
    entry: {
      ...genuine.entry,
      proof_id: aep.proof_id,
      aep_hash: hashHex(nativeSha256, payload),
      proof_record_hash: proofRecordHash(nativeSha256, record),
    },
    keys: [{ key_id: aep.key_id, public_key: toBase64Url(key.publicKey) }],
    request_hash: record.request_hash,
    response_hash: record.response_hash,
  };
}
