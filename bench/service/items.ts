import type { AgentEnvelope } from '#protocol/schemas/agent';
import type { ExecuteRequest } from '#protocol/schemas/execute';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeTextHash } from '#runtime/crypto/node';

/** Of which tenant, and a word that no other run has: items of one source are all different. */
export interface ItemSource {
  tenantId: string;
  run: string;
}

/** What agents of an airline call: looking up is common, changing is rare. */
const TOOLS = [
  'get_user_details',
  'get_reservation_details',
  'search_direct_flight',
  'search_onestop_flight',
  'list_all_airports',
  'calculate',
  'think',
  'book_reservation',
  'cancel_reservation',
  'update_reservation_flights',
  'update_reservation_passengers',
  'update_reservation_baggages',
  'send_certificate',
  'transfer_to_human_agents',
] as const;
const AGENTS = 40;
/** Of so many one is of an action that the shipped policy denies: denials are proofs too. */
export const ONE_DENIED_IN = 49;

export const isDenied = (n: number): boolean => n % ONE_DENIED_IN === ONE_DENIED_IN - 1;

/** The `n`th request of a source, always the same: executions and agent envelopes in turn. */
export function requestAt(source: ItemSource, n: number): ExecuteRequest | AgentEnvelope {
  return n % 2 === 0 ? executeAt(source, n) : envelopeAt(source, n);
}

/** The `n`th execution of a source. */
export function executeAt({ tenantId, run }: ItemSource, n: number): ExecuteRequest {
  return {
    schema_version: SCHEMA.executeRequest,
    intent_id: `${run}/${String(n)}`,
    tenant_id: tenantId,
    action: actionAt(n),
    ...(n % 16 === 0 && { idempotency_key: `${run}-${String(n)}` }),
  };
}

/** The `n`th envelope of a source: the arguments stay with the agent, their hash is sent. */
export function envelopeAt({ tenantId, run }: ItemSource, n: number): AgentEnvelope {
  const tool = toolAt(n);
  return {
    schema_version: SCHEMA.agentEnvelope,
    tenant_id: tenantId,
    agent: { id: `airline-agent-${String(n % AGENTS)}`, framework: 'tool-calling/1.4' },
    requested_at: new Date(BEGINNING + n).toISOString(),
    nonce: `${run}_${String(n).padStart(10, '0')}`,
    kind: 'admission',
    action: actionAt(n),
    tool,
    arguments_hash: argumentsHash(tool, n % CALLS),
  };
}

/** When the agents say that they asked; recorded and never judged. */
const BEGINNING = Date.UTC(2026, 0, 1);

/** Arguments come again, as with real agents; what makes an envelope differ is its nonce. */
const CALLS = 50;
const hashes = new Map<string, string>();

function argumentsHash(tool: string, call: number): string {
  const text = `{"reservation_id":"R${String(call).padStart(5, '0')}","tool":"${tool}"}`;
  const known = hashes.get(text) ?? nativeTextHash(text);
  hashes.set(text, known);
  return known;
}

const toolAt = (n: number): (typeof TOOLS)[number] => TOOLS[(n >> 1) % TOOLS.length] ?? 'think';

const actionAt = (n: number): string =>
  isDenied(n) ? 'DELETE_AUDIT_LOG' : toolAt(n).toUpperCase();
