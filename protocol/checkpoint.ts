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

/** The checkpoint in a note, without a check of its signatures: readers verify those under pinned keys. */
export function uncheckedCheckpoint(note: string): Checkpoint {
  return parseCheckpoint(note.slice(0, note.lastIndexOf('\n\n') + 1));
}

export interface OpenedCheckpoint {
  checkpoint: Checkpoint;
  key: Vkey;
}

/**
 * Opens a signed checkpoint. A pinned key whose checkpoints of this size count must have signed it, and
 * the checkpoint must have the expected origin. A log has several keys after a key change. Throws the
 * errors of `openNote` and {@link parseCheckpoint}, and `wrong_origin`.
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
      `the checkpoint is of ${checkpoint.origin}, not of ${origin}`,
    );
  }
  // The holder of a stolen, retired key can still sign larger trees.
  const counted = vkeys.filter(({ maxSize = Infinity }) => checkpoint.size <= maxSize);
  if (counted.length === vkeys.length) return { checkpoint, key };
  return { checkpoint, key: openNote(note, counted, verify).key };
}
