import type { Aep, AepSubject } from '#protocol/schemas/aep';
import { isProofOnly } from '#protocol/status';
import { formatTime, parseTime } from '#protocol/time';

/**
 * Packs an AEP into about a third of its bytes. A template restores the signed text byte for byte; it
 * is part of the storage format and must never change. An AEP that the template cannot restore is
 * stored as text: text begins with `{`, a packed AEP with its version.
 */
export function packAep(aep: Aep, text: string): Buffer {
  try {
    const packed = pack(aep);
    if (unpack(new Reader(packed)) === text) return packed;
  } catch {
    // Stored as text: the template cannot restore the form of a field.
  }
  return Buffer.from(text);
}

/** The text of a stored AEP. Bytes that cannot be unpacked are returned unchanged. */
export function unpackAep(stored: Buffer): Buffer {
  if (stored[0] !== VERSION) return stored;
  try {
    return Buffer.from(unpack(new Reader(stored)));
  } catch {
    return stored;
  }
}

const VERSION = 1;

const KINDS = ['execute', 'admission', 'outcome'] as const;
const EFFECTS = ['ADMIT', 'DENY'] as const;
const ENVIRONMENTS = ['sandbox', 'live'] as const;
const RESULTS = ['succeeded', 'failed'] as const;

// Caches one key id, because one key signs for months.
let lastKey = { id: '', raw: Buffer.alloc(0) };

function rawKeyId(id: string): Buffer {
  if (id !== lastKey.id) lastKey = { id, raw: Buffer.from(id, 'base64url') };
  return lastKey.raw;
}

function keyIdOf(raw: Buffer): string {
  if (!raw.equals(lastKey.raw)) lastKey = { id: raw.toString('base64url'), raw: Buffer.from(raw) };
  return lastKey.id;
}

function pack(aep: Aep): Buffer {
  const { decision, evidence, policy, subject, valid_until: ends } = aep;
  const to = new Writer();
  to.byte(VERSION);
  to.byte(KINDS.indexOf(subject.kind));
  to.byte(EFFECTS.indexOf(decision.effect));
  to.byte(ENVIRONMENTS.indexOf(aep.environment));
  to.hex(aep.proof_id + aep.request_hash + aep.salt + policy.digest + policy.input_hash);
  to.bytes(rawKeyId(aep.key_id));
  to.time(aep.accepted_at);
  to.text(aep.tenant_id);
  to.text(policy.engine_version);
  to.byte(decision.reasons.length);
  for (const reason of decision.reasons) to.text(reason);
  to.optional(evidence.fixture_hash, (hash) => to.hex(hash));
  to.optional(evidence.fixture_ref, (ref) => to.text(ref));
  to.optional(ends.proof, (end) => to.time(end));
  if ('trust' in ends) {
    for (const end of [ends.certificate, ends.passport, ends.trust]) {
      to.optional(end, (time) => to.time(time));
    }
  }
  packSubject(to, subject);
  return to.written();
}

function packSubject(to: Writer, subject: AepSubject): void {
  const text = (field: string): void => to.text(field);
  const hex = (field: string): void => to.hex(field);
  switch (subject.kind) {
    case 'execute':
      to.text(subject.action);
      to.text(subject.intent_id);
      return;
    case 'admission':
      to.text(subject.action);
      to.optional(subject.agent.framework, text);
      to.text(subject.agent.id);
      to.optional(subject.arguments_hash, hex);
      to.optional(subject.parent_proof_id, hex);
      to.optional(subject.tool, text);
      return;
    case 'outcome':
      to.hex(subject.parent_proof_id);
      to.byte(RESULTS.indexOf(subject.result));
      to.optional(subject.result_hash, hex);
  }
}

function unpack(from: Reader): string {
  from.byte();
  const kind = from.oneOf(KINDS);
  const effect = from.oneOf(EFFECTS);
  const environment = from.oneOf(ENVIRONMENTS);
  const hashes = from.hex(16 + 4 * 32);
  const id = hashes.slice(0, 32);
  const [requestHash, salt, digest, inputHash] = [32, 96, 160, 224].map((at) =>
    hashes.slice(at, at + 64),
  );
  const keyId = keyIdOf(from.take(32));
  const acceptedAt = from.time();
  const tenantId = from.text();
  const engineVersion = from.text();
  const reasons = Array.from({ length: from.byte() }, () => from.text()).join(',');
  const hash = (): string => `"${from.hex(32)}"`;
  const text = (): string => from.text();
  const time = (): string => `"${from.time()}"`;
  const fixtureHash = from.optional(hash) ?? 'null';
  const fixtureRef = from.optional(text) ?? 'null';
  const proofEnd = from.optional(time) ?? 'null';
  const ends = (): string => {
    const certificate = from.optional(time) ?? 'null';
    const passport = from.optional(time) ?? 'null';
    const trust = from.optional(time) ?? 'null';
    return `{"certificate":${certificate},"passport":${passport},"proof":${proofEnd},"trust":${trust}}`;
  };
  const validUntil = isProofOnly({ effect, isOutcome: kind === 'outcome' })
    ? `{"proof":${proofEnd}}`
    : ends();
  const subject = unpackSubject(from, kind);
  from.end();
  return (
    `{"accepted_at":"${acceptedAt}","decision":{"effect":"${effect}","reasons":[${reasons}]},` +
    `"environment":"${environment}",` +
    `"evidence":{"fixture_hash":${fixtureHash},"fixture_ref":${fixtureRef}},` +
    `"execution_id":"exec_${id}","key_id":"${keyId}","policy":{"digest":"${digest}",` +
    `"engine":"cedar","engine_version":${engineVersion},"input_hash":"${inputHash}"},` +
    `"proof_id":"${id}","request_hash":"${requestHash}","salt":"${salt}",` +
    `"schema_version":"svc.aep/1.0","subject":{${subject}},"tenant_id":${tenantId},` +
    `"valid_until":${validUntil}}`
  );
}

