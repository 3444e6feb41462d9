import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Receipt } from '#protocol/aep';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { type OfflineTrust, verifyOffline } from '#protocol/offline';
import type { BatchResult, BatchResults } from '#protocol/schemas/batch';
import type { ProofExport } from '#protocol/schemas/proof-export';
import type { Effect } from '#protocol/status';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import {
  exportProofHttp,
  waitForVerdictHttp,
  type EngineOptions,
  type PublicOptions,
} from '#sdk/index';
import type { SentBatch } from '../harness/batch-client.js';
import { engineHeaders } from '../harness/engine-api.js';
import { isDenied, type ItemSource, requestAt } from '../harness/items.js';
import type { BenchStack } from '../harness/stack.js';

export interface CheckedReceipts {
  checked: number;
  denied: number;
  /** One line for each receipt that has faults or could not be checked. */
  wrong: string[];
}

/** Everything that an outside client has: two URLs, an API key and two pinned public keys. */
export interface Outsider {
  engine: EngineOptions;
  registry: PublicOptions;
  trust: OfflineTrust;
}

export function outsiderOf({ engineUrl, publicUrl, registry }: BenchStack): Outsider {
  const { apiKey, tenantId, aepPublicKey, logVkey, origin } = registry;
  return {
    engine: { engineUrl, apiKey, tenantId },
    registry: { publicUrl },
    trust: { aepKeys: [aepPublicKey], log: { vkey: logVkey, origin } },
  };
}

/** A request and its receipt; `effect` is the policy's decision for the request. */
export type Admission = Pick<ReceiptEvidence, 'receipt' | 'request' | 'effect'>;

/** Checks receipts as an outside client, each against its request, and adds to `found`. */
export async function checkReceipts(
  outsider: Outsider,
  sent: readonly Admission[],
  publicWithinMs: number,
  found: CheckedReceipts = { checked: 0, denied: 0, wrong: [] },
): Promise<CheckedReceipts> {
  for (const admission of sent) {
    const proofId = admission.receipt.registry_proof_id;
    const faults = await gatherEvidence(outsider, proofId, publicWithinMs).then(
      (evidence) => receiptFaults({ ...evidence, ...admission }, outsider.trust),
      (error: unknown) => [String(error)],
    );
    found.checked += 1;
    if (admission.effect === 'DENY') found.denied += 1;
    if (faults.length > 0) found.wrong.push(`${proofId}: ${faults.join(', ')}`);
  }
  return found;
}

/**
 * Checks random receipts of batches, as an outside client, while batches are processed.
 *
 * @param everyMs pause between checks, so that the checker causes little load
 */
export function startReceiptChecker(
  outsider: Outsider,
  source: ItemSource,
  { everyMs, publicWithinMs }: { everyMs: number; publicWithinMs: number },
) {
  const sent: SentBatch[] = [];
  const found: CheckedReceipts = { checked: 0, denied: 0, wrong: [] };
  const stopping = new AbortController();
  const { signal } = stopping;
  const check = async (batch: SentBatch): Promise<void> => {
    const page = await randomPage(outsider, batch);
    const sample = sampleOf(page.filter(({ state }) => state !== 'pending'));
    const admissions = sample.map((result) => admissionOf(source, batch, result));
    await checkReceipts(outsider, admissions, publicWithinMs, found);
  };
  const checkUntilStopped = async (): Promise<void> => {
    while (!signal.aborted) {
      const batch = sent[randomInt(Math.max(1, sent.length))];
      if (batch !== undefined) {
        await check(batch).catch((error: unknown) =>
          found.wrong.push(`${batch.batchId}: ${String(error)}`),
        );
      }
      await sleep(everyMs, undefined, { signal }).catch(() => undefined);
    }
  };
  const checking = checkUntilStopped();
  return {
    add: (batch: SentBatch) => void sent.push(batch),
    stop: async (): Promise<CheckedReceipts> => {
      stopping.abort();
      await checking;
      return found;
    },
  };
}

const PAGE = 50;
const CHECKED_PER_PAGE = 4;

/** Random results, including a denial if the page has one, because denials are rare. */
function sampleOf(results: readonly BatchResult[]): BatchResult[] {
  const start = randomInt(Math.max(1, results.length - CHECKED_PER_PAGE));
  const sample = results.slice(start, start + CHECKED_PER_PAGE);
  const denied = results.find(({ state }) => state === 'denied');
  return denied === undefined || sample.includes(denied) ? sample : [denied, ...sample.slice(1)];
}

