import { fromUtf8 } from '../../protocol/bytes.js';
import { type OfflineFault, verifyTlogProof } from '../../protocol/offline.js';
import { type LogEntry, logEntrySchema } from '../../protocol/schemas/log-entry.js';
import { SdkError } from '../errors.js';
import { readDocument, requireType } from '../http/answers.js';
import { withDeadline } from '../http/attempt.js';
import { invalidInput, type PublicOptions } from '../options.js';
import { crypto, withPins } from '../pins.js';
import { openRegistry } from './lookup.js';

/** An entry of the public log. */
export interface PublishedEntry {
  entry: LogEntry;
  /** The canonical bytes of the entry. The leaf hash is SHA-256 of 0x00 and these bytes (RFC 6962). */
  bytes: Uint8Array;
  /** A C2SP `.tlog-proof` of the entry. */
  tlogProof: string;
  /** Whether the inclusion was verified under the pinned log; false without pins. */
  verified: boolean;
}

/**
 * `GET /log/entry/{leaf_index}` and `GET /log/proof/{leaf_index}`: an entry of the log with its
 * inclusion proof. With pins in the options, throws `evidence_rejected` unless the pinned log has this
 * entry at this index.
 */
export async function readLogEntryHttp(
  options: PublicOptions,
  input: { leaf_index: number },
): Promise<PublishedEntry> {
  const registry = openRegistry(options);
  const { leaf_index: index } = input;
  if (!Number.isSafeInteger(index) || index < 0) {
    throw invalidInput('/leaf_index', 'a leaf index is an integer from 0');
  }
  return withDeadline(options, async (deadline) => {
    const [answer, proof] = await Promise.all([
      registry.read({ method: 'GET', path: `/log/entry/${String(index)}` }, deadline),
      registry.read(
        { method: 'GET', path: `/log/proof/${String(index)}`, accept: 'text/plain' },
        deadline,
      ),
    ]);
    const entry = readDocument(answer, logEntrySchema);
    requireType(proof, 'text/plain');
    const tlogProof = fromUtf8(proof.bytes);
    const { bytes } = answer;
    if (options.pins === undefined) return { entry, bytes, tlogProof, verified: false };
    const trust = { log: options.pins };
    const found = withPins(() => verifyTlogProof(tlogProof, bytes, trust, crypto));
    if (!found.decidable) throw rejected(found.detail);
    if (!found.included || found.leafIndex !== index) {
      throw rejected('the log does not have this entry at this index', found.faults[0]);
    }
    return { entry, bytes, tlogProof, verified: true };
  });
}

const rejected = (message: string, fault?: OfflineFault): SdkError =>
  new SdkError('evidence_rejected', message, { fault: fault?.code });
