import { equalBytes, fromUtf8 } from './bytes.js';
import { aepBytes } from './aep.js';
import { canonicalBytes, parseStrict } from './json.js';
import { PROOF_ID_PATTERN } from './ids.js';
import { aepSchema, type Aep, type AepSubject } from './schemas/aep.js';
import { SCHEMA } from './schemas/ids.js';
import {
  ACTION_PATTERN,
  BYTES32_BASE64URL_PATTERN,
  TENANT_ID_PATTERN,
  TEXT_MAX,
} from './schemas/primitives.js';
import { EFFECTS, isProofOnly } from './status.js';
import { TemplateReader } from './template.js';

/** Makes the pattern of a whole string match up to its closing quotation mark. */
const sticky = (whole: RegExp): RegExp =>
  new RegExp(whole.source.replace(/^\^/, '').replace(/\$$/, '(?=")'), 'y');
const ACTION = sticky(ACTION_PATTERN);
const TENANT_ID = sticky(TENANT_ID_PATTERN);

export interface ReadAep {
  /** Null unless the bytes have the fields of svc.aep/1.0. */
  aep: Aep | null;
  /** Whether the bytes are in RFC 8785 form. */
  isCanonical: boolean;
}

/** Parses untrusted bytes. Never throws. */
export function readAep(bytes: Uint8Array): ReadAep {
  try {
    const aep = canonicalAep(fromUtf8(bytes));
    return aep === null ? parseAep(bytes) : { aep, isCanonical: true };
  } catch {
    return { aep: null, isCanonical: false };
  }
}

/** The general parser, for all bytes that {@link canonicalAep} does not recognize. */
export function parseAep(bytes: Uint8Array): ReadAep {
  const document = parseStrict(bytes);
  const aep = aepSchema.safeParse(document).data ?? null;
  const own = aep === null ? canonicalBytes(document) : aepBytes(aep);
  return { aep, isCanonical: equalBytes(own, bytes) };
}

/**
 * The AEP whose canonical form is the text; null if only {@link parseAep} can decide. One pass over
 * the text replaces strict parsing, schema and canonicalization, ten times faster; a test compares
 * the two.
 */
export function canonicalAep(text: string): Aep | null {
  const reader = new TemplateReader(text);
  const hash = (): string => reader.hex(64);
  const name = (): string => reader.plain(TEXT_MAX);
  const end = (): string | null => reader.nullOr(() => reader.time());

  reader.part('{"accepted_at":"');
  const accepted_at = reader.time();
  reader.part('","decision":{"effect":"');
  const effect = reader.oneOf(EFFECTS);
  reader.part('","reasons":[');
  const reasons = readReasons(reader);
  reader.part('},"environment":"');
  const environment = reader.oneOf(['sandbox', 'live']);
  reader.part('","evidence":{"fixture_hash":');
  const fixture_hash = reader.nullOr(hash);
  reader.part(',"fixture_ref":');
  const fixture_ref = reader.nullOr(name);
  reader.part('},"execution_id":"exec_');
  const execution = reader.hex(32);
  reader.part('","key_id":"');
  const key_id = reader.fitting(43, BYTES32_BASE64URL_PATTERN);
  reader.part('","policy":{"digest":"');
  const digest = hash();
  reader.part('","engine":"cedar","engine_version":"');
  const engine_version = name();
  reader.part('","input_hash":"');
  const input_hash = hash();
  reader.part('"},"proof_id":"');
  const proof_id = reader.fitting(32, PROOF_ID_PATTERN);
  reader.part('","request_hash":"');
  const request_hash = hash();
  reader.part('","salt":"');
  const salt = hash();
  reader.part(`","schema_version":"${SCHEMA.aep}","subject":{`);
  const subject = readSubject(reader);
  reader.part('},"tenant_id":"');
  const tenant_id = reader.matching(TENANT_ID);
  reader.part('","valid_until":{');
  const valid_until = isProofOnly({ effect, isOutcome: subject.kind === 'outcome' })
    ? { proof: readEnd(reader, end) }
    : readEnds(reader, end);
  reader.part('}}');

  if (!reader.ended || execution !== proof_id) return null;
  if (reasons.some((reason, i) => i > 0 && reasons[i - 1]! >= reason)) return null;
  return {
    schema_version: SCHEMA.aep,
    execution_id: `exec_${proof_id}`,
    proof_id,
    environment,
    tenant_id,
    subject,
    request_hash,
    decision: { effect, reasons },
    policy: { digest, input_hash, engine: 'cedar', engine_version },
    evidence: { fixture_ref, fixture_hash },
    valid_until,
    accepted_at,
    salt,
    key_id,
  };
}

function readReasons(reader: TemplateReader): string[] {
  const reasons: string[] = [];
  if (reader.takes(']')) return reasons;
  do reasons.push(reader.quoted(() => reader.plain(TEXT_MAX)));
  while (reader.takes(','));
  reader.part(']');
  return reasons;
}

function readEnd(reader: TemplateReader, end: () => string | null): string | null {
  reader.part('"proof":');
  return end();
}

function readEnds(
  reader: TemplateReader,
  end: () => string | null,
): Extract<Aep['valid_until'], { trust: unknown }> {
  reader.part('"certificate":');
  const certificate = end();
  reader.part(',"passport":');
  const passport = end();
  reader.part(',');
  const proof = readEnd(reader, end);
  reader.part(',"trust":');
  return { proof, certificate, passport, trust: end() };
}

function readSubject(reader: TemplateReader): AepSubject {
  const name = (): string => reader.plain(TEXT_MAX);
  if (reader.takes('"kind":"outcome","parent_proof_id":"')) return readOutcome(reader);
  reader.part('"action":"');
  const action = reader.matching(ACTION);
  if (reader.takes('","intent_id":"')) {
    const intent_id = name();
    reader.part('","kind":"execute"');
    return { kind: 'execute', intent_id, action };
  }
  reader.part('","agent":{');
  const framework = reader.takes('"framework":"') ? name() : undefined;
  reader.part(framework === undefined ? '"id":"' : '","id":"');
  const id = name();
  reader.part('"}');
  const argumentsHash = reader.takes(',"arguments_hash":"') ? reader.hex(64) : undefined;
  if (argumentsHash !== undefined) reader.part('"');
  reader.part(',"kind":"admission"');
  const parent = reader.takes(',"parent_proof_id":"')
    ? reader.fitting(32, PROOF_ID_PATTERN)
    : undefined;
  if (parent !== undefined) reader.part('"');
  const tool = reader.takes(',"tool":"') ? name() : undefined;
  if (tool !== undefined) reader.part('"');
  return {
    kind: 'admission',
    agent: { id, ...(framework === undefined ? {} : { framework }) },
    action,
    ...(tool === undefined ? {} : { tool }),
    ...(argumentsHash === undefined ? {} : { arguments_hash: argumentsHash }),
    ...(parent === undefined ? {} : { parent_proof_id: parent }),
  };
}

function readOutcome(reader: TemplateReader): AepSubject {
  const parent_proof_id = reader.fitting(32, PROOF_ID_PATTERN);
  reader.part('","result":"');
  const result = reader.oneOf(['succeeded', 'failed']);
  reader.part('"');
  if (!reader.takes(',"result_hash":"')) return { kind: 'outcome', parent_proof_id, result };
  const result_hash = reader.hex(64);
  reader.part('"');
  return { kind: 'outcome', parent_proof_id, result, result_hash };
}
