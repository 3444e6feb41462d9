import { AEP_PAYLOAD_TYPE, type Receipt } from './aep.js';
import { verifyApproval, verifyRegistration } from './approvals.js';
import { fromBase64, fromBase64Url } from './bytes.js';
import { canonicalBytes } from './json.js';
import { disclosedIn } from './commitments.js';
import { pae, parseEnvelope } from './dsse.js';
import { parseEntry } from './entries.js';
import type { Delegation, LogEntry } from './schemas/log-entry.js';
import { delegationToSign } from './state/log-keys.js';
import { canAssertValidity } from './status.js';
import { formatTime } from './time.js';
import type { ProofCrypto, VerifyCrypto } from './verify.js';
import { bytesOf, readSigned, type TextOrBytes, type SignedDocument } from './offline/read.js';
import {
  faultOf,
  type OfflineFault,
  type OfflineResult,
  type Place,
  placeFields,
  type TlogProofResult,
  undecidable,
} from './offline/result.js';
import {
  type AepKeyPin,
  type LogPin,
  type OfflineTrust,
  readAepKeys,
  readLog,
} from './offline/trust.js';
import { placeOf } from './offline/place.js';

export {
  OFFLINE_FAULTS,
  UNDECIDABLE_CAUSES,
  type OfflineFault,
  type OfflineFaultCode,
  type OfflineResult,
  type Place,
  type TlogProofResult,
  type Undecidable,
  type UndecidableCause,
} from './offline/result.js';
export type { TextOrBytes } from './offline/read.js';
export {
  PIN_ERRORS,
  type OfflineTrust,
  type PinErrorCode,
  type PinnedAepKey,
  type PinnedJwk,
  type PinnedLog,
  type PinnedLogKey,
} from './offline/trust.js';

export interface OfflineOptions {
  /**
   * A C2SP tlog-proof of the same entry, for example under a later checkpoint; replaces the
   * inclusion proof of the document.
   */
  tlogProof?: TextOrBytes | undefined;
  /** The receipt that the document must prove. */
  receipt?: Receipt | undefined;
  /** The time in milliseconds since 1970. Without a time, `valid_until` of the AEP is not checked. */
  now?: number | undefined;
}

/**
 * Checks an exported proof (`svc.registry.proof_export/1.1`) or the evidence of a receipt
 * (`svc.runtime.receipt_evidence/1.1`) against pinned keys. Parses text and
 * bytes strictly; accepts an already parsed value as it is. Trusts nothing in the document, not
 * even its keys. Never throws because of the document; throws a ProtocolError of `PIN_ERRORS` for
 * unusable pins, which the caller supplies. The verdict in the document is unsigned, and only the
 * registry can confirm it: here, a verdict can withdraw validity but not assert it.
 *
 * An undecidable result does not mean that the document is invalid: the caller has not pinned the key
 * or log that the check needs.
 */
export function verifyOffline(
  exported: unknown,
  trust: OfflineTrust,
  crypto: ProofCrypto,
  { tlogProof, now, receipt }: OfflineOptions = {},
): OfflineResult {
  const pins = readAepKeys(crypto.sha256, trust.aepKeys);
  const log = readLog(crypto.sha256, trust.log);
  if (pins.length === 0) {
    return undecidable(
      'no_pinned_key',
      'pin the AEP key of the service, obtained from another source',
    );
  }
  const read = readSigned(exported, crypto.sha256, receipt);
  if ('fault' in read) return notAuthentic(read.fault, log);
  const { document } = read;

  const signer = signerOf(document, pins);
  if (signer === null) {
    return undecidable(
      'signing_key_not_pinned',
      `the document is signed under key ${document.aep.key_id}, which is not pinned`,
    );
  }
  const fault = signatureFault(document, signer, log, crypto);
  if (fault !== null) return notAuthentic(fault, log);
  const found = log && placeInLog(document, tlogProof, signer, log, crypto);
  const result = placed(document, signer, log, found);
  if (!result.decidable || !result.authentic) return result;
  const ended = result.faults.length === 0 ? endOf(document, now) : null;
  return {
    ...result,
    ...disclosedIn(document),
    ...(signer.delegation !== null && { keyState: 'unknown' as const }),
    ...(ended !== null && { status: ended }),
  };
}

/** The key that signed the document, which is pinned or to which a pinned root delegated. */
interface Signer {
  keyId: string;
  publicKey: Uint8Array;
  /** The delegation of the key; null for a pinned key. */
  delegation: Delegation | null;
  /** The pins of the key, or of the root that delegated to the key. */
  pins: readonly [AepKeyPin, ...AepKeyPin[]];
}

