import { nobleVerify } from '../protocol/ed25519.js';
import { ProtocolError } from '../protocol/errors.js';
import { nobleSha256 } from '../protocol/hash.js';
import {
  PIN_ERRORS,
  verifyOffline as checkExport,
  verifyTlogProof as checkTlogProof,
  type OfflineOptions,
  type OfflineResult,
  type OfflineTrust,
  type TextOrBytes,
  type TlogProofResult,
} from '../protocol/offline.js';
import { SdkError } from './errors.js';

/** JavaScript throughout, so that there is one implementation in Node and in every browser. */
const crypto = { sha256: nobleSha256, verify: nobleVerify };

/**
 * Checks an exported proof with no network, under keys that the reader pinned: canonical bytes,
 * hashes, signature, inclusion in the log, checkpoint.
 *
 * It says `authentic` and `included`, and never that a proof is valid: it may have been revoked since
 * its checkpoint, which only the service can tell. `decidable` is false, with a `cause`, when nobody
 * could tell under these pins; with no pinned key that is always so.
 *
 * Nothing in the document makes it throw. An unusable pin does: `SdkError` with the code
 * `unusable_pin`, and which of `PIN_ERRORS` it is in `pin`.
 *
 * @param exported an export (`svc.registry.proof_export/1.0`) as text or bytes, or as the value that
 *   `exportProofHttp` returned; text is the better evidence, since a lenient reader before this one may
 *   have chosen between two members of one name
 * @param trust AEP keys (32 bytes, base64url or JWK) and the log's C2SP vkey and origin, obtained from
 *   elsewhere than the document
 * @param options `tlogProof`: a C2SP `.tlog-proof` of the same entry, in place of the export's own
 *   inclusion
 */
export function verifyOffline(
  exported: TextOrBytes | object,
  trust: OfflineTrust = {},
  options: OfflineOptions = {},
): OfflineResult {
  return withPins(() => checkExport(exported, trust, crypto, options));
}

/**
 * Checks a C2SP `.tlog-proof` of a log entry under the pinned log: whether the entry is in the tree, and
 * under which checkpoint. It says nothing of who signed the AEP behind the entry: that takes an export.
 *
 * @param tlogProof the file, as text or bytes
 * @param entry the log entry it is about: its canonical bytes or text, as `/log/tile/entries` has them
 * @param trust the log's C2SP vkey and origin; throws for an unusable one as `verifyOffline` does
 */
export function verifyTlogProof(
  tlogProof: TextOrBytes,
  entry: TextOrBytes,
  trust: Pick<OfflineTrust, 'log'> = {},
): TlogProofResult {
  return withPins(() => checkTlogProof(tlogProof, entry, trust, crypto));
}

function withPins<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    const pin = PIN_ERRORS.find((code) => error instanceof ProtocolError && error.code === code);
    if (pin === undefined) throw error;
    throw new SdkError('unusable_pin', (error as ProtocolError).message, { pin, cause: error });
  }
}
