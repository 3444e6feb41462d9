import { createPrivateKey, sign } from 'node:crypto';
import {
  decidedIn,
  AEP_PAYLOAD_TYPE,
  aepBytes,
  buildAep,
  buildProofRecord,
  laneOf,
  proofRecordHash,
} from '#protocol/aep';
import { toBase64, toBase64Url, utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { formatCheckpoint } from '#protocol/checkpoint';
import { pae } from '#protocol/dsse';
import { keyEntryBytes, parseEntry, proofEntryBytes, statusEntryBytes } from '#protocol/entries';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { jwkThumbprint } from '#protocol/keys';
import type { KeyedEntry } from '#protocol/key-state';
import { inclusionPath, leafHash, rootOf } from '#protocol/merkle';
import { formatVkey, keyId, signNote } from '#protocol/note';
import type { Aep } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import type { ProofExport } from '#protocol/schemas/proof-export';
import type { ProofRecord } from '#protocol/schemas/proof-record';
import type { VerdictStatement } from '#protocol/schemas/verdict';
import { canAssertValidity, verificationStatus, type ArtifactKind } from '#protocol/status';
import { sha256 } from './leaves.js';
import rfc8032 from '../vectors/rfc8032.json' with { type: 'json' };

/** A signing key from an RFC 8032 test seed: known to everybody, so of use in tests only. */
export function testKey(vector: number) {
  const { seed, public_key } = rfc8032[vector]!;
  const pkcs8 = Buffer.from(`302e020100300506032b657004220420${seed}`, 'hex');
  const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' });
  const publicKey = new Uint8Array(Buffer.from(public_key, 'hex'));
  return {
    seed,
    publicKey,
    keyId: jwkThumbprint(sha256, publicKey),
    sign: (message: Uint8Array) => new Uint8Array(sign(null, message, key)),
  };
}

export interface WorkedProof {
  proofId: string;
  request: Uint8Array;
  aep: Aep;
  aepBytes: Uint8Array;
  signature: Uint8Array;
  record: ProofRecord;
  entry: Uint8Array;
  leafIndex: number;
}

export const ORIGIN = 'log.example/svc';
export const aepKey = testKey(0);
const logSigner = testKey(1);
export const logVkey = formatVkey(sha256, ORIGIN, logSigner.publicKey);

const digest = (text: string) => hashHex(sha256, utf8(text));

function prove(
  leafIndex: number,
  proofId: string,
  requestText: string,
  effect: 'ADMIT' | 'DENY',
): WorkedProof {
  const request = utf8(requestText);
  const body = parseStrict(request) as Record<string, string>;
  const aep = buildAep({
    proof_id: proofId,
    environment: 'sandbox',
    tenant_id: body.tenant_id!,
    subject: { kind: 'execute', intent_id: body.intent_id!, action: body.action! },
    request_hash: hashHex(sha256, canonicalBytes(body)),
    decision: {
      effect,
      reasons: [effect === 'ADMIT' ? 'sandbox-tenants-may-act' : 'audit-log-is-kept'],
    },
    policy: {
      digest: digest('policy set'),
      input_hash: digest('policy input'),
      engine_version: '4.13.0',
    },
    evidence: {
      fixture_ref: body.proof_chain_fixture_ref ?? null,
      fixture_hash: null,
    },
    valid_until: {
      proof: null,
      certificate: '2027-11-20T17:29:00.123Z',
      passport: '2027-11-20T17:29:00.123Z',
      trust: '2026-12-20T17:29:00.123Z',
    },
    accepted_at: '2026-11-20T17:29:00.123Z',
    salt: digest(`salt ${proofId}`),
    key_id: aepKey.keyId,
  });
  const bytes = aepBytes(aep);
  const signature = aepKey.sign(pae(AEP_PAYLOAD_TYPE, bytes));
  const record = buildProofRecord(sha256, {
    proof_id: proofId,
    aep: bytes,
    signature,
    key_id: aepKey.keyId,
    request_hash: aep.request_hash,
    effect,
    lane: laneOf(aep.subject),
  });
  const entry = proofEntryBytes({
    proof_id: proofId,
    aep_hash: record.aep_hash,
    proof_record_hash: proofRecordHash(sha256, record),
    time: aep.accepted_at,
  });
  return { proofId, request, aep, aepBytes: bytes, signature, record, entry, leafIndex };
}

export const keyEntry = keyEntryBytes({
  key_id: aepKey.keyId,
  public_key: toBase64Url(aepKey.publicKey),
  change: 'activate',
  time: '2026-11-20T17:28:59.000Z',
});

export const admitted = prove(
  1,
  '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
  `{
  "schema_version": "svc.runtime.intent_execute.request/1.0",
  "intent_id": "run-7/step-3/réserver ✈",
  "tenant_id": "tenant-example",
  "action": "BOOK_RESERVATION",
  "idempotency_key": "4f1c",
  "proof_chain_fixture_ref": "fixture-1"
}
`,
  'ADMIT',
);

export const denied = prove(
  2,
  '019aa2c1e07b7c108a3e5d6b7c8d9e0f',
  '{"action":"DELETE_AUDIT_LOG","intent_id":"run-7/step-4","schema_version":"svc.runtime.intent_execute.request/1.0","tenant_id":"tenant-example"}',
  'DENY',
);

export const revocation = statusEntryBytes({
  proof_id: admitted.proofId,
  artifact_kind: 'certificate',
  reason_hash: digest('the reason, which stays private'),
  time: '2026-11-21T08:00:00.000Z',
});

/** Everything in the log, in order: a key, an admission, a denial, a revocation, a compromise. */
export const entries = [
  keyEntry,
  admitted.entry,
  denied.entry,
  revocation,
  keyEntryBytes({
    key_id: aepKey.keyId,
    public_key: toBase64Url(aepKey.publicKey),
    change: 'compromise',
    from_index: 4,
    time: '2026-11-22T08:00:00.000Z',
  }),
];
export const leaves = entries.map((entry) => leafHash(sha256, entry));
export const keyEntries: KeyedEntry[] = entries
  .map((entry, leafIndex) => ({ leafIndex, entry: parseEntry(entry) }))
  .filter(({ entry }) => entry.type === 'key');

export const root = rootOf(sha256, leaves);
export const checkpointText = formatCheckpoint({ origin: ORIGIN, size: leaves.length, root });
export const checkpoint = signNote(checkpointText, {
  name: ORIGIN,
  keyHash: keyId(sha256, ORIGIN, logSigner.publicKey),
  sign: logSigner.sign,
});

/** What `GET /v1/proofs/{proof_id}/export?format=json` gives for it. */
export function exportOf(proof: WorkedProof): ProofExport {
  return {
    schema_version: SCHEMA.proofExport,
    proof_id: proof.proofId,
    aep: proof.aep,
    envelope: proof.record.envelope,
    proof_record: proof.record,
    entry: parseEntry(proof.entry) as ProofEntry,
    inclusion: {
      leaf_index: proof.leafIndex,
      tree_size: leaves.length,
      path: inclusionPath(sha256, leaves, proof.leafIndex).map(toBase64),
      checkpoint,
    },
    keys: [{ key_id: aepKey.keyId, public_key: toBase64Url(aepKey.publicKey) }],
    request_hash: proof.record.request_hash,
    response_hash: proof.record.response_hash,
    verdict: statementOf(proof),
    log_vkey: logVkey,
  };
}

/** What the registry says once the whole log is verified: of the admission, the certificate is gone. */
function statementOf(proof: WorkedProof): VerdictStatement {
  const revoked = proof === admitted ? (['certificate'] as const) : [];
  const status = (kind: ArtifactKind) =>
    verificationStatus({ ...decidedIn(proof.aep), kind, verdict: 'pass', revoked, expired: [] });
  return {
    verification_status: status('proof'),
    can_assert_validity: canAssertValidity(status('proof')),
    artifacts: {
      proof: status('proof'),
      passport: status('passport'),
      certificate: status('certificate'),
      trust: status('trust'),
    },
    verified_at: '2026-11-22T08:00:00.050Z',
    log_size: leaves.length,
  };
}