function signerOf({ aep, key }: SignedDocument, pins: readonly AepKeyPin[]): Signer | null {
  const { key_id: keyId } = aep;
  const [own, ...others] = pins.filter((pin) => pin.keyId === keyId);
  if (own !== undefined) {
    return { keyId, publicKey: own.publicKey, delegation: null, pins: [own, ...others] };
  }
  const { delegation, public_key } = key.entry;
  if (delegation === undefined) return null;
  const [root, ...sameRoot] = pins.filter((pin) => pin.keyId === delegation.root_key_id);
  if (root === undefined) return null;
  return { keyId, publicKey: fromBase64Url(public_key), delegation, pins: [root, ...sameRoot] };
}

/** The first signature in the document that does not verify, or null. A delegation is signed for one log. */
function signatureFault(
  document: SignedDocument,
  { delegation, keyId, pins: [root], publicKey }: Signer,
  log: LogPin | null,
  crypto: ProofCrypto,
): OfflineFault | null {
  if (!isSignedBy(document, publicKey, crypto)) {
    const detail = `the signature does not verify under the ${delegation ? 'delegated' : 'pinned'} key`;
    return { code: 'bad_signature', detail };
  }
  if (delegation !== null && log !== null) {
    const message = delegationToSign(log.origin, keyId, delegation);
    if (!crypto.verify(root.publicKey, message, fromBase64(delegation.sig))) {
      const detail = 'the delegation does not verify under the pinned root key for this log';
      return { code: 'bad_signature', detail, pointer: '/key/entry/delegation/sig' };
    }
  }
  if (document.approval === null) return null;
  const { envelope, registration } = document.approval;
  if (
    !verifyRegistration(crypto, registration) ||
    !verifyApproval(crypto, envelope, registration)
  ) {
    const detail = 'the signature of the approval or of its registration does not verify';
    return { code: 'bad_approval_signature', detail, pointer: '/approval' };
  }
  return null;
}

/**
 * Whether the pins cover a signature at leaf `leafIndex`. For a delegated key: whether the root could delegate at
 * leaf `activatedAt`, and the key sign at leaf `leafIndex`.
 */
function isInForce(
  { delegation, pins }: Signer,
  leafIndex: number,
  activatedAt: number | null,
): boolean {
  if (delegation === null) {
    return pins.every(({ after, before }) => after < leafIndex && leafIndex < before);
  }
  return (
    delegation.max_proofs > 0 &&
    leafIndex < delegation.until_index &&
    pins.every(
      ({ after, before, compromisedFrom }) =>
        after < activatedAt! && activatedAt! < before && leafIndex < compromisedFrom,
    )
  );
}

/** Whether a public key of 32 bytes signed the AEP. */
export function isSignedBy(
  { envelope }: SignedDocument,
  publicKey: Uint8Array,
  { verify }: Pick<VerifyCrypto, 'verify'>,
): boolean {
  const { payload, signature } = parseEnvelope(envelope);
  return verify(publicKey, pae(AEP_PAYLOAD_TYPE, payload), signature);
}

/**
 * The status that the document states, if that status asserts no validity; `EXPIRED` if the signed
 * validity has ended; else null.
 */
function endOf({ aep, verdict }: SignedDocument, now: number | undefined): string | null {
  const stated = verdict?.verification_status;
  if (stated !== undefined && !canAssertValidity(stated)) return stated;
  const { proof: end } = aep.valid_until;
  return end !== null && now !== undefined && end <= formatTime(now) ? 'EXPIRED' : null;
}

/** The log position of the document's proof; null for receipt evidence without an inclusion proof. */
function placeInLog(
  document: SignedDocument,
  tlogProof: TextOrBytes | undefined,
  signer: Signer,
  log: LogPin,
  crypto: VerifyCrypto,
): PlacedWithKey | null {
  const { approval, entry, key } = document;
  const claimed = tlogProof ?? document.tlog_proof ?? document.inclusion;
  if (claimed === undefined) return null;
  const found = placeOf(canonicalBytes(entry), claimed, log, crypto);
  if ('fault' in found) return found;
  const activation = findActivation(key, found.place, log, crypto, KEY);
  if ('fault' in activation) return activation;
  if (activation.at === null && signer.delegation !== null) {
    const detail = 'the activation of a delegated key has no proof of inclusion';
    return { fault: { code: KEY.code, detail, pointer: KEY.pointer } };
  }
  const approver = approval && findActivation(approval, found.place, log, crypto, APPROVER);
  if (approver !== null && 'fault' in approver) return approver;
  return { ...found, activatedAt: activation.at };
}

