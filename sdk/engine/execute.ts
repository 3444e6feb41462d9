import { hashHex, nobleSha256 } from '../../protocol/hash.js';
import {
  executeReceiptSchema,
  executeRequestSchema,
  type ExecuteReceipt,
  type ExecuteRequest,
} from '../../protocol/schemas/execute.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { withDeadline } from '../http/deadline.js';
import { checkedInput } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';
import { canonicalBody } from './envelope.js';
import { settle } from './follow.js';
import type { Admitted } from './receipt.js';

/** An execute request (spec 2.4); `schema_version` and the tenant are filled in where absent. */
export type ExecuteInput = Omit<ExecuteRequest, 'schema_version' | 'tenant_id'> &
  Partial<Pick<ExecuteRequest, 'schema_version' | 'tenant_id'>>;

/**
 * The whole body of `POST /v1/intents/execute`, checked: what is kept and sent again is the same
 * admission. Throws `invalid_input`.
 */
export function executeRequest(tenantId: string, input: ExecuteInput): ExecuteRequest {
  return checkedInput(executeRequestSchema, {
    schema_version: SCHEMA.executeRequest,
    tenant_id: tenantId,
    ...input,
  });
}

/**
 * `POST /v1/intents/execute`: has an execution admitted, and returns the engine's receipt as it is,
 * once it is signed and in the log. The same input again returns the first receipt, so a call that
 * got lost is repeated without harm. The idempotency header is the hash of the canonical request.
 *
 * Throws `SdkError`: `policy_denied` for a denial, with its receipt in `denial`; `lane_locked`,
 * `forbidden`, `rate_limited`, `unavailable` and so on when nothing was decided. Only a receipt that
 * says `ADMITTED` and carries the hash of this request is ever returned.
 */
export async function executeIntentHttp(
  options: EngineOptions,
  input: ExecuteInput,
): Promise<Admitted<ExecuteReceipt>> {
  const engine = openEngine(options);
  const body = canonicalBody(executeRequest(engine.tenantId, input));
  const requestHash = hashHex(nobleSha256, body);
  return withDeadline(options, async (deadline) => {
    const request = {
      method: 'POST',
      path: '/v1/intents/execute',
      body,
      idempotencyKey: requestHash,
    } as const;
    const answer = await engine.ask(request, deadline);
    return settle(engine, answer, { schema: executeReceiptSchema, requestHash }, deadline);
  });
}
