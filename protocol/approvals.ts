import { concat, equalBytes, fromBase64Url, toBase64Url, utf8 } from './bytes.js';
import { pae } from './dsse.js';
import { type Ed25519Verify, isPoint, isUsablePublicKey } from './ed25519.js';
import { attempt } from './errors.js';
import { documentHash, type Sha256 } from './hash.js';
import { canonicalBytes, type JsonValue, parseStrict } from './json.js';
import type { KeyedEntry } from './keys.js';
import { fromDer, isOnP256, type P256Key, type P256Verify } from './p256.js';
import type { Aep } from './schemas/aep.js';
import type {
  Approval,
  ApproverKey,
  ApproverSignature,
  Registration,
  StoredApproval,
} from './schemas/approvals.js';
import type { ApproverEntry } from './schemas/log-entry.js';
import type { Effect } from './status.js';
import { parseTime } from './time.js';

export interface ApprovalCrypto {
  sha256: Sha256;
  /** A strict verification: `nobleVerify`, or another implementation wrapped by `strictEd25519`. */
  verify: Ed25519Verify;
  verifyP256: P256Verify;
}

/** The bytes that an approver signs, or whose SHA-256 is the challenge of a WebAuthn assertion. */
export const approvalToSign = (statement: Approval['statement']): Uint8Array =>
  pae('application/vnd.svc.agent.approval+json', canonicalBytes(statement));

/** The bytes that an approver signs to register a key. */
export const registrationToSign = (unsigned: Omit<Registration, 'signature'>): Uint8Array =>
  pae('application/vnd.svc.registry.approver+json', canonicalBytes(unsigned));

/** Whether the registered key signed the registration, which proves possession of the key. */
export function verifyRegistration(crypto: ApprovalCrypto, registration: Registration): boolean {
  const { signature, ...unsigned } = registration;
  return isSignedBy(crypto, registration, registrationToSign(unsigned), signature);
}

/**
 * Whether the registered approver signed the approval. Checks neither its expiry nor the pending
 * proof that it names.
 */
export function verifyApproval(
  crypto: ApprovalCrypto,
  { statement, signature }: Approval,
  registration: Registration,
): boolean {
  return (
    statement.registration_hash === documentHash(crypto.sha256, registration) &&
    statement.tenant_id === registration.tenant_id &&
    isSignedBy(crypto, registration, approvalToSign(statement), signature)
  );
}

/** The proof that an approval is about, as the log has it. */
export interface PendingProof {
  proofId: string;
  tenantId: string;
  effect: Effect;
  /** Lower-case hex. */
  aepHash: string;
  /** The reasons of the pending decision; null once the payload is erased. */
  reasons: readonly string[] | null;
}

/** Why an approval had no effect on the pending proof, or null. */
export function approvalFault(
  crypto: ApprovalCrypto,
  { envelope, registration, reasons }: StoredApproval,
  {
    acceptedAt,
    isActive,
    pending,
  }: { acceptedAt: number; isActive: boolean; pending: PendingProof },
): string | null {
  const { statement } = envelope;
  if (pending.effect !== 'REQUIRE_APPROVAL') return 'the proof requires no approval';
  if (statement.proof_id !== pending.proofId || statement.aep_hash !== pending.aepHash) {
    return 'the approval names another proof or AEP';
  }
  if (statement.tenant_id !== pending.tenantId) return 'the approval names another tenant';
  if (acceptedAt >= parseTime(statement.expires_at)) return 'the approval has expired';
  if (!isActive) return 'the registration of the approver is not active';
  if (
    !verifyRegistration(crypto, registration) ||
    !verifyApproval(crypto, envelope, registration)
  ) {
    return 'the signature of the approval or of its registration does not verify';
  }
  return pending.reasons === null || reasons.join('\n') === pending.reasons.join('\n')
    ? null
    : 'the reasons differ from those of the pending proof';
}

/** The records of the registry about the approval of a second decision. */
export interface ApprovalEvidence extends RecordedApproval {
  /** Whether the approver's registration is active at the leaf of the second decision. */
  isActive: boolean;
}

export interface RecordedApproval {
  stored: StoredApproval;
  /** The pending proof; null when the tenant does not have this proof. */
  pending: (PendingProof & { leafIndex: number }) | null;
  /** Whether both decisions are about the same request; null once the first request is erased. */
  isSame: boolean | null;
  /** Whether no other proof is a second decision about the pending proof. */
  isOnly: boolean;
}

/** The recorded approval, with whether its registration is active at `leafIndex`. */
export function approvalAt(
  leafIndex: number,
  keys: readonly KeyedEntry[],
  recorded: RecordedApproval | null,
): ApprovalEvidence | null {
  if (recorded === null) return null;
  const { registration_hash } = recorded.stored.envelope.statement;
  return { ...recorded, isActive: isActiveApprover(keys, registration_hash, leafIndex) };
}

