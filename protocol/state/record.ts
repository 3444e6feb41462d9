import { fromBase64Url, fromHex, toBase64Url } from '../bytes.js';
import { ProtocolError } from '../errors.js';
import { mapKey } from '../map/nodes.js';
import { HASH_BYTES } from '../merkle.js';
import { ARTIFACT_KINDS, type ArtifactKind, type Effect, EFFECTS } from '../status.js';

/**
 * The values of the map of public records (spec/snapshot.md, Records): functions of the log's entries.
 * Decoding throws `malformed_record` for bytes that encoding does not produce.
 */

export const PROOF_RECORD_BYTES = 122;
const AEP_KEY_RECORD_BYTES = 52;
const EVENT_BYTES = 13;
const REVOCATION_BYTES = EVENT_BYTES + 1 + HASH_BYTES;

/** Verdicts and events, in the order of their numbers in a record. */
const VERDICTS = ['none', 'pass', 'fail'] as const;
const EVENTS = ['passed', 'failed', 'restored', 'erased', 'lost', 'revoked'] as const;
const VERDICT_EVENTS: ReadonlySet<string> = new Set<(typeof EVENTS)[number]>([
  'passed',
  'failed',
  'restored',
]);

/** Times are milliseconds since 1970. */
export interface PublicProof {
  effect: Effect;
  isLive: boolean;
  /** Whether the proof has a certificate, a passport and trust. */
  hasArtifacts: boolean;
  verdict: (typeof VERDICTS)[number];
  /** Whether the payload is erased or lost. */
  isGone: boolean;
  /** Bit n is set if `ARTIFACT_KINDS[n]` is revoked. */
  revoked: number;
  leafIndex: number;
  acceptedAt: number;
  /** `to` of the first verdict on the leaf; null without a verdict. */
  verdictSize: number | null;
  /** Time of the last verdict entry that gave the leaf a verdict or changed it; null without a verdict. */
  verifiedAt: number | null;
  /** Leaf index of the activation of the signing key; null unless the key was activated before the proof. */
  keyIndex: number | null;
  /** End of validity of each of `ARTIFACT_KINDS`; null for never. */
  ends: readonly (number | null)[];
  /** 32 bytes. */
  aepHash: Uint8Array;
  /** 32 bytes. */
  proofRecordHash: Uint8Array;
}

/** The indexes of leaves at which signatures of an AEP key count. */
export interface AepKeyLife {
  /** Thumbprint of the key. */
  keyId: string;
  /** The first index at which signatures of the key count; null if they never count. */
  from: number | null;
  /** The first index at which the key is retired. */
  retiredFrom: number | null;
  /** The first index at which the key is compromised. */
  compromisedFrom: number | null;
}

interface LeafEvent {
  index: number;
  /** Milliseconds since 1970. */
  time: number;
}
export type RecordedEvent =
  | (LeafEvent & { type: Exclude<(typeof EVENTS)[number], 'revoked'> })
  | (LeafEvent & { type: 'revoked'; kind: ArtifactKind; reasonHash: Uint8Array });

/** The encoding of null. */
export const NONE = 2 ** 48 - 1;
/** The last time that a log entry can state. */
const LAST_TIME = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
const ENDS_AT = 34;
const HASHES_AT = 58;

/** The shard of the log that has a proof. */
export const shardOf = (proofId: string): number => Number.parseInt(proofId.slice(13, 16), 16);

export const proofMapKey = (proofId: string): Uint8Array => mapKey('proof', fromHex(proofId));

/** @param activation leaf index of the activation of an AEP key, in the log of the shard */
export function aepKeyMapKey(shard: number, activation: number): Uint8Array {
  const id = new Uint8Array(16);
  new DataView(id.buffer).setUint16(0, shard);
  setNumber(id, 10, activation);
  return mapKey('aepKey', id);
}

