import { fromBase64, toBase64 } from './bytes.js';
import type { Ed25519Verify } from './ed25519.js';
import { ProtocolError } from './errors.js';
import { HASH_BYTES } from './merkle.js';
import { openNote, type LogVkey, type Vkey } from './note.js';

/** The head of a log (C2SP tlog-checkpoint). */
export interface Checkpoint {
  /** Name of the log: one line, by convention a URL without its scheme. */
  origin: string;
  size: number;
  /** RFC 6962 root of the tree, 32 bytes. */
  root: Uint8Array;
}

/** The note text to sign: origin, decimal size, base64 root, each on a line. */
export function formatCheckpoint({ origin, size, root }: Checkpoint): string {
  if (
    !/^[^\n]+$/u.test(origin) ||
    !Number.isSafeInteger(size) ||
    size < 0 ||
    root.length !== HASH_BYTES
  ) {
    throw new ProtocolError('malformed_checkpoint', 'the origin, size or root is unusable');
  }
  return `${origin}\n${size}\n${toBase64(root)}\n`;
}

/**
 * Parses the text of a checkpoint. Text that {@link formatCheckpoint} would not write, such as
 * leading zeros, extension lines or another base64 form, is `malformed_checkpoint`.
 *
 * @param extensible accepts extension lines, which checkpoints of other logs may have
 */
export function parseCheckpoint(text: string, extensible = false): Checkpoint {
  const [origin = '', size = '', root = '', ...rest] = text.split('\n');
  let checkpoint: Checkpoint;
  try {
    checkpoint = { origin, size: Number(size), root: fromBase64(root) };
    const extensions = extensible ? rest.slice(0, -1) : [];
    const lines = extensions.map((line) => `${line}\n`).join('');
    const isCanonical = formatCheckpoint(checkpoint) + lines === text;
    if (isCanonical && !extensions.includes('')) return checkpoint;
  } catch (cause) {
    throw new ProtocolError('malformed_checkpoint', 'not a checkpoint', { cause });
  }
  throw new ProtocolError('malformed_checkpoint', 'the checkpoint is not in its canonical form');
}

/** The checkpoint in a note, whose signatures this function does not check; readers verify them under pinned keys. */
export function uncheckedCheckpoint(note: string): Checkpoint {
  return parseCheckpoint(note.slice(0, note.lastIndexOf('\n\n') + 1));
}

export interface OpenedCheckpoint {
  checkpoint: Checkpoint;
  key: Vkey;
}

/**
 * Opens a signed checkpoint. A pinned key that is valid at this tree size must have signed the checkpoint,
 * which must have the expected origin. After a key change, a log has several keys. Throws the errors of
 * `openNote` and {@link parseCheckpoint}, and `wrong_origin`.
 */
export function openCheckpointNote(
  note: string,
  vkeys: readonly LogVkey[],
  origin: string,
  verify: Ed25519Verify,
): OpenedCheckpoint {
  const { text, key } = openNote(note, vkeys, verify);
  const checkpoint = parseCheckpoint(text);
  if (checkpoint.origin !== origin) {
    throw new ProtocolError(
      'wrong_origin',
      `the checkpoint has the origin ${checkpoint.origin}, not ${origin}`,
    );
  }
  // The holder of a stolen, retired key can still sign larger trees.
  const counted = vkeys.filter(({ maxSize = Infinity }) => checkpoint.size <= maxSize);
  if (counted.length === vkeys.length) return { checkpoint, key };
  return { checkpoint, key: openNote(note, counted, verify).key };
}

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
/** Maximum number of hashes in a path; a tree of 2^53 leaves needs fewer. */
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