function admissionOf(source: ItemSource, batch: SentBatch, result: BatchResult): Admission {
  const n = batch.first + result.index;
  // The receipt of a denial is in the problem document.
  const denied = result.problem as { receipt?: Admission['receipt'] } | undefined;
  const receipt = result.receipt ?? denied?.receipt;
  if (receipt === undefined) throw new Error(`${result.state} without a receipt`);
  const request = requestAt(source, n) as unknown as JsonValue;
  return { receipt, request, effect: isDenied(n) ? 'DENY' : 'ADMIT' };
}

const LONGEST_PAGE = 1_000;

/** A random page of results, reached from page to page as clients do. */
async function randomPage({ engine }: Outsider, batch: SentBatch): Promise<BatchResult[]> {
  const start = randomInt(Math.max(1, batch.items - PAGE));
  let cursor = '';
  for (let from = 0; ;) {
    const limit = from === start ? PAGE : Math.min(LONGEST_PAGE, start - from);
    const url = `${engine.engineUrl}/v1/batches/${batch.batchId}/results?limit=${String(limit)}`;
    const response = await fetch(url + cursor, { headers: engineHeaders(engine) });
    if (response.status !== 200)
      throw new Error(`the results of a batch: status ${String(response.status)}`);
    const page = (await response.json()) as BatchResults;
    if (from === start) return page.results;
    if (page.next_cursor === null) throw new Error(`results end before ${String(start)}`);
    cursor = `&cursor=${page.next_cursor}`;
    from += limit;
  }
}

/**
 * Fetches everything that engine and public API return about a proof.
 *
 * @throws Error when the proof is not public within `publicWithinMs`, or cannot be exported
 */
export async function gatherEvidence(
  { engine, registry }: Outsider,
  proofId: string,
  publicWithinMs: number,
): Promise<Omit<ReceiptEvidence, keyof Admission>> {
  const proof = { proof_id: proofId };
  const { record } = await waitForVerdictHttp({ ...registry, timeoutMs: publicWithinMs }, proof);
  const verdict = record as unknown as PublicVerdict;
  // No wait is needed: a checkpoint, which an export needs, precedes the public verdict.
  const { response: exported } = await exportProofHttp(engine, proof);
  const path = `/log/proof/${String(verdict.integrity.leaf_index)}`;
  const response = await fetch(registry.publicUrl + path);
  if (response.status !== 200) throw new Error(`${path}: status ${String(response.status)}`);
  return { verdict, exported, tlogProof: await response.text() };
}

export interface ReceiptEvidence {
  request: JsonValue;
  effect: Effect;
  receipt: Receipt;
  verdict: PublicVerdict;
  exported: ProofExport;
  /** The public log's tlog-proof of the leaf that the verdict names. */
  tlogProof: string;
}

interface PublicVerdict {
  identifier: string;
  verification: { verification_status: string; can_assert_validity: boolean };
  artifact: { aep_hash: string; proof_record_hash: string; effect: string };
  integrity: { leaf_index: number };
}

/** All faults of a receipt, found by a client that trusts only its two pinned keys. */
export function receiptFaults(evidence: ReceiptEvidence, trust: OfflineTrust): string[] {
  const { receipt, verdict, exported, effect, tlogProof } = evidence;
  const status = effect === 'ADMIT' ? 'ADMITTED' : 'DENIED';
  const effects = [verdict.artifact.effect, exported.aep.decision.effect];
  const leafIn = (options: { receipt: Receipt } | { tlogProof: string }): number | undefined => {
    const result = verifyOffline(exported, trust, nativeCrypto, options);
    return result.decidable && result.included === true ? result.leafIndex : undefined;
  };
  const checks = {
    receipt_of_another_request:
      receipt.request_hash === documentHash(nativeSha256, evidence.request),
    wrong_effect: receipt.status === status && effects.every((one) => one === effect),
    not_valid_in_public:
      verdict.verification.verification_status === 'VALID' &&
      verdict.verification.can_assert_validity,
    public_of_another_proof:
      verdict.identifier === receipt.registry_proof_id &&
      verdict.artifact.aep_hash === exported.entry.aep_hash &&
      verdict.artifact.proof_record_hash === exported.entry.proof_record_hash,
    export_does_not_prove_receipt: leafIn({ receipt }) !== undefined,
    not_under_the_public_checkpoint: leafIn({ tlogProof }) === verdict.integrity.leaf_index,
  };
  return Object.entries(checks).flatMap(([fault, passed]) => (passed ? [] : [fault]));
}
