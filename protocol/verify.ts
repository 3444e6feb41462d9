import { type ApprovalCrypto, type ApprovalEvidence, secondDecisionFault } from './approvals.js';
import { equalBytes } from './bytes.js';
import { AEP_PAYLOAD_TYPE, type Base64, type LoggedHashes, loggedHashes } from './aep.js';
import { commitmentTo, REQUEST_HASH, saltsFrom } from './commitments.js';
import { pae } from './dsse.js';
import type { Ed25519Verify } from './ed25519.js';
import { memberUnlikeAep, parseEntry } from './entries.js';
import { attempt } from './errors.js';
import { documentHash, hashHex, type Sha256 } from './hash.js';
import { canonicalBytes, type JsonValue, parseStrict } from './json.js';
import { jwkThumbprint, type KeyState } from './keys.js';
import { leafHash, verifyInclusion } from './merkle.js';
import { type Aep, aepSchema } from './schemas/aep.js';
import type { Check, CheckName } from './schemas/verdict.js';

export type { Check, CheckName } from './schemas/verdict.js';

export interface VerifyCrypto {
  sha256: Sha256;
  /** A strict verification: `nobleVerify`, or another implementation wrapped by `strictEd25519`. */
  verify: Ed25519Verify;
  base64?: Base64;
}

/** Primitives that also verify the signatures of approvers. */
export type ProofCrypto = VerifyCrypto & ApprovalCrypto;

export interface ProofEvidence {
  proof_id: string;
  request: Uint8Array | null;
  /** The seed of the salts, 32 bytes; null once erased. */
  seed: Uint8Array | null;
  aep: Uint8Array;
  /** The values from which the caller built `aep`; absent when `aep` must be parsed. */
  built?: BuiltFrom;
  /** 64 bytes */
  signature: Uint8Array;
  /** Bytes of the log entry at `leafIndex`. */
  entry: Uint8Array;
  leafIndex: number;
  /**
   * The signing key as the log states it at `leafIndex`, never as the artifact states it; null when
   * the log has no such key.
   */
  key: KeyState | null;
  /** The approval; null unless the proof is a second decision whose rows have an approval. */
  approval: ApprovalEvidence | null;
  /**
   * Either the leaf hash at `leafIndex` of a tree whose root the caller has verified, or an
   * inclusion proof for a root that the caller trusts.
   */
  inclusion:
    | { leafHashInTree: Uint8Array }
    | { size: number; path: readonly Uint8Array[]; root: Uint8Array };
}

export interface BuiltFrom {
  aep: Aep;
  /** The `request` of the evidence, parsed. */
  document: JsonValue;
  /** The hash to which `aep` commits as `request_hash`, lower-case hex. */
  requestHash: string;
}

export interface ProofFindings {
  checks: Check[];
  /** The AEP in the bytes, trustworthy or not; null when the bytes are not an AEP. */
  aep: Aep | null;
}

/**
 * Re-derives a proof from its bytes, down to the leaf of the log. Only the key state and the tree
 * are trusted; every other input may be an attacker's. Never throws. The checks are independent, so
 * a forged part fails the check of that part; a check that cannot be computed fails too. Only
 * `request_hash` after an erasure and `approval` of a first decision are `not_applicable`.
 */
export function verifyProof(crypto: ProofCrypto, evidence: ProofEvidence): Check[] {
  return examineProof(crypto, evidence).checks;
}

export function examineProof(crypto: ProofCrypto, evidence: ProofEvidence): ProofFindings {
  const { sha256 } = crypto;
  const { aep, isCanonical } =
    evidence.built === undefined
      ? readAep(evidence.aep)
      : { aep: aepSchema.safeParse(evidence.built.aep).data ?? null, isCanonical: true };
  const parsed = attempt(() => parseEntry(evidence.entry));
  const entry = parsed?.type === 'proof' ? parsed : undefined;
  const made = aep === null ? undefined : attempt(() => hashesOf(crypto, evidence, aep));
  const publicKey = evidence.key?.publicKey ?? null;
  const checks = [
    requestCheck(sha256, evidence, aep),
    check('aep_canonical', isCanonical, 'the AEP is not in its RFC 8785 form'),
    check('aep_schema', aep !== null, 'the AEP does not have the fields of svc.aep/1.1'),
    check(
      'aep_identity',
      aep?.proof_id === evidence.proof_id && aep.accepted_at === entry?.time,
      'the AEP names another proof id or acceptance time than the log entry',
    ),
    check(
      'aep_hash',
      entry?.aep_hash === (made?.aep_hash ?? hashHex(sha256, evidence.aep)),
      'the log entry commits to another AEP',
    ),
    keyCheck(sha256, evidence.key, aep),
    check(
      'signature',
      publicKey !== null &&
        crypto.verify(publicKey, pae(AEP_PAYLOAD_TYPE, evidence.aep), evidence.signature),
      'the signature does not verify',
    ),
    check(
      'proof_record_hash',
      entry !== undefined && entry.proof_record_hash === made?.proof_record_hash,
      'the log entry commits to another proof record',
    ),
    check(
      'log_entry',
      entry?.proof_id === evidence.proof_id &&
        // The check `aep_identity` compares the time.
        (aep === null || (memberUnlikeAep(entry, aep) ?? 'time') === 'time'),
      'the log entry is not the canonical entry of this proof',
    ),
    inclusionCheck(sha256, evidence),
    approvalCheck(crypto, evidence, aep),
  ];
  return { checks, aep };
}

