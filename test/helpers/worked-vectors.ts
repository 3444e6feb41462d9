import {
  aepBytes,
  AEP_PAYLOAD_TYPE,
  buildReceipt,
  laneOf,
  proofRecordBytes,
  proofRecordHash,
} from '#protocol/aep';
import { fromUtf8, toBase64, toBase64Url, toHex } from '#protocol/bytes';
import { canonicalize } from '#protocol/canonical-json';
import { pae } from '#protocol/dsse';
import { parseEntry } from '#protocol/entries';
import { hashHex } from '#protocol/hash';
import { idsOf } from '#protocol/ids';
import { parseStrict } from '#protocol/json';
import { publicJwk } from '#protocol/keys';
import { consistencyPath, inclusionPath, leafHash, rootOf } from '#protocol/merkle';
import { formatTlogProof } from '#protocol/tlog-proof';
import { encodeEntryBundle, entriesPath, tilePath, tilesBetween } from '#protocol/tiles';
import { sha256 } from './leaves.js';
import { agentVectors } from './worked-agent.js';
import { lifecycleVectors } from './worked-lifecycle.js';
import {
  admitted,
  aepKey,
  checkpoint,
  checkpointText,
  denied,
  entries,
  exportOf,
  leaves,
  logVkey,
  ORIGIN,
  root,
  type WorkedProof,
} from './worked-log.js';

const proofs: { name: string; proof: WorkedProof }[] = [
  { name: 'admission', proof: admitted },
  { name: 'denial', proof: denied },
];

const perProof = (make: (proof: WorkedProof) => object) =>
  proofs.map(({ name, proof }) => ({ name, ...make(proof) }));

const hashed = (bytes: Uint8Array) => ({
  canonical: fromUtf8(bytes),
  sha256: hashHex(sha256, bytes),
});

const receiptOf = ({ proofId, record, aep }: WorkedProof) =>
  buildReceipt(sha256, {
    proof_id: proofId,
    request_hash: record.request_hash,
    effect: aep.decision.effect,
    lane: laneOf(aep.subject),
  });

const path = (hashes: readonly Uint8Array[]) => hashes.map(toBase64);

/** The worked vectors of `protocol/vectors/`, by file name without its extension. */
export const workedVectors: Record<string, unknown> = {
  lifecycle: lifecycleVectors,

  identifiers: idsOf(admitted.proofId),

  keys: {
    aep: {
      seed: aepKey.seed,
      public_key_hex: toHex(aepKey.publicKey),
      public_key: toBase64Url(aepKey.publicKey),
      thumbprint_input: `{"crv":"Ed25519","kty":"OKP","x":"${toBase64Url(aepKey.publicKey)}"}`,
      key_id: aepKey.keyId,
      jwk: publicJwk(sha256, aepKey.publicKey),
    },
    log: { origin: ORIGIN, vkey: logVkey },
  },

  request: perProof(({ request, record }) => ({
    received: fromUtf8(request),
    canonical: canonicalize(parseStrict(request)),
    request_hash: record.request_hash,
  })),

  aep: perProof(({ aep }) => ({ aep, ...hashed(aepBytes(aep)) })),

  envelope: perProof(({ aepBytes: payload, record }) => ({
    payload: fromUtf8(payload),
    signed_bytes: fromUtf8(pae(AEP_PAYLOAD_TYPE, payload)),
    envelope: record.envelope,
  })),

  receipt: perProof((proof) => {
    const { response_hash, ...unhashed } = receiptOf(proof);
    return { hashed: canonicalize(unhashed), response_hash, body: canonicalize(receiptOf(proof)) };
  }),

  'agent-admission': agentVectors,

  'proof-record': perProof(({ record }) => ({
    ...hashed(proofRecordBytes(record)),
    proof_record_hash: proofRecordHash(sha256, record),
  })),

  'log-entry': entries.map((bytes) => ({
    entry: parseEntry(bytes),
    canonical: fromUtf8(bytes),
    leaf_hash: toHex(leafHash(sha256, bytes)),
  })),

  merkle: {
    leaf_hashes: leaves.map(toHex),
    roots: Array.from({ length: leaves.length + 1 }, (_, size) =>
      toHex(rootOf(sha256, leaves, { start: 0, end: size })),
    ),
    inclusion: leaves.map((_, index) => ({
      index,
      size: leaves.length,
      path: path(inclusionPath(sha256, leaves, index)),
    })),
    consistency: leaves.map((_, size1) => ({
      size1,
      size2: leaves.length,
      path: path(consistencyPath(sha256, leaves, size1)),
    })),
  },

  tiles: {
    size: leaves.length,
    tiles: tilesBetween(0, leaves.length).map(({ level, index, width }) => ({
      path: tilePath(level, index, width),
      content_hex: leaves.map(toHex).join(''),
    })),
    entries: {
      path: entriesPath(0, leaves.length),
      content_base64: toBase64(encodeEntryBundle(entries)),
    },
  },

  checkpoint: {
    origin: ORIGIN,
    size: leaves.length,
    root: toBase64(root),
    text: checkpointText,
    vkey: logVkey,
    note: checkpoint,
  },

  'tlog-proof': {
    index: admitted.leafIndex,
    text: formatTlogProof({
      index: admitted.leafIndex,
      path: inclusionPath(sha256, leaves, admitted.leafIndex),
      checkpoint,
    }),
  },

  'proof-export': {
    trust: { aep_keys: [toBase64Url(aepKey.publicKey)], log_vkey: logVkey, log_origin: ORIGIN },
    document: exportOf(admitted),
    expected: {
      authentic: true,
      included: true,
      status: `unknown since checkpoint ${leaves.length}`,
    },
  },
};