/** @param bytes a buffer of zeros, which receives the record */
export function encodeProof(
  proof: PublicProof,
  bytes: Uint8Array = new Uint8Array(PROOF_RECORD_BYTES),
): Uint8Array {
  bytes[0] = 1;
  bytes[1] =
    EFFECTS.indexOf(proof.effect) |
    (proof.isLive ? 4 : 0) |
    (proof.hasArtifacts ? 8 : 0) |
    (VERDICTS.indexOf(proof.verdict) << 4) |
    (proof.isGone ? 64 : 0);
  bytes[2] = proof.revoked;
  setNumber(bytes, 4, proof.leafIndex);
  setNumber(bytes, 10, proof.acceptedAt);
  setNumber(bytes, 16, proof.verdictSize);
  setNumber(bytes, 22, proof.verifiedAt);
  setNumber(bytes, 28, proof.keyIndex);
  for (let i = 0; i < 4; i++) setNumber(bytes, ENDS_AT + 6 * i, proof.ends[i]!);
  bytes.set(proof.aepHash, HASHES_AT);
  bytes.set(proof.proofRecordHash, HASHES_AT + HASH_BYTES);
  return bytes;
}

/** The hashes share the memory of `bytes`. */
export function decodeProof(bytes: Uint8Array): PublicProof {
  if (bytes.length !== PROOF_RECORD_BYTES || bytes[0] !== 1) throw malformed('not a proof record');
  const view = viewOf(bytes);
  const flags = bytes[1]!;
  const effect = EFFECTS[flags & 3];
  const verdict = VERDICTS[(flags >> 4) & 3];
  const revoked = bytes[2]!;
  if (
    effect === undefined ||
    verdict === undefined ||
    flags > 127 ||
    revoked > 15 ||
    bytes[3] !== 0
  )
    throw malformed('unknown bits are set');
  const proof: PublicProof = {
    effect,
    isLive: (flags & 4) !== 0,
    hasArtifacts: (flags & 8) !== 0,
    verdict,
    isGone: (flags & 64) !== 0,
    revoked,
    leafIndex: required(numberAt(view, 4)),
    acceptedAt: required(timeAt(view, 10)),
    verdictSize: numberAt(view, 16),
    verifiedAt: timeAt(view, 22),
    keyIndex: numberAt(view, 28),
    ends: [
      timeAt(view, ENDS_AT),
      timeAt(view, ENDS_AT + 6),
      timeAt(view, ENDS_AT + 12),
      timeAt(view, ENDS_AT + 18),
    ],
    aepHash: bytes.subarray(HASHES_AT, HASHES_AT + HASH_BYTES),
    proofRecordHash: bytes.subarray(HASHES_AT + HASH_BYTES),
  };
  requireConsistent(proof);
  return proof;
}

function requireConsistent(proof: PublicProof): void {
  const { leafIndex, verdictSize, keyIndex } = proof;
  const isUnverified = proof.verdict === 'none';
  if ((verdictSize === null) !== isUnverified || (proof.verifiedAt === null) !== isUnverified) {
    throw malformed('a verdict field is missing, or present without a verdict');
  }
  if ((verdictSize ?? NONE) <= leafIndex || (keyIndex ?? -1) >= leafIndex) {
    throw malformed('the indexes contradict the order of the log');
  }
  const isBeyondProof = (end: number | null, at: number): boolean => at > 0 && end !== null;
  if (proof.hasArtifacts ? proof.effect !== 'ADMIT' : proof.ends.some(isBeyondProof)) {
    throw malformed('the artifacts contradict the effect or the ends of validity');
  }
}

export function encodeAepKey(key: AepKeyLife): Uint8Array {
  const bytes = new Uint8Array(AEP_KEY_RECORD_BYTES);
  bytes[0] = 2;
  bytes.set(fromBase64Url(key.keyId), 2);
  setNumber(bytes, 34, key.from);
  setNumber(bytes, 40, key.retiredFrom);
  setNumber(bytes, 46, key.compromisedFrom);
  return bytes;
}

