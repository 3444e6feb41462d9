import { randomBytes } from 'node:crypto';
import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import type { Facts } from '#protocol/schemas/facts';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeTextHash } from '#runtime/crypto/node';

/** The tenant and a unique name of the run, so that items of different sources differ. */
export interface ItemSource {
  tenantId: string;
  run: string;
  /**
   * If given, every item is an agent envelope of {@link BOUND_AGENT}. With the value `in runs`, the name in `run` must
   * be 12 hex digits.
   */
  agents?: 'with facts' | 'without facts' | 'in runs' | undefined;
}

export const newRun = (): string => randomBytes(6).toString('hex');

/** Tools of an airline's agent: reads are common, writes are rare. */
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
export const BOUND_AGENT = 'airline-agent-0';
/** One item in this many has an action that the shipped policy denies: denials have proofs, too. */
const ONE_DENIED_IN = 49;

export const isDenied = (n: number): boolean => n % ONE_DENIED_IN === ONE_DENIED_IN - 1;

/** The `n`th request of a source, deterministic: executions and agent envelopes alternate. */
export function requestAt(source: ItemSource, n: number): ExecuteRequest | AgentEnvelope {
  const { agents } = source;
  if (agents !== undefined) {
    const agent = { id: BOUND_AGENT, framework: 'tool-calling/1.4' };
    const envelope = { ...envelopeAt(source, n), agent };
    if (agents === 'with facts') return { ...envelope, facts: factsAt(n) };
    return agents === 'in runs' ? { ...envelope, run: runAt(source, n) } : envelope;
  }
  return n % 2 === 0 ? executeAt(source, n) : envelopeAt(source, n);
}

function executeAt({ tenantId, run }: ItemSource, n: number): ExecuteRequest {
  return {
    schema_version: SCHEMA.executeRequest,
    intent_id: `${run}/${String(n)}`,
    tenant_id: tenantId,
    action: actionAt(n),
    ...(n % 16 === 0 && { idempotency_key: `${run}-${String(n)}` }),
  };
}

/** No amount repeats before all 50,000 amounts from 0.00 to 499.99 were used. */
const factsAt = (n: number): Facts => ({
  amount: { decimal: (((n * 7_919) % 50_000) / 100).toFixed(2) },
  currency: 'EUR',
});

const RUN_LENGTH = 10;

/** Consecutive items form a run, whose id is a UUIDv7. */
function runAt({ run }: ItemSource, n: number): { id: string; seq: number } {
  const seq = n % RUN_LENGTH;
  const time = (FIRST_REQUEST + n - seq).toString(16).padStart(12, '0');
  return { id: `${time}7000b000${run}`, seq };
}

function envelopeAt(
  { tenantId, run }: ItemSource,
  n: number,
): AgentEnvelope & { kind: 'admission' } {
  const tool = toolAt(n);
  return {
    schema_version: SCHEMA.agentEnvelope,
    tenant_id: tenantId,
    agent: { id: `airline-agent-${String(n % AGENTS)}`, framework: 'tool-calling/1.4' },
    requested_at: new Date(FIRST_REQUEST + n).toISOString(),
    nonce: `${run}_${String(n).padStart(10, '0')}`,
    kind: 'admission',
    action: actionAt(n),
    tool,
    arguments_hash: argumentsHash(tool, n % CALLS),
  };
}

const FIRST_REQUEST = Date.UTC(2026, 0, 1);

/** Number of distinct arguments: arguments repeat, as with real agents, but nonces do not. */
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

/** The body of the `n`th execution of a run that the policy admits. */
export const executeBody = (source: ItemSource, n: number): string =>
  JSON.stringify(executeAt(source, n + Math.floor(n / (ONE_DENIED_IN - 1))));

/** Placeholder in a template. No tenant ID and no action contains this character. */
const MARK = '@';

const SHAPES = 224;

/** Bodies in which `wrk-executes.lua` replaces `MARK`, so that no body repeats. */
export const executeTemplates = (tenantId: string): string[] =>
  Array.from({ length: SHAPES }, (_, n) => executeBody({ tenantId, run: MARK }, n));