/** Why the approval that an AEP names did not cause this second decision, or null. */
export function secondDecisionFault(
  crypto: ApprovalCrypto,
  aep: Aep,
  leafIndex: number,
  evidence: ApprovalEvidence | null,
): string | null {
  const named = aep.evidence.approval;
  if (evidence === null || named === null) return 'the approval is missing';
  const { isActive, isOnly, isSame, pending, stored } = evidence;
  const { envelope, registration } = stored;
  if (
    documentHash(crypto.sha256, envelope) !== named.approval_hash ||
    documentHash(crypto.sha256, registration) !== named.registration_hash
  ) {
    return 'the AEP names another approval or registration';
  }
  if (pending?.proofId !== named.pending_proof_id || pending.leafIndex >= leafIndex) {
    return 'the log does not have the named pending proof before this proof';
  }
  if (pending.tenantId !== aep.tenant_id) return 'the pending proof is of another tenant';
  const acceptedAt = parseTime(aep.accepted_at);
  const fault = approvalFault(crypto, stored, { acceptedAt, isActive, pending });
  if (fault !== null) return fault;
  if (isSame === false) return 'the request differs from that of the pending proof';
  if (!isOnly) return 'another proof is a second decision about the same pending proof';
  const { effect, reasons } = aep.decision;
  const isRejection = effect === 'DENY' && reasons.join('\n') === stored.reasons.join('\n');
  return envelope.statement.decision === 'approve' || isRejection
    ? null
    : 'the rejection differs from the decision';
}

/** Whether the registered key signed the message. The signature must use WebAuthn exactly if the registration does. */
function isSignedBy(
  crypto: ApprovalCrypto,
  { public_key, webauthn }: Registration,
  message: Uint8Array,
  signature: ApproverSignature,
): boolean {
  const signed =
    signature.type === 'ed25519'
      ? message
      : assertedBytes(crypto.sha256, webauthn, crypto.sha256(message), signature);
  if (signed === null || (webauthn === null) !== (signature.type === 'ed25519')) return false;
  return verifies(crypto, public_key, signed, fromBase64Url(signature.sig));
}

function verifies(
  { verify, verifyP256 }: ApprovalCrypto,
  key: ApproverKey,
  message: Uint8Array,
  signature: Uint8Array,
): boolean {
  const x = fromBase64Url(key.x);
  if (key.kty === 'OKP') {
    return isUsablePublicKey(x) && isPoint(x) && verify(x, message, signature);
  }
  const point: P256Key = { x, y: fromBase64Url(key.y) };
  const raw = fromDer(signature);
  return raw !== null && isOnP256(point) && verifyP256(point, message, raw);
}

/** The entry that activated a registration; null when the log has no such entry. */
export function approverActivationOf(
  keys: readonly KeyedEntry[],
  registrationHash: string,
): KeyedEntry<ApproverEntry> | null {
  for (const { entry, leafIndex } of keys) {
    if (entry.type !== 'key' || entry.use !== 'approver' || entry.change !== 'activate') continue;
    if (entry.registration_hash === registrationHash) return { entry, leafIndex };
  }
  return null;
}

/** Whether a registration is active at `leafIndex`: activated at a lower index, and not retired since. */
export function isActiveApprover(
  keyEntries: readonly KeyedEntry[],
  registrationHash: string,
  leafIndex: number,
): boolean {
  const changes = keyEntries.flatMap(({ leafIndex: at, entry }) =>
    at < leafIndex &&
    entry.type === 'key' &&
    entry.use === 'approver' &&
    entry.registration_hash === registrationHash
      ? [entry.change]
      : [],
  );
  const activated = changes.indexOf('activate');
  return activated !== -1 && !changes.slice(activated).includes('retire');
}

const RP_ID_HASH_BYTES = 32;
/** Length of RP id hash, flags and signature counter. */
const AUTHENTICATOR_DATA_BYTES = RP_ID_HASH_BYTES + 1 + 4;
/** The flags for user present and user verified. */
const UP_AND_UV = 0x01 | 0x04;

/** The bytes that an assertion signs (WebAuthn 2 §7.2); null unless its challenge, origin and flags are right. */
function assertedBytes(
  sha256: Sha256,
  webauthn: Registration['webauthn'],
  challenge: Uint8Array,
  signature: ApproverSignature & { type: 'webauthn' },
): Uint8Array | null {
  const authenticatorData = fromBase64Url(signature.authenticator_data);
  const clientData = fromBase64Url(signature.client_data_json);
  if (webauthn === null || authenticatorData.length < AUTHENTICATOR_DATA_BYTES) return null;
  const stated = attempt(() => parseStrict(clientData)) as Record<string, JsonValue> | undefined;
  const isExpected =
    stated?.['type'] === 'webauthn.get' &&
    stated['challenge'] === toBase64Url(challenge) &&
    // A page of another site must not obtain the assertion in a frame.
    stated['crossOrigin'] !== true &&
    webauthn.origins.includes(stated['origin'] as string) &&
    equalBytes(authenticatorData.subarray(0, RP_ID_HASH_BYTES), sha256(utf8(webauthn.rp_id))) &&
    (authenticatorData[RP_ID_HASH_BYTES]! & UP_AND_UV) === UP_AND_UV;
  return isExpected ? concat(authenticatorData, sha256(clientData)) : null;
}