type PlacedWithKey = { place: Place; activatedAt: number | null } | { fault: OfflineFault };

const KEY = { code: 'key_not_activated', what: 'key', pointer: '/key/tlog_proof' } as const;
const APPROVER = {
  code: 'approver_not_activated',
  what: 'approver',
  pointer: '/approval/tlog_proof',
} as const;

/**
 * Finds the activation of the AEP key or of the approver, which must be in the tree before the proof. The
 * index `at` is null when the document does not prove where the activation is.
 */
function findActivation(
  {
    entry,
    tlog_proof,
  }: Pick<NonNullable<SignedDocument['approval' | 'key']>, 'entry' | 'tlog_proof'>,
  { leafIndex }: Place,
  log: LogPin,
  crypto: VerifyCrypto,
  { code, pointer, what }: typeof KEY | typeof APPROVER,
): { fault: OfflineFault } | { at: number | null } {
  if (tlog_proof === null) return { at: null };
  // Requires no quorum, because a registry exports before the witnesses cosign. The activation may therefore
  // exist only in a fork of the log.
  const unwitnessed = { ...log, policy: null };
  const found = placeOf(canonicalBytes(entry), tlog_proof, unwitnessed, crypto);
  if (!('fault' in found) && found.place.leafIndex < leafIndex)
    return { at: found.place.leafIndex };
  const detail =
    'fault' in found ? found.fault.detail : `the ${what} was activated after the proof was logged`;
  return { fault: { code, detail, pointer } };
}

/** Decides by the log position of the proof whether a valid signature counts. */
function placed(
  { aep }: SignedDocument,
  signer: Signer,
  log: LogPin | null,
  found: PlacedWithKey | null,
): OfflineResult {
  // A holder of an expired key can still sign, so only the log shows whether the key signed before it expired.
  const ends = signer.delegation !== null || signer.pins.some(({ before }) => before !== Infinity);
  if (found === null) {
    return ends
      ? undecidable(
          'no_pinned_log',
          'the key was delegated, retired or compromised, so the log index of the proof decides: pin the log and supply an inclusion proof',
        )
      : { decidable: true, authentic: true, aep, status: 'unknown', faults: [] };
  }
  if ('fault' in found) {
    if (ends) return notAuthentic(found.fault, log);
    const faults = [found.fault];
    return { decidable: true, authentic: true, included: false, aep, status: 'unknown', faults };
  }
  const { leafIndex } = found.place;
  if (!isInForce(signer, leafIndex, found.activatedAt)) {
    const detail = `the pin does not cover signatures at leaf ${leafIndex}`;
    return notAuthentic({ code: 'key_not_in_force', detail }, log);
  }
  const fields = placeFields(found.place);
  return { decidable: true, authentic: true, included: true, ...fields, aep, faults: [] };
}

function notAuthentic(fault: OfflineFault, log: LogPin | null): OfflineResult {
  return {
    decidable: true,
    authentic: false,
    // An inclusion proof of another entry proves nothing about this document.
    ...(log === null ? {} : { included: false }),
    status: 'unknown',
    faults: [fault],
  };
}

/**
 * Checks a C2SP tlog-proof of a log entry of any type under the pinned log. The entry must be its
 * canonical bytes or text: they are the leaf. Throws only for unusable pins, like `verifyOffline`.
 */
export function verifyTlogProof(
  tlogProof: TextOrBytes,
  entry: TextOrBytes,
  trust: Pick<OfflineTrust, 'log'>,
  crypto: VerifyCrypto,
): TlogProofResult {
  const log = readLog(crypto.sha256, trust.log);
  if (log === null) {
    return undecidable('no_pinned_log', 'pin the vkey and origin of the log');
  }
  const notIncluded = (fault: OfflineFault): TlogProofResult => ({
    decidable: true,
    included: false,
    status: 'unknown',
    faults: [fault],
  });
  let leaf: { bytes: Uint8Array; entry: LogEntry };
  try {
    const bytes = bytesOf(entry);
    leaf = { bytes, entry: parseEntry(bytes) };
  } catch (error) {
    return notIncluded(faultOf(error, 'malformed_entry'));
  }
  const found = placeOf(leaf.bytes, tlogProof, log, crypto);
  if ('fault' in found) return notIncluded(found.fault);
  return {
    decidable: true,
    included: true,
    ...placeFields(found.place),
    entry: leaf.entry,
    faults: [],
  };
}
