import { readFile } from 'node:fs/promises';
import * as z from 'zod';
import { SCHEMA } from '#protocol/schemas/ids';
import { executeReceiptSchema, type ExecuteReceipt } from '#protocol/schemas/execute';
import { OperatorError } from '#runtime/process/operator-error';
import type { Stack } from '../stack.js';

/** A line of the example file: an execution without the tenant's fields. */
const actionSchema = z.strictObject({
  intent_id: z.string(),
  action: z.string(),
  idempotency_key: z.string().optional(),
  proof_chain_fixture_ref: z.string().optional(),
});
export type AgentAction = z.infer<typeof actionSchema>;

export interface Admitted {
  action: AgentAction;
  receipt: ExecuteReceipt;
  /** The policies' reason for a denial. */
  denial: string | null;
  /** When the receipt arrived, by `performance.now`. */
  at: number;
}

export async function readActions(file: string): Promise<AgentAction[]> {
  const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '');
  return lines.map((line) => actionSchema.parse(JSON.parse(line)));
}

const deniedSchema = z.looseObject({
  code: z.literal('policy_denied'),
  detail: z.string(),
  receipt: executeReceiptSchema,
});

export function engineHeaders(stack: Stack): Record<string, string> {
  return {
    'X-Svc-Api-Key': stack.apiKey,
    'X-Svc-Tenant-Id': stack.tenantId,
    'svc-api-version': 'v1',
  };
}

const TIMEOUT_MS = 30_000;

/**
 * Sends one execution. A receipt is a success, also for a policy denial; anything else is an error.
 */
export async function admit(stack: Stack, action: AgentAction): Promise<Admitted> {
  const body = JSON.stringify({
    schema_version: SCHEMA.executeRequest,
    tenant_id: stack.tenantId,
    ...action,
  });
  const deadline = performance.now() + TIMEOUT_MS;
  for (;;) {
    const response = await fetch(`${stack.engineUrl}/v1/intents/execute`, {
      method: 'POST',
      headers: { ...engineHeaders(stack), 'Content-Type': 'application/json' },
      body,
    });
    const at = performance.now();
    const answer: unknown = await response.json();
    if (response.status === 200) {
      return { action, receipt: executeReceiptSchema.parse(answer), denial: null, at };
    }
    if (response.status === 403) {
      const denied = deniedSchema.parse(answer);
      return { action, receipt: denied.receipt, denial: denied.detail, at };
    }
    // Accepted, not signed yet. The request is idempotent and can be repeated.
    if (response.status !== 202 || at > deadline) {
      throw new OperatorError(
        `${action.action} was answered ${String(response.status)}: ${JSON.stringify(answer)}`,
      );
    }
  }
}
