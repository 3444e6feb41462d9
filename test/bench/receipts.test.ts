import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bareProof } from '#bench/bare/bare-work';
import { Checker, checkResult, type Checked } from '#bench/receipts/checker';
import { engineHeaders } from '#bench/service/headers';
import { isDenied, requestAt } from '#bench/service/items';
import { gatherEvidence, type Outside } from '#bench/receipts/receipt-evidence';
import {
  receiptFaults,
  type ReceiptEvidence,
  type ReceiptFault,
} from '#bench/receipts/receipt-faults';
import { startStack, type BenchStack } from '#bench/service/stack';
import { canonicalBytes } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';
import type { Batch, BatchResult, BatchResults } from '#protocol/schemas/batch';
import { loadSigningKey } from '#runtime/crypto/node';
import { removeEmbeddedPostgres } from '#runtime/embedded/start';

const ITEMS = 60;
const DENIED = Array.from({ length: ITEMS }, (_, n) => n).find(isDenied)!;
const TIMEOUT_MS = 20_000;

let dir: string;
let stack: BenchStack;
let outside: Outside;
let batch: Batch;
let results: BatchResult[];
const source = { tenantId: 'demo', run: 'receipts' };

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'svc-bench-receipts-'));
  await chmod(dir, 0o755);
  stack = await startStack(dir, { workers: 1, recentLookupLimit: 1_000 });
  const { registry, engineUrl, publicUrl } = stack;
  const headers = engineHeaders(registry.apiKey, registry.tenantId);
  const trust = {
    aepKey: loadSigningKey(registry.keyFiles.aep).publicKey,
    logVkey: registry.vkeys.log,
    logOrigin: registry.origin,
  };
  outside = { engineUrl, publicUrl, headers, trust };
  const lines = Array.from({ length: ITEMS }, (_, n) => JSON.stringify(requestAt(source, n)));
  const response = await fetch(`${engineUrl}/v1/batches`, {
    method: 'POST',
    headers: { ...headers, 'Content-Type': 'application/x-ndjson' },
    body: lines.join('\n'),
  });
  batch = (await response.json()) as Batch;
  expect(response.status).toBe(202);
  results = await settledResults();
}, 120_000);
afterAll(async () => {
  await stack.close();
  await removeEmbeddedPostgres(dir);
  await rm(dir, { recursive: true, force: true, maxRetries: 10 });
});

async function settledResults(): Promise<BatchResult[]> {
  const url = `${stack.engineUrl}/v1/batches/${batch.batch_id}/results?limit=${ITEMS}`;
  for (;;) {
    const found = ((await (await fetch(url, outside)).json()) as BatchResults).results;
    if (found.every(({ state }) => state !== 'pending')) return found;
    await sleep(50);
  }
}

async function evidenceOf(n: number): Promise<ReceiptEvidence> {
  const { receipt, problem } = structuredClone(results[n]!);
  const given = receipt ?? (problem as unknown as { receipt: ReceiptEvidence['receipt'] }).receipt;
  const found = await gatherEvidence(outside, given.registry_proof_id, TIMEOUT_MS);
  const request = requestAt(source, n) as unknown as JsonValue;
  return { ...found, receipt: given, request, effect: isDenied(n) ? 'DENY' : 'ADMIT' };
}

type Spoil = (evidence: ReceiptEvidence, other: ReceiptEvidence) => unknown;

const SPOILED: [string, Spoil, ReceiptFault[]][] = [
  ['of another request', (e, o) => (e.request = o.request), ['receipt_of_another_request']],
  [
    'with another hash',
    ({ receipt }) => (receipt.response_hash = '0'.repeat(64)),
    ['wrong_response_hash', 'export_of_another_proof'],
  ],
  [
    'that says another status',
    ({ receipt }) => (receipt.status = 'DENIED'),
    ['wrong_response_hash', 'wrong_effect'],
  ],
  ['that should be a denial', (e) => (e.effect = 'DENY'), ['wrong_effect']],
  [
    'whose public effect is another',
    ({ verdict }) => (verdict.artifact.effect = 'DENY'),
    ['wrong_effect'],
  ],
  [
    'that is revoked in public',
    ({ verdict }) => (verdict.verification.verification_status = 'REVOKED'),
    ['not_valid_in_public'],
  ],
  [
    'that nobody may rely on in public',
    ({ verdict }) => (verdict.verification.can_assert_validity = false),
    ['not_valid_in_public'],
  ],
  [
    'whose public hash is another',
    ({ verdict }) => (verdict.artifact.proof_record_hash = '0'.repeat(64)),
    ['public_of_another_proof'],
  ],
  [
    'whose export has another salt',
    ({ exported }) => (exported.aep.salt = '0'.repeat(64)),
    ['export_does_not_verify'],
  ],
  [
    'whose export is that of a neighbour',
    (e, o) => (e.exported = o.exported),
    ['public_of_another_proof', 'export_of_another_proof', 'not_under_the_public_checkpoint'],
  ],
  [
    'at another leaf',
    ({ verdict }) => (verdict.integrity.leaf_index += 1),
    ['not_under_the_public_checkpoint'],
  ],
  [
    'under a checkpoint that nobody signed',
    (e) => (e.checkpoint = e.checkpoint.replace(/^svc/, 'svd')),
    ['not_under_the_public_checkpoint'],
  ],
  ['whose path is cut', (e) => (e.path = e.path.slice(1)), ['not_under_the_public_checkpoint']],
];

