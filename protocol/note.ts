import {
  concat,
  equalBytes,
  fromBase64,
  fromHex,
  isWellFormed,
  toBase64,
  toHex,
  utf8,
} from './bytes.js';
import type { Ed25519Verify } from './ed25519.js';
import { errorOf, ProtocolError } from './errors.js';
import { nobleSha256, type Sha256 } from './hash.js';
import { ED25519_PUBLIC_KEY_BYTES } from './keys.js';

/** C2SP signed-note with Ed25519 keys. */

/** Signature types of C2SP signed-note. */
export const ED25519_TYPE = 0x01;
export const COSIGNATURE_TYPE = 0x04;
export type SignatureType = typeof ED25519_TYPE | typeof COSIGNATURE_TYPE;

const SIGNATURE_LINE = /^\u2014 (\S+) (\S+)$/u;
// Key names have no plus sign and no Unicode space.
const KEY_NAME = /^[^\s+]+$/u;
const CONTROL = /[\u0000-\u0009\u000b-\u001f]/;
/** C2SP signed-note requires a limit of at least 16 signatures. */
const MAX_SIGNATURES = 64;
/** Counts UTF-8 bytes. Notes need a limit: anyone can add signature lines, and readers store notes. */
const MAX_NOTE_BYTES = 1_000_000;

const malformedNote = errorOf('malformed_note');
const malformedVkey = errorOf('malformed_vkey');

export interface Vkey {
  name: string;
  /** 4 bytes */
  keyHash: Uint8Array;
  /** 32 bytes */
  publicKey: Uint8Array;
}

export interface LogVkey extends Vkey {
  /** For a retired key, the greatest tree size at which its checkpoints are valid; absent for other keys. */
  maxSize?: number;
}

/** Key id: the first 4 bytes of SHA-256(name || 0x0A || signature type || public key). */
export function keyId(
  sha256: Sha256,
  name: string,
  publicKey: Uint8Array,
  type: SignatureType = ED25519_TYPE,
): Uint8Array {
  requireKey(name, publicKey);
  return sha256(concat(utf8(`${name}\n`), typed(type, publicKey))).slice(0, 4);
}

/** `name+hex(key id)+base64(signature type || public key)` */
export function formatVkey(
  sha256: Sha256,
  name: string,
  publicKey: Uint8Array,
  type: SignatureType = ED25519_TYPE,
): string {
  const id = toHex(keyId(sha256, name, publicKey, type));
  return `${name}+${id}+${toBase64(typed(type, publicKey))}`;
}

/**
 * Parses a vkey; `malformed_vkey` unless it is an Ed25519 key of the signature type and its id
 * matches its name and key.
 */
export function parseVkey(
  text: string,
  sha256: Sha256 = nobleSha256,
  type: SignatureType = ED25519_TYPE,
): Vkey {
  // The base64 part may contain '+'; the name and the id may not.
  const match = /^([^+]+)\+([0-9a-f]{8})\+(.+)$/u.exec(text);
  if (match === null) throw malformedVkey('expected name+id+key');
  const [, name = '', id = '', encoded = ''] = match;
  try {
    const key = fromBase64(encoded);
    if (key[0] !== type)
      throw malformedVkey(`the vkey is not an Ed25519 key of signature type ${type}`);
    const vkey = { name, keyHash: fromHex(id), publicKey: key.slice(1) };
    if (equalBytes(keyId(sha256, name, vkey.publicKey, type), vkey.keyHash)) return vkey;
  } catch (cause) {
    throw malformedVkey(`unusable vkey ${name}`, { cause });
  }
  throw malformedVkey(`the key id in vkey ${name} does not match its key`);
}

export interface NoteSigner {
  name: string;
  /** {@link keyId} of the name and the public key, 4 bytes. */
  keyHash: Uint8Array;
  /** Ed25519 signature of the message, 64 bytes. */
  sign: (message: Uint8Array) => Uint8Array;
}

/** Adds the name of a key and its {@link keyId} to a signing function, which may be asynchronous. */
export function noteSigner<Sign>(
  sha256: Sha256,
  name: string,
  { publicKey, sign }: { publicKey: Uint8Array; sign: Sign },
  type: SignatureType = ED25519_TYPE,
): { name: string; keyHash: Uint8Array; sign: Sign } {
  return { name, keyHash: keyId(sha256, name, publicKey, type), sign };
}

