import { fromBase64, toBase64 } from './bytes.js';
import { ProtocolError } from './errors.js';
import { HASH_BYTES, requireSize } from './merkle.js';

/** A request of C2SP tlog-witness: cosign this checkpoint, which extends the tree of `oldSize`. */
export interface AddCheckpoint {
  oldSize: number;
  /** Consistency proof, at most 63 hashes of 32 bytes. */
  proof: readonly Uint8Array[];
  /** The signed checkpoint, verbatim and unverified. */
  note: string;
}

const MAX_PROOF = 63;

export function formatAddCheckpoint({ oldSize, proof, note }: AddCheckpoint): string {
  requireSize(oldSize);
  if (proof.length > MAX_PROOF || proof.some((hash) => hash.length !== HASH_BYTES)) {
    throw new ProtocolError('malformed_add_checkpoint', 'unusable consistency proof');
  }
  return [`old ${oldSize}`, ...proof.map(toBase64), '', note].join('\n');
}

/** Text that {@link formatAddCheckpoint} would not write is `malformed_add_checkpoint`. */
export function parseAddCheckpoint(text: string): AddCheckpoint {
  try {
    const end = text.indexOf('\n\n');
    const [first = '', ...hashes] = text.slice(0, end).split('\n');
    const request = {
      oldSize: Number(first.replace(/^old /, '')),
      proof: hashes.map(fromBase64),
      note: text.slice(end + 2),
    };
    if (end > 0 && formatAddCheckpoint(request) === text) return request;
  } catch (cause) {
    throw new ProtocolError(
      'malformed_add_checkpoint',
      'the text is not an add-checkpoint request',
      { cause },
    );
  }
  throw new ProtocolError('malformed_add_checkpoint', 'the request is not in its canonical form');
}

/** Content type of the body of 409: the size of the latest cosigned checkpoint, on a line. */
export const TLOG_SIZE_TYPE = 'text/x.tlog.size';