export function decodeAepKey(bytes: Uint8Array): AepKeyLife {
  if (bytes.length !== AEP_KEY_RECORD_BYTES || bytes[0] !== 2 || bytes[1] !== 0) {
    throw malformed('not an AEP key record');
  }
  const view = viewOf(bytes);
  const life: AepKeyLife = {
    keyId: toBase64Url(bytes.subarray(2, 2 + HASH_BYTES)),
    from: numberAt(view, 34),
    retiredFrom: numberAt(view, 40),
    compromisedFrom: numberAt(view, 46),
  };
  if (
    life.from !== null &&
    life.from >= Math.min(life.retiredFrom ?? NONE, life.compromisedFrom ?? NONE)
  ) {
    throw malformed('the key is activated at or after its retirement or compromise');
  }
  return life;
}

export function encodeEvent(event: RecordedEvent): Uint8Array {
  const isRevocation = event.type === 'revoked';
  const bytes = new Uint8Array(isRevocation ? REVOCATION_BYTES : EVENT_BYTES);
  bytes[0] = 1 + EVENTS.indexOf(event.type);
  setNumber(bytes, 1, event.index);
  setNumber(bytes, 7, event.time);
  if (isRevocation) {
    bytes[EVENT_BYTES] = ARTIFACT_KINDS.indexOf(event.kind);
    bytes.set(event.reasonHash, EVENT_BYTES + 1);
  }
  return bytes;
}

/** The events in log order. Reason hashes share the memory of `bytes`. */
export function decodeHistory(bytes: Uint8Array): RecordedEvent[] {
  const view = viewOf(bytes);
  const events: RecordedEvent[] = [];
  let before = -1;
  for (let at = 0; at < bytes.length;) {
    const type = EVENTS[bytes[at]! - 1];
    const end = at + (type === 'revoked' ? REVOCATION_BYTES : EVENT_BYTES);
    if (type === undefined || end > bytes.length)
      throw malformed('an event is truncated or of an unknown type');
    const index = required(numberAt(view, at + 1));
    const time = required(timeAt(view, at + 7));
    if (index <= before) throw malformed('the events are not in log order');
    if (type === 'revoked') {
      const kind = ARTIFACT_KINDS[bytes[at + EVENT_BYTES]!];
      if (kind === undefined) throw malformed('an event revokes an artifact of an unknown kind');
      const reasonHash = bytes.subarray(at + EVENT_BYTES + 1, end);
      events.push({ type, index, time, kind, reasonHash });
    } else {
      events.push({ type, index, time });
    }
    before = index;
    at = end;
  }
  return events;
}

/** The history of a proof. A proof has a verdict exactly if its history has an event of a verdict. */
export function decodeHistoryOf({ verdict }: PublicProof, bytes: Uint8Array): RecordedEvent[] {
  const events = decodeHistory(bytes);
  if (events.some(({ type }) => VERDICT_EVENTS.has(type)) === (verdict === 'none')) {
    throw malformed('the history contradicts the verdict');
  }
  return events;
}

const viewOf = (bytes: Uint8Array): DataView =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

function setNumber(bytes: Uint8Array, at: number, value: number | null): void {
  const number = value ?? NONE;
  if (!Number.isSafeInteger(number) || number < 0 || number > NONE) {
    throw new ProtocolError(
      'out_of_range',
      `${number} does not fit the 6 bytes of a number in a record`,
    );
  }
  const high = Math.floor(number / 2 ** 32);
  bytes[at] = high >> 8;
  bytes[at + 1] = high;
  bytes[at + 2] = number / 2 ** 24;
  bytes[at + 3] = number / 2 ** 16;
  bytes[at + 4] = number / 2 ** 8;
  bytes[at + 5] = number;
}

function numberAt(view: DataView, at: number): number | null {
  const number = view.getUint16(at) * 2 ** 32 + view.getUint32(at + 2);
  return number === NONE ? null : number;
}

function timeAt(view: DataView, at: number): number | null {
  const time = numberAt(view, at);
  if (time !== null && time > LAST_TIME) throw malformed('a time is after the year 9999');
  return time;
}

function required(number: number | null): number {
  if (number === null) throw malformed('an index or a time is missing');
  return number;
}

const malformed = (problem: string): ProtocolError =>
  new ProtocolError('malformed_record', `malformed record: ${problem}`);
