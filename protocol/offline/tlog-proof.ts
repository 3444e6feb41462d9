import { parseEntry } from '../entries.js';
import type { LogEntry } from '../schemas/log-entry.js';
import type { VerifyCrypto } from '../verify.js';
import { placeOf, readTlogProof } from './inclusion.js';
import { bytesOf, faultOf, type TextOrBytes } from './read.js';
import { placeFields, undecidable, type OfflineFault, type TlogProofResult } from './result.js';
import { readLog, type OfflineTrust } from './trust.js';

/**
 * Checks a C2SP tlog-proof of a log entry of any type under the pinned log. The entry must be its
 * canonical bytes or text: they are the leaf. Throws only for unusable pins, as `verifyOffline`.
 */
export function verifyTlogProof(
  tlogProof: TextOrBytes,
  entry: TextOrBytes,
  trust: Pick<OfflineTrust, 'log'>,
  crypto: VerifyCrypto,
): TlogProofResult {
  const log = readLog(crypto.sha256, trust.log);
  if (log === null) {
    return undecidable('no_pinned_log', 'pin the verifier key and origin of the log');
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
  const read = readTlogProof(tlogProof);
  if ('fault' in read) return notIncluded(read.fault);
  const found = placeOf(leaf.bytes, read.claim, log, crypto);
  if ('fault' in found) return notIncluded(found.fault);
  return {
    decidable: true,
    included: true,
    ...placeFields(found.place),
    entry: leaf.entry,
    faults: [],
  };
}
