import {
  executeReceiptSchema,
  executeRequestSchema,
  type ExecuteReceipt,
  type ExecuteRequest,
} from '../../protocol/schemas/execute.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { checkedInput } from '../http/documents.js';
import type { EngineOptions } from '../options.js';
import type { Admitted } from './receipt.js';
import { submit } from './submit.js';

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
  const lane = { path: '/v1/intents/execute', receipt: executeReceiptSchema } as const;
  return submit(options, lane, (tenantId) => executeRequest(tenantId, input));
}
