import {
  verifyOffline as checkExport,
  verifyTlogProof as checkTlogProof,
  type OfflineOptions,
  type OfflineResult,
  type OfflineTrust,
  type TextOrBytes,
  type TlogProofResult,
} from '../protocol/offline.js';
import { verifyRun as checkRun, type RunResult } from '../protocol/run.js';
import type { PublicKeys } from '../protocol/snapshot/keys.js';
import { crypto, withPins } from './pins.js';

/**
 * Verifies an exported proof, or the evidence of a receipt, without a network, under the reader's
 * pinned keys: canonical bytes, hashes, signature, inclusion in the log, checkpoint.
 *
 * The result has `authentic` and `included`, never validity: only the service knows whether the
 * proof was revoked after its checkpoint. `status` is `REVOKED` or `EXPIRED` when the document shows
 * that the proof is not valid any more. `decidable` is false, with a `cause`, when the pins do
 * not suffice.
 *
 * No document makes the function throw. An unusable pin throws `SdkError` with the code
 * `unusable_pin`, and one of `PIN_ERRORS` in `pin`.
 *
 * @param exported an export (`svc.registry.proof_export/1.1`) or the evidence of a receipt
 *   (`svc.runtime.receipt_evidence/1.1`) as text or bytes, or the value that the SDK returned. Prefer
 *   text: a lenient parser may drop one of two members of the same name
 * @param trust AEP keys (32 bytes, base64url or JWK) and the log's C2SP vkey and origin, from a source other than the
 *   document
 * @param options `tlogProof`: a C2SP `.tlog-proof` of the entry, instead of the export's own
 *   inclusion; `receipt`: the receipt that the document must prove; `now`: milliseconds since 1970, by
 *   default the clock of this computer
 */
export function verifyOffline(
  exported: TextOrBytes | object,
  trust: OfflineTrust = {},
  options: OfflineOptions = {},
): OfflineResult {
  const now = options.now ?? Date.now();
  return withPins(() => checkExport(exported, trust, crypto, { ...options, now }));
}

/**
 * Verifies a C2SP `.tlog-proof` of a log entry under the pinned log: whether the tree includes the
 * entry, and under which checkpoint. To verify who signed the AEP behind the entry, use an export.
 *
 * @param tlogProof the file, as text or bytes
 * @param entry canonical bytes or text of the log entry, as in `/log/tile/entries`
 * @param trust the log's C2SP vkey and origin; throws for an unusable one like `verifyOffline`
 */
export function verifyTlogProof(
  tlogProof: TextOrBytes,
  entry: TextOrBytes,
  trust: Pick<OfflineTrust, 'log'> = {},
): TlogProofResult {
  return withPins(() => checkTlogProof(tlogProof, entry, trust, crypto));
}

/**
 * Verifies the package of a closed run (`svc.registry.run/1.0`) under the reader's pinned keys and log:
 * every proof is authentic and in the log, and the run has exactly these requests. `missing` lists the
 * numbers of erased members. Calls that never reached the service cannot be seen.
 *
 * @param document the package as text or bytes, or the value that the SDK returned
 * @param trust as for `verifyOffline`; the log must be pinned
 */
export function verifyRun(document: TextOrBytes | object, trust: OfflineTrust = {}): RunResult {
  return withPins(() => checkRun(document, trust, crypto));
}

/**
 * The published keys of a registry as pins for `verifyOffline`: AEP keys with their range of log
 * positions, the present log key, and former ones up to the last tree that each signed. Pinning
 * trusts the registry once: compare the keys with those that the operator publishes elsewhere.
 */
export function pinsOf({ aep, log }: PublicKeys): OfflineTrust {
  return { aepKeys: aep, log: { vkey: [log.vkey, ...log.retired], origin: log.origin } };
}