describe('a receipt of a batch, from the outside', () => {
  it('has no fault, admitted or denied', async () => {
    for (const n of [0, 1, DENIED])
      expect(receiptFaults(await evidenceOf(n), outside.trust)).toEqual([]);
    expect((await evidenceOf(DENIED)).receipt.status).toBe('DENIED');
  });

  it.each(SPOILED)('%s is found', async (_what, spoil, faults) => {
    const [evidence, other] = [await evidenceOf(2), await evidenceOf(4)];
    spoil(evidence, other);
    expect(receiptFaults(evidence, outside.trust)).toEqual(faults);
  });

  it('verifies under the pinned keys only', async () => {
    const evidence = await evidenceOf(2);
    const spki = generateKeyPairSync('ed25519').publicKey.export({ format: 'der', type: 'spki' });
    const aepKey = new Uint8Array(spki.subarray(-32));
    expect(receiptFaults(evidence, { ...outside.trust, aepKey })).toEqual([
      'export_does_not_verify',
    ]);
  });

  it('that is not there is a fault', async () => {
    const without = { ...results[2]! };
    delete without.receipt;
    const given = { source, n: 2, result: without };
    expect(await checkResult(outside, given, TIMEOUT_MS)).toEqual([
      'it is admitted, and has no receipt',
    ]);
  });
});

describe('the bare loop', () => {
  it('signs a document that is as long as the AEP of the same request', async () => {
    const keys = {
      ...generateKeyPairSync('ed25519'),
      keyId: randomBytes(32).toString('base64url'),
    };
    for (const n of [0, 1]) {
      const { exported, request } = await evidenceOf(n);
      const { document } = bareProof(JSON.stringify(request), randomBytes(32), keys);
      const ratio = document.length / canonicalBytes(exported.aep).length;
      expect(ratio).toBeGreaterThan(0.95);
      expect(ratio).toBeLessThan(1.05);
    }
  });
});

describe('the checker', () => {
  /** Looks for a while, and again until it has found enough: what it looks at is left to chance. */
  const check = async (
    run: string,
    patienceMs: number,
    isEnough: (found: Checked) => boolean,
    batchId = batch.batch_id,
  ): Promise<Checked> => {
    const all: Checked = { checked: 0, denied: 0, wrong: [] };
    for (let time = 0; time < 40 && !isEnough(all); time += 1) {
      const checker = new Checker({ outside, source: { ...source, run }, everyMs: 1, patienceMs });
      checker.add({ batchId, first: 0, items: ITEMS });
      await sleep(300);
      const found = await checker.stop();
      all.checked += found.checked;
      all.denied += found.denied;
      all.wrong.push(...found.wrong);
    }
    return all;
  };

  it('finds the receipts of a batch right, denials among them', async () => {
    const { checked, denied, wrong } = await check(source.run, TIMEOUT_MS, (all) => all.denied > 0);
    expect(wrong).toEqual([]);
    expect(checked).toBeGreaterThan(0);
    expect(denied).toBeGreaterThan(0);
  });

  it('finds every receipt wrong that is not of what was sent', async () => {
    const { checked, wrong } = await check('another', TIMEOUT_MS, (all) => all.checked > 0);
    expect(checked).toBeGreaterThan(0);
    expect(wrong).toHaveLength(checked);
    expect(wrong[0]).toContain('receipt_of_another_request');
  });

  it('finds wrong what it cannot check', async () => {
    const isEnough = (all: Checked): boolean => all.wrong.length > 0;
    const { wrong } = await check(source.run, 0, isEnough, `batch_${'0'.repeat(32)}`);
    expect(wrong[0]).toContain('results are answered 404');
  });
});
