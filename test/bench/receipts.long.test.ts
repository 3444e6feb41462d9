import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { batchBody, engineHeaders, sendBatch } from '#bench/harness/engine-api';
import { isDenied, requestAt } from '#bench/harness/items';
import { cleanUp, type Cleanup } from '#bench/harness/cleanup';
import { startStack } from '#bench/harness/stack';
import {
  checkReceipts,
  gatherEvidence,
  type Outsider,
  outsiderOf,
  receiptFaults,
  type ReceiptEvidence,
} from '#bench/receipts/receipt-checker';
import { type JsonValue } from '#protocol/json';
import type { BatchResult, BatchResults } from '#protocol/schemas/batch';
import type { ExecuteReceipt } from '#protocol/schemas/admission';
import { dropCluster } from '#runtime/embedded/place';
import { testFolder } from '../fixtures/test-folder.js';

const ITEMS = 60;
const DENIED = Array.from({ length: ITEMS }, (_, n) => n).find(isDenied)!;
const PUBLIC_WITHIN_MS = 20_000;

const dir = await testFolder();
const cleanup: Cleanup = [];
let outsider: Outsider;
let batchId: string;
let results: BatchResult[];
const source = { tenantId: 'demo', run: 'receipts' };

beforeAll(async () => {
  const stack = await startStack(dir, {}, cleanup);
  outsider = outsiderOf(stack);
  const { engineUrl, registry } = stack;
  const headers = engineHeaders(registry);
  ({ batchId } = (await sendBatch(engineUrl, registry, batchBody(source, 0, ITEMS))) as {
    batchId: string;
  });
  const url = `${engineUrl}/v1/batches/${batchId}/results?limit=${ITEMS}`;
  do {
    await sleep(50);
    ({ results } = (await (await fetch(url, { headers })).json()) as BatchResults);
  } while (results.some(({ state }) => state === 'pending'));
}, 120_000);
afterAll(async () => {
  await cleanUp(cleanup);
  await dropCluster(dir);
});

async function evidenceOf(n: number): Promise<ReceiptEvidence> {
  const { receipt, problem } = structuredClone(results[n]!);
  const given = receipt ?? (problem as unknown as { receipt: ReceiptEvidence['receipt'] }).receipt;
  const found = await gatherEvidence(outsider, given.registry_proof_id, PUBLIC_WITHIN_MS);
  const request = requestAt(source, n) as unknown as JsonValue;
  return { ...found, receipt: given, request, effect: isDenied(n) ? 'DENY' : 'ADMIT' };
}

type Tamper = (evidence: ReceiptEvidence, other: ReceiptEvidence) => unknown;

/** Kinds of tampering and the faults they cause. */
const TAMPERED: [what: string, tamper: Tamper, faults: string[]][] = [
  ['another request', (e, o) => (e.request = o.request), ['receipt_of_another_request']],
  [
    'a public verdict without an assertion',
    (e) => (e.verdict.verification.can_assert_validity = false),
    ['not_valid_in_public'],
  ],
  [
    'an unsigned checkpoint',
    (e) => (e.tlogProof = e.tlogProof.replace('\nsvc', '\nsvd')),
    ['not_under_the_public_checkpoint'],
  ],
];

it('receiptFaults > returns no fault for admitted and denied items', async () => {
  for (const n of [0, 1, DENIED]) {
    expect(receiptFaults(await evidenceOf(n), outsider.trust)).toEqual([]);
  }
  expect((await evidenceOf(DENIED)).receipt.status).toBe('DENIED');
});

it.each(TAMPERED)('receiptFaults > reports %s', async (_what, tamper, faults) => {
  const [evidence, other] = [await evidenceOf(2), await evidenceOf(4)];
  tamper(evidence, other);
  expect(receiptFaults(evidence, outsider.trust)).toEqual(faults);
});

it('checkReceipts > reports a receipt of another request and a proof that is not public', async () => {
  const receipt = results[0]!.receipt as ExecuteReceipt;
  const [request, other] = [0, 2].map((n) => requestAt(source, n) as unknown as JsonValue);
  const unknown = { ...receipt, registry_proof_id: '0'.repeat(32) };
  const effect = 'ADMIT' as const;
  const sent = [
    { receipt, request: request!, effect },
    { receipt, request: other!, effect },
    { receipt: unknown, request: request!, effect },
  ];
  const { checked, wrong } = await checkReceipts(outsider, sent, 2_000);
  expect(checked).toBe(3);
  expect(wrong).toHaveLength(2);
  expect(wrong[0]).toContain('receipt_of_another_request');
  expect(wrong[1]).toContain('no verdict in time');
});
