import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import { verifyOffline, type OfflineResult } from '#protocol/offline';
import { executeReceiptSchema, type ExecuteReceipt } from '#protocol/schemas/execute';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import type { Stack } from '../stack.js';

/** A line of the example file: an execution without the tenant's fields. */
export const actionSchema = z.strictObject({
  intent_id: z.string(),
  action: z.string(),
  idempotency_key: z.string().optional(),
  proof_chain_fixture_ref: z.string().optional(),
});

export interface Admitted {
  action: string;
  receipt: ExecuteReceipt;
  /** The policies' reason for a denial. */
  denial: string | null;
  /** When the receipt arrived, by `performance.now`. */
  at: number;
}

const deniedSchema = z.looseObject({ detail: z.string(), receipt: executeReceiptSchema });

const TIMEOUT_MS = 30_000;

/**
 * Sends one execution. A receipt is a success, also for a policy denial; anything else is an error.
 */
export async function admit(
  stack: Stack,
  execution: z.infer<typeof actionSchema>,
): Promise<Admitted> {
  const { action } = execution;
  const body = { schema_version: SCHEMA.executeRequest, tenant_id: stack.tenantId, ...execution };
  const deadline = performance.now() + TIMEOUT_MS;
  for (;;) {
    const response = await callEngine(stack, '/v1/intents/execute', body);
    const at = performance.now();
    const answer: unknown = await response.json();
    if (response.status === 200) {
      return { action, receipt: executeReceiptSchema.parse(answer), denial: null, at };
    }
    if (response.status === 403) {
      const { receipt, detail } = deniedSchema.parse(answer);
      return { action, receipt, denial: detail, at };
    }
    // Accepted, not signed yet. The request is idempotent and can be repeated.
    if (response.status !== 202 || at > deadline) {
      throw new OperatorError(
        `${action} was answered ${String(response.status)}: ${JSON.stringify(answer)}`,
      );
    }
  }
}

function callEngine(stack: Stack, path: string, body?: object): Promise<Response> {
  return fetch(stack.engineUrl + path, {
    headers: {
      'X-Svc-Api-Key': stack.apiKey,
      'X-Svc-Tenant-Id': stack.tenantId,
      'svc-api-version': 'v1',
      'Content-Type': 'application/json',
    },
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
  });
}

const publicSchema = z.looseObject({
  verification: z.looseObject({
    verification_status: z.string(),
    can_assert_validity: z.boolean(),
  }),
});

export interface Verdict {
  admitted: Admitted;
  /** Null after a timeout. */
  status: string | null;
  assertsValidity: boolean;
  /** From the receipt to the public verdict, in milliseconds. */
  afterMs: number;
}

/** Polls the public API until it has a verdict on the proof. */
export async function follow({ publicUrl }: Stack, admitted: Admitted): Promise<Verdict> {
  const url = `${publicUrl}/api/public/verify/proof/${admitted.receipt.registry_proof_id}`;
  for (;;) {
    const response = await fetch(url);
    const body: unknown = await response.json();
    const afterMs = performance.now() - admitted.at;
    if (response.status === 200) {
      const { verification_status: status, can_assert_validity: assertsValidity } =
        publicSchema.parse(body).verification;
      return { admitted, status, assertsValidity, afterMs };
    }
    // 404: not in the snapshot yet. 503: no valid snapshot.
    if (afterMs > TIMEOUT_MS) return { admitted, status: null, assertsValidity: false, afterMs };
    await sleep(100);
  }
}

/**
 * Exports a proof and checks it with the stack's keys, not with keys from the document. Retries
 * while the proof is unverified or not covered by a checkpoint.
 */
export async function checkOffline(stack: Stack, proofId: string): Promise<OfflineResult> {
  const path = `/v1/proofs/${proofId}/export`;
  const deadline = performance.now() + TIMEOUT_MS;
  for (;;) {
    const response = await callEngine(stack, path);
    const exported = await response.text();
    if (response.ok) {
      const origin = stack.logVkey.slice(0, stack.logVkey.indexOf('+'));
      return verifyOffline(
        exported,
        { aepKeys: [stack.aepPublicKey], log: { vkey: stack.logVkey, origin } },
        { sha256: nativeSha256, verify: nativeVerify },
      );
    }
    if (response.status !== 409 || performance.now() > deadline) {
      throw new OperatorError(`${path} was answered ${String(response.status)}`);
    }
    await sleep(200);
  }
}
