import { PROOF_ID_PATTERN } from './ids.js';
import type { JsonValue } from './json.js';
import { NONCE_PATTERN, type AgentEnvelope } from './schemas/agent.js';
import { IDEMPOTENCY_KEY_PATTERN, type ExecuteRequest } from './schemas/execute.js';
import { SCHEMA } from './schemas/ids.js';
import { ACTION_PATTERN, HASH_PATTERN, TENANT_ID_PATTERN, TEXT_MAX } from './schemas/primitives.js';
import { isTime } from './time.js';

export interface PlainRequest<Body> {
  body: Body;
  canonical: string;
}

/**
 * A fast path for an execute request with plain fields; null if only the schema can decide. The
 * schema accepts every result unchanged; a test compares the two.
 */
export function plainExecuteRequest(value: JsonValue): PlainRequest<ExecuteRequest> | null {
  return plain(value, execute) as PlainRequest<ExecuteRequest> | null;
}

export function plainAgentEnvelope(value: JsonValue): PlainRequest<AgentEnvelope> | null {
  return (plain(value, admission) ?? plain(value, outcome)) as PlainRequest<AgentEnvelope> | null;
}

function plain(value: JsonValue, reader: Reader): PlainRequest<JsonValue> | null {
  const canonical = reader(value);
  return canonical === null ? null : { body: value, canonical };
}

type Reader = (value: JsonValue) => string | null;

/** For patterns without characters that JSON escapes. */
const token =
  (pattern: RegExp): Reader =>
  (value) =>
    typeof value === 'string' && pattern.test(value) ? `"${value}"` : null;

const word =
  (...words: string[]): Reader =>
  (value) =>
    typeof value === 'string' && words.includes(value) ? `"${value}"` : null;

const printable: Reader = (value) =>
  typeof value === 'string' && IDEMPOTENCY_KEY_PATTERN.test(value) ? JSON.stringify(value) : null;

const SURROGATE = /[\ud800-\udfff]/;

/** Without surrogates, code units are code points and every text has a UTF-8 form. */
const text: Reader = (value) =>
  typeof value === 'string' &&
  value.length >= 1 &&
  value.length <= TEXT_MAX &&
  !SURROGATE.test(value)
    ? JSON.stringify(value)
    : null;

const time: Reader = (value) => (typeof value === 'string' && isTime(value) ? `"${value}"` : null);

type Members = Record<string, Reader>;

function object(members: Members): Reader {
  const known = Object.entries(members)
    .map(([name, read]) => ({ name: name.replace('?', ''), read, isOptional: name.endsWith('?') }))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map((member) => ({ ...member, lead: `"${member.name}":` }));
  return (value) => {
    if (value === null || typeof value !== 'object' || Array.isArray(value)) return null;
    let found = 0;
    let printed = '{';
    for (const { name, read, isOptional, lead } of known) {
      const member = value[name];
      if (member === undefined) {
        if (isOptional) continue;
        return null;
      }
      const form = read(member);
      if (form === null) return null;
      printed += found === 0 ? lead + form : `,${lead}${form}`;
      found += 1;
    }
    return Object.keys(value).length === found ? printed + '}' : null;
  };
}

const execute = object({
  schema_version: word(SCHEMA.executeRequest),
  intent_id: text,
  tenant_id: token(TENANT_ID_PATTERN),
  action: token(ACTION_PATTERN),
  'idempotency_key?': printable,
  'proof_chain_fixture_ref?': text,
});

const envelope: Members = {
  schema_version: word(SCHEMA.agentEnvelope),
  tenant_id: token(TENANT_ID_PATTERN),
  agent: object({ id: text, 'framework?': text }),
  requested_at: time,
  nonce: token(NONCE_PATTERN),
  'idempotency_key?': printable,
};

const admission = object({
  ...envelope,
  kind: word('admission'),
  action: token(ACTION_PATTERN),
  'tool?': text,
  'arguments_hash?': token(HASH_PATTERN),
  'parent_proof_id?': token(PROOF_ID_PATTERN),
});

const outcome = object({
  ...envelope,
  kind: word('outcome'),
  parent_proof_id: token(PROOF_ID_PATTERN),
  result: word('succeeded', 'failed'),
  'result_hash?': token(HASH_PATTERN),
});