/** Signs a text, which must end in a newline, and returns the note. */
export function signNote(text: string, signer: NoteSigner): string {
  if (!isNoteText(text))
    throw malformedNote(
      'the text of a note must end in a newline and contain no control characters',
    );
  return `${text}\n${signatureLine(signer, signer.sign(utf8(text)))}`;
}

export function signatureLine(key: Pick<Vkey, 'name' | 'keyHash'>, signature: Uint8Array): string {
  return `\u2014 ${key.name} ${toBase64(concat(key.keyHash, signature))}\n`;
}

/**
 * Opens a note under pinned keys. Ignores signatures by other keys, such as witness cosignatures,
 * if they are well-formed. Throws `unknown_signer` without a signature by a pinned key,
 * `bad_signature` when a signature by a pinned key does not verify, and `malformed_note`.
 *
 * @param vkeys as text or parsed
 * @param verify a strict Ed25519 verification
 * @returns the signed text with its final newline, and the pinned key that signed the note: if several did, the
 *   first in the order of the signatures
 */
export function openNote(note: string, vkeys: readonly (string | Vkey)[], verify: Ed25519Verify) {
  const pinned = vkeys.map((vkey) => (typeof vkey === 'string' ? parseVkey(vkey) : vkey));
  const { text, signatures } = splitNote(note);
  const message = utf8(text);
  let signer: Vkey | undefined;
  for (const signature of signatures) {
    const key = pinned.find((vkey) => isBy(signature, vkey));
    if (key === undefined) continue;
    if (!verify(key.publicKey, message, signature.signature)) {
      throw new ProtocolError('bad_signature', `the signature of ${key.name} does not verify`);
    }
    signer ??= key;
  }
  if (signer === undefined) {
    throw new ProtocolError('unknown_signer', 'no signature by a pinned key');
  }
  return { text, key: signer };
}

/** Whether a signature has the name and the id of a key; does not verify the signature. */
export function isBy(signature: NoteSignature, key: Vkey): boolean {
  return signature.name === key.name && equalBytes(signature.keyHash, key.keyHash);
}

/** The unverified key ids of a note's signatures. Throws `malformed_note` like {@link openNote}. */
export function claimedSigners(note: string): { name: string; id: string }[] {
  return splitNote(note).signatures.map(({ name, keyHash }) => ({ name, id: toHex(keyHash) }));
}

export interface NoteSignature {
  name: string;
  keyHash: Uint8Array;
  signature: Uint8Array;
}

/** Splits a note into its text and its unverified signatures. Throws `malformed_note`. */
export function splitNote(note: string): { text: string; signatures: NoteSignature[] } {
  if (!isWellFormed(note)) throw malformedNote('text with a lone surrogate has no UTF-8 form');
  if (utf8(note).length > MAX_NOTE_BYTES)
    throw malformedNote(`longer than ${MAX_NOTE_BYTES} bytes`);
  // The last empty line separates text and signatures, so the text may contain empty lines.
  const cut = note.lastIndexOf('\n\n');
  const text = note.slice(0, cut + 1);
  const lines = note.slice(cut + 2).split('\n');
  if (cut < 0 || lines.pop() !== '' || lines.length === 0 || !isNoteText(text))
    throw malformedNote('expected a text, an empty line and signature lines');
  if (lines.length > MAX_SIGNATURES) throw malformedNote(`more than ${MAX_SIGNATURES} signatures`);
  return { text, signatures: lines.map(parseSignature) };
}

function parseSignature(line: string): NoteSignature {
  const match = SIGNATURE_LINE.exec(line);
  if (match === null || !KEY_NAME.test(match[1]!)) throw malformedNote('malformed signature line');
  let bytes: Uint8Array;
  try {
    bytes = fromBase64(match[2]!);
  } catch (cause) {
    throw malformedNote('a signature is not canonical base64', { cause });
  }
  if (bytes.length < 5) throw malformedNote('a signature is too short');
  return { name: match[1]!, keyHash: bytes.slice(0, 4), signature: bytes.slice(4) };
}

function isNoteText(text: string): boolean {
  return text.endsWith('\n') && !CONTROL.test(text);
}

function requireKey(name: string, publicKey: Uint8Array): void {
  if (!KEY_NAME.test(name)) throw malformedVkey('a key name contains white space or a plus sign');
  if (publicKey.length !== ED25519_PUBLIC_KEY_BYTES) {
    throw new ProtocolError('malformed_key', 'expected an Ed25519 public key of 32 bytes');
  }
}

function typed(type: SignatureType, publicKey: Uint8Array): Uint8Array {
  return concat(Uint8Array.of(type), publicKey);
}
