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
import { claimIn, claimOf, placeOf } from './offline/place.js';

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

  const { key_id: keyId } = document.aep;
  const pinned = pins.filter((pin) => pin.keyId === keyId);
  const delegated = pinned.length === 0 ? delegatedKey(document, pins) : null;
  const publicKey = pinned[0]?.publicKey ?? delegated?.publicKey;
  if (publicKey === undefined) {
    return undecidable(
      'signing_key_not_pinned',
      `the document is signed under key ${keyId}, which is not pinned`,
    );
  }
  if (!isSignedBy(document, publicKey, crypto)) {
    const detail = `the signature does not verify under the ${delegated ? 'delegated' : 'pinned'} key`;
    return notAuthentic({ code: 'bad_signature', detail }, log);
  }
  if (delegated !== null && log !== null && !isDelegated(delegated, log, crypto)) {
    const detail = 'the delegation does not verify under the pinned root key for this log';
    const pointer = '/key/entry/delegation/sig';
    return notAuthentic({ code: 'bad_signature', detail, pointer }, log);
  }
  const { approval } = document;
  if (approval !== null && !isApproved(crypto, approval)) {
    const detail = 'the signature of the approval or of its registration does not verify';
    return notAuthentic({ code: 'bad_approval_signature', detail, pointer: '/approval' }, log);
  }
  const ended = endOf(document, now);
  const found = log && placeInLog(document, tlogProof, log, crypto, delegated !== null);
  const result = placed(document, delegated ?? pinned, log, found);
  if (!result.decidable || !result.authentic) return result;
  const state = delegated && ({ keyState: 'unknown' } as const);
  const shown = { ...result, ...disclosedIn(document), ...state };
  return result.faults.length === 0 && ended !== null ? { ...shown, status: ended } : shown;
}

/** A key that is not pinned, and the pins of the root that its delegation names. */
interface DelegatedKey {
  keyId: string;
  publicKey: Uint8Array;
  delegation: Delegation;
  roots: readonly [AepKeyPin, ...AepKeyPin[]];
}

function delegatedKey({ key }: SignedDocument, pins: readonly AepKeyPin[]): DelegatedKey | null {
  const { delegation, key_id: keyId, public_key } = key.entry;
  if (delegation === undefined) return null;
  const [root, ...others] = pins.filter((pin) => pin.keyId === delegation.root_key_id);
  if (root === undefined) return null;
  return { keyId, publicKey: fromBase64Url(public_key), delegation, roots: [root, ...others] };
}

const isDelegated = (
  { delegation, keyId, roots: [root] }: DelegatedKey,
  { origin }: LogPin,
  { verify }: Pick<VerifyCrypto, 'verify'>,
): boolean =>
  verify(root.publicKey, delegationToSign(origin, keyId, delegation), fromBase64(delegation.sig));

/** Whether the root could delegate at leaf `activatedAt`, and the delegated key sign at leaf `leafIndex`. */
const isInForce = (
  { delegation, roots }: DelegatedKey,
  activatedAt: number,
  leafIndex: number,
): boolean =>
  delegation.max_proofs > 0 &&
  leafIndex < delegation.until_index &&
  roots.every(
    ({ after, before, compromisedFrom }) =>
      after < activatedAt && activatedAt < before && leafIndex < compromisedFrom,
  );

/** Whether the registered key signed both the registration and the approval. */
const isApproved = (
  crypto: ProofCrypto,
  { envelope, registration }: NonNullable<SignedDocument['approval']>,
): boolean =>
  verifyRegistration(crypto, registration) && verifyApproval(crypto, envelope, registration);

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
  log: LogPin,
  crypto: VerifyCrypto,
  needsActivation: boolean,
): PlacedWithKey | null {
  const { entry, inclusion, tlog_proof: own } = document;
  const text = tlogProof ?? own ?? undefined;
  if (text === undefined && inclusion === undefined) return null;
  const readClaim = () => (text === undefined ? claimOf(inclusion!) : claimIn(text));
  const found = placeOf(canonicalBytes(entry), readClaim, log, crypto);
  if ('fault' in found) return found;
  const { approval, key } = document;
  const activation = findActivation(key, found.place, log, crypto, KEY);
  if ('fault' in activation) return activation;
  if (activation.at === null && needsActivation) {
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
  const found = placeOf(canonicalBytes(entry), () => claimIn(tlog_proof), unwitnessed, crypto);
  if (!('fault' in found) && found.place.leafIndex < leafIndex)
    return { at: found.place.leafIndex };
  const detail =
    'fault' in found ? found.fault.detail : `the ${what} was activated after the proof was logged`;
  return { fault: { code, detail, pointer } };
}

/** Decides by the log position of the proof whether a valid signature counts. */
function placed(
  { aep }: SignedDocument,
  key: readonly AepKeyPin[] | DelegatedKey,
  log: LogPin | null,
  found: PlacedWithKey | null,
): OfflineResult {
  // A holder of an expired key can still sign, so only the log separates earlier signatures from
  // later ones.
  const ends = 'roots' in key || key.some(({ before }) => before !== Infinity);
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
  const counts =
    'roots' in key
      ? isInForce(key, found.activatedAt!, leafIndex)
      : key.every(({ after, before }) => after < leafIndex && leafIndex < before);
  if (!counts) {
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
  const found = placeOf(leaf.bytes, () => claimIn(tlogProof), log, crypto);
  if ('fault' in found) return notIncluded(found.fault);
  return {
    decidable: true,
    included: true,
    ...placeFields(found.place),
    entry: leaf.entry,
    faults: [],
  };
}