/** Untrusted bytes, parsed: `aep` is null unless they have the fields of svc.aep/1.1. Never throws. */
export function readAep(bytes: Uint8Array): { aep: Aep | null; isCanonical: boolean } {
  const document = attempt(() => parseStrict(bytes));
  if (document === undefined) return { aep: null, isCanonical: false };
  const aep = aepSchema.safeParse(document).data ?? null;
  const canonical = attempt(() => canonicalBytes(document));
  return { aep, isCanonical: canonical !== undefined && equalBytes(canonical, bytes) };
}

export function allPassed(checks: readonly Check[]): boolean {
  return (
    checks.some((one) => one.result === 'pass') && checks.every((one) => one.result !== 'fail')
  );
}

function requestCheck(sha256: Sha256, evidence: ProofEvidence, aep: Aep | null): Check {
  const { built, request, seed } = evidence;
  if (request === null || seed === null) {
    return {
      name: 'request_hash',
      result: 'not_applicable',
      detail: 'the request has been erased',
    };
  }
  const matches = attempt(() => {
    const hash = documentHash(sha256, built?.document ?? parseStrict(request));
    if (built !== undefined) return hash === built.requestHash;
    const salt = saltsFrom(sha256, seed)(REQUEST_HASH);
    return commitmentTo(sha256, [salt, REQUEST_HASH, hash]) === aep?.request_commitment;
  });
  return check(
    'request_hash',
    aep !== null && matches === true,
    'the AEP is about another request',
  );
}

function keyCheck(sha256: Sha256, key: KeyState | null, aep: Aep | null): Check {
  const state = key?.state ?? 'unknown';
  const publicKey = key?.publicKey ?? null;
  return check(
    'signing_key',
    state === 'active' &&
      publicKey !== null &&
      aep?.key_id === attempt(() => jwkThumbprint(sha256, publicKey)),
    state === 'active'
      ? 'the AEP names another key than the log'
      : // The index verdict_failed_otherwise and a metrics query match this text.
        `by the log the key is ${state} at this position`,
  );
}

function inclusionCheck(sha256: Sha256, evidence: ProofEvidence): Check {
  const hash = leafHash(sha256, evidence.entry);
  const { inclusion, leafIndex } = evidence;
  const included =
    'leafHashInTree' in inclusion
      ? equalBytes(hash, inclusion.leafHashInTree)
      : verifyInclusion(sha256, { index: leafIndex, leafHash: hash, ...inclusion });
  return check('inclusion', included, `the entry is not leaf ${leafIndex} of the tree`);
}

function approvalCheck(
  crypto: ProofCrypto,
  { approval, leafIndex }: ProofEvidence,
  aep: Aep | null,
): Check {
  if (aep !== null && aep.evidence.approval === null) {
    return {
      name: 'approval',
      result: 'not_applicable',
      detail: 'no approval caused the decision',
    };
  }
  const fault = aep && secondDecisionFault(crypto, aep, leafIndex, approval);
  return check('approval', aep !== null && fault === null, fault ?? 'there is no valid AEP');
}

function hashesOf(
  { sha256, base64 }: VerifyCrypto,
  evidence: ProofEvidence,
  aep: Aep,
): LoggedHashes {
  const record = {
    proof_id: evidence.proof_id,
    aep: evidence.aep,
    signature: evidence.signature,
    key_id: aep.key_id,
  };
  return loggedHashes(sha256, record, base64);
}

function check(name: CheckName, passed: boolean, otherwise: string): Check {
  return passed ? { name, result: 'pass' } : { name, result: 'fail', detail: otherwise };
}
