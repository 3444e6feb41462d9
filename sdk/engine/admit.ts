import { toHex } from '../../protocol/bytes.js';
import {
  agentEnvelopeSchema,
  agentReceiptSchema,
  type AgentEnvelope,
  type AgentReceipt,
} from '../../protocol/schemas/agent.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { formatTime } from '../../protocol/time.js';
import { checkedInput } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import type { Admitted } from './receipt.js';
import { submit } from './submit.js';

/**
 * An agent's envelope: kind `admission` asks whether it may act, kind `outcome` says what became of
 * it. Where they are absent, `nonce` is drawn, `requested_at` is now, and the tenant is the caller's.
 */
export type AgentInput = AgentEnvelope extends infer E
  ? E extends AgentEnvelope
    ? Omit<E, 'schema_version' | 'tenant_id' | 'nonce' | 'requested_at'> &
        Partial<Pick<E, 'schema_version' | 'tenant_id' | 'nonce' | 'requested_at'>>
    : never
  : never;

/**
 * The whole body of `POST /v1/agent/admissions`, checked. Without a `nonce` of the input's own each
 * call makes another admission: keep the envelope to be able to send the same one again. Throws
 * `invalid_input`.
 */
export function agentEnvelope(tenantId: string, input: AgentInput): AgentEnvelope {
  return checkedInput(agentEnvelopeSchema, {
    schema_version: SCHEMA.agentEnvelope,
    tenant_id: tenantId,
    nonce: toHex(crypto.getRandomValues(new Uint8Array(16))),
    requested_at: formatTime(Date.now()),
    ...input,
  });
}

/**
 * `POST /v1/agent/admissions`: has an agent's action admitted before it happens, or its outcome
 * recorded after. Arguments and results stay with the agent; `canonicalHash` makes their hashes.
 * The idempotency header is the hash of the canonical envelope.
 *
 * Returns and throws like `executeIntentHttp`; for a parent that is no admitted action of this
 * tenant, `invalid_request`.
 */
export async function admitHttp(
  options: EngineOptions,
  input: AgentInput,
): Promise<Admitted<AgentReceipt>> {
  const lane = { path: '/v1/agent/admissions', receipt: agentReceiptSchema } as const;
  return submit(options, lane, (tenantId) => agentEnvelope(tenantId, input));
}
