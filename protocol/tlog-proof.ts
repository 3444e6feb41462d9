import { fromBase64, toBase64 } from './bytes.js';
import { ProtocolError } from './errors.js';
import { HASH_BYTES } from './merkle.js';

/**
 * C2SP tlog-proof: an inclusion proof with its checkpoint, as text. Stored with the extension
 * `.tlog-proof`.
 */
export interface TlogProof {
  /** The extra data: opaque bytes, which nothing authenticates. */
  extra?: Uint8Array;
  index: number;
  /** Hashes from the leaf's sibling up, 32 bytes each. */
  path: readonly Uint8Array[];
  /** The signed note, verbatim and unverified. */
  checkpoint: string;
}

const FIRST_LINE = 'c2sp.org/tlog-proof@v1';
/** Most hashes in a path; a tree of 2^53 leaves needs fewer. */
const MAX_PATH = 64;

export function formatTlogProof({ extra, index, path, checkpoint }: TlogProof): string {
  if (
    !Number.isSafeInteger(index) ||
    index < 0 ||
    path.length > MAX_PATH ||
    path.some((hash) => hash.length !== HASH_BYTES) ||
    extra?.length === 0
  ) {
    throw new ProtocolError('malformed_tlog_proof', 'the extra data, index or path is unusable');
  }
  const lines = [
    FIRST_LINE,
    ...(extra === undefined ? [] : [`extra ${toBase64(extra)}`]),
    `index ${index}`,
    ...path.map(toBase64),
    '',
    checkpoint,
  ];
  return lines.join('\n');
}

/**
 * Parses a tlog-proof. Text that {@link formatTlogProof} would not write is `malformed_tlog_proof`.
 * To verify the proof, use `openCheckpointNote` and `verifyInclusion` with the leaf.
 */
export function parseTlogProof(text: string): TlogProof {
  try {
    const end = text.indexOf('\n\n');
    const lines = text.slice(0, end).split('\n').slice(1);
    const extra = lines[0]?.startsWith('extra ') ? lines.shift()!.slice(6) : undefined;
    const index = Number(lines.shift()?.replace(/^index /, ''));
    const proof: TlogProof = {
      ...(extra === undefined ? {} : { extra: fromBase64(extra) }),
      index,
      path: lines.map(fromBase64),
      checkpoint: text.slice(end + 2),
    };
    if (end > 0 && formatTlogProof(proof) === text) return proof;
  } catch (cause) {
    throw new ProtocolError('malformed_tlog_proof', 'not a tlog-proof', { cause });
  }
  throw new ProtocolError('malformed_tlog_proof', 'the tlog-proof is not in its canonical form');
}