function unpackSubject(from: Reader, kind: (typeof KINDS)[number]): string {
  const member = (name: string, value: string | null): string =>
    value === null ? '' : `"${name}":${value},`;
  const text = (): string => from.text();
  const hex = (bytes: number) => (): string => `"${from.hex(bytes)}"`;
  if (kind === 'execute') {
    return `${member('action', text())}${member('intent_id', text())}"kind":"execute"`;
  }
  if (kind === 'admission') {
    const action = text();
    const framework = member('framework', from.optional(text));
    const agent = `{${framework}"id":${text()}}`;
    const argumentsHash = member('arguments_hash', from.optional(hex(32)));
    const parent = member('parent_proof_id', from.optional(hex(16)));
    const tool = from.optional(text);
    const rest = `${parent}${tool === null ? '' : member('tool', tool)}`.replace(/,$/, '');
    return `"action":${action},"agent":${agent},${argumentsHash}"kind":"admission"${rest === '' ? '' : `,${rest}`}`;
  }
  const parent = from.hex(16);
  const result = from.oneOf(RESULTS);
  const resultHash = from.optional(hex(32));
  const rest = resultHash === null ? '' : `,"result_hash":${resultHash}`;
  return `"kind":"outcome","parent_proof_id":"${parent}","result":"${result}"${rest}`;
}

// Neighbouring proofs share acceptance and expiry times.
const MAX_CACHED_TIMES = 64;
const times = new Map<string, number>();
const timeTexts = new Map<number, string>();

function epochMs(text: string): number {
  return remembered(times, text, parseTime);
}

function timeText(ms: number): string {
  return remembered(timeTexts, ms, formatTime);
}

function remembered<K, V>(known: Map<K, V>, key: K, make: (key: K) => V): V {
  const found = known.get(key);
  if (found !== undefined) return found;
  const made = make(key);
  if (known.size >= MAX_CACHED_TIMES) known.clear();
  known.set(key, made);
  return made;
}

/** Longer AEPs are stored as text. */
const MAX_BYTES = 4096;
// Packing is synchronous, so one buffer serves all calls.
const scratch = Buffer.allocUnsafe(MAX_BYTES);

class Writer {
  private readonly buffer = scratch;
  private at = 0;

  byte(value: number): void {
    this.at = this.buffer.writeUInt8(value, this.at);
  }

  bytes(value: Uint8Array): void {
    this.room(value.length);
    this.buffer.set(value, this.at);
    this.at += value.length;
  }

  hex(value: string): void {
    this.room(value.length / 2);
    this.at += this.buffer.write(value, this.at, 'hex');
  }

  time(value: string): void {
    this.at = this.buffer.writeIntBE(epochMs(value), this.at, 6);
  }

  text(value: string): void {
    const length = Buffer.byteLength(value);
    this.at = this.buffer.writeUInt16BE(length, this.at);
    this.room(length);
    this.at += this.buffer.write(value, this.at, 'utf8');
  }

  optional(value: string | null | undefined, write: (value: string) => void): void {
    const given = value !== null && value !== undefined;
    this.byte(given ? 1 : 0);
    if (given) write(value);
  }

  written(): Buffer {
    return Buffer.from(this.buffer.subarray(0, this.at));
  }

  private room(bytes: number): void {
    if (this.at + bytes > this.buffer.length) throw new RangeError('too long to pack');
  }
}

class Reader {
  private at = 0;

  constructor(private readonly stored: Buffer) {}

  byte(): number {
    return this.stored.readUInt8(this.at++);
  }

  take(bytes: number): Buffer {
    const start = this.pass(bytes);
    return this.stored.subarray(start, this.at);
  }

  hex(bytes: number): string {
    const start = this.pass(bytes);
    return this.stored.toString('hex', start, this.at);
  }

  time(): string {
    return timeText(this.stored.readIntBE(this.pass(6), 6));
  }

  /** Reads a string and returns it as JSON. */
  text(): string {
    const length = this.stored.readUInt16BE(this.pass(2));
    const start = this.pass(length);
    return JSON.stringify(this.stored.toString('utf8', start, this.at));
  }

  oneOf<W extends string>(words: readonly W[]): W {
    const word = words[this.byte()];
    if (word === undefined) throw new RangeError('unknown word number');
    return word;
  }

  optional(read: () => string): string | null {
    const given = this.byte();
    if (given > 1) throw new RangeError('invalid presence byte');
    return given === 1 ? read() : null;
  }

  /** Advances by `bytes` and returns the previous offset. */
  private pass(bytes: number): number {
    const start = this.at;
    this.at += bytes;
    if (this.at > this.stored.length) throw new RangeError('truncated');
    return start;
  }

  end(): void {
    if (this.at !== this.stored.length) throw new RangeError('trailing bytes');
  }
}
