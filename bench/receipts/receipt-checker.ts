import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { openCheckpoint } from '#protocol/checkpoint';
import type { JsonValue } from '#protocol/json';
import type { BatchResult, BatchResults } from '#protocol/schemas/batch';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { inclusionFromTiles, tilePath } from '#protocol/tiles';
import { loadSigningKey, nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { SentBatch } from '../harness/batch-client.js';
import { engineHeaders } from '../harness/engine-api.js';
import { isDenied, type ItemSource, requestAt } from '../harness/items.js';
import { PROOF_PATH } from '../harness/public-api.js';
import type { BenchStack } from '../harness/stack.js';
import {
  type PinnedKeys,
  type PublicVerdict,
  type ReceiptEvidence,
  receiptFaults,
} from './receipt-faults.js';

export interface CheckedReceipts {
  checked: number;
  denied: number;
  /** One line per receipt with faults, or that could not be checked. */
  wrong: string[];
}

/** A client outside the service: two URLs, an API key and two pinned public keys. */
export interface Outsider {
  engineUrl: string;
  publicUrl: string;
  headers: Record<string, string>;
  trust: PinnedKeys;
}

export function outsiderOf({ engineUrl, publicUrl, registry }: BenchStack): Outsider {
  const aepKey = loadSigningKey(registry.keyFiles.aep).publicKey;
  const trust = { aepKey, logVkey: registry.vkeys.log, logOrigin: registry.origin };
  return { engineUrl, publicUrl, headers: engineHeaders(registry), trust };
}

/** A request and its receipt; `effect` is the policy's decision for that request. */
export type Admission = Pick<ReceiptEvidence, 'receipt' | 'request' | 'effect'>;

/** Checks receipts from outside, each against the request that was sent. */
export async function checkReceipts(
  outsider: Outsider,
  sent: readonly Admission[],
  publicWithinMs: number,
): Promise<CheckedReceipts> {
  const found: CheckedReceipts = { checked: 0, denied: 0, wrong: [] };
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

/** Checks random receipts of batches from outside while they are processed. */
export class ReceiptChecker {
  private readonly sent: SentBatch[] = [];
  private readonly found: CheckedReceipts = { checked: 0, denied: 0, wrong: [] };
  private readonly stopping = new AbortController();
  private readonly checking: Promise<void>;

  /** @param everyMs between checks, so that the checker is not a load of its own */
  constructor(
    private readonly outsider: Outsider,
    private readonly source: ItemSource,
    private readonly options: { everyMs: number; publicWithinMs: number },
  ) {
    this.checking = this.checkUntilStopped();
  }

  add(batch: SentBatch): void {
    this.sent.push(batch);
  }

  async stop(): Promise<CheckedReceipts> {
    this.stopping.abort();
    await this.checking;
    return this.found;
  }

  private async checkUntilStopped(): Promise<void> {
    const { found, options } = this;
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const batch = this.sent[randomInt(Math.max(1, this.sent.length))];
      if (batch !== undefined) {
        try {
          const page = await randomPage(this.outsider, batch);
          const sample = sampleOf(page.filter(({ state }) => state !== 'pending'));
          const admissions = sample.map((result) => admissionOf(this.source, batch, result));
          const more = await checkReceipts(this.outsider, admissions, options.publicWithinMs);
          found.checked += more.checked;
          found.denied += more.denied;
          found.wrong.push(...more.wrong);
        } catch (error) {
          found.wrong.push(`${batch.batchId}: ${String(error)}`);
        }
      }
      await sleep(options.everyMs, undefined, { signal }).catch(() => undefined);
    }
  }
}

const PAGE = 50;
const CHECKED_PER_PAGE = 4;

/** Random results, with a denial if the page has one, since few are denied. */
function sampleOf(results: readonly BatchResult[]): BatchResult[] {
  const start = randomInt(Math.max(1, results.length - CHECKED_PER_PAGE));
  const sample = results.slice(start, start + CHECKED_PER_PAGE);
  const denied = results.find(({ state }) => state === 'denied');
  return denied === undefined || sample.includes(denied) ? sample : [denied, ...sample.slice(1)];
}

/** @throws Error for a result without a receipt */
function admissionOf(source: ItemSource, batch: SentBatch, result: BatchResult): Admission {
  const n = batch.first + result.index;
  // A denial carries its receipt in its problem document.
  const denied = result.problem as { receipt?: Admission['receipt'] } | undefined;
  const receipt = result.receipt ?? denied?.receipt;
  if (receipt === undefined) throw new Error(`${result.state} without a receipt`);
  const request = requestAt(source, n) as unknown as JsonValue;
  return { receipt, request, effect: isDenied(n) ? 'DENY' : 'ADMIT' };
}

const LONGEST_PAGE = 1_000;

/** A random page of results, reached from page to page as clients do. */
async function randomPage(outsider: Outsider, batch: SentBatch): Promise<BatchResult[]> {
  const start = randomInt(Math.max(1, batch.items - PAGE));
  let cursor = '';
  for (let from = 0; ;) {
    const limit = from === start ? PAGE : Math.min(LONGEST_PAGE, start - from);
    const url = `${outsider.engineUrl}/v1/batches/${batch.batchId}/results?limit=${String(limit)}`;
    const response = await fetch(url + cursor, outsider);
    if (response.status !== 200) throw new Error(`results are answered ${String(response.status)}`);
    const page = (await response.json()) as BatchResults;
    if (from === start) return page.results;
    if (page.next_cursor === null) throw new Error(`results end before ${String(start)}`);
    cursor = `&cursor=${page.next_cursor}`;
    from += limit;
  }
}

/**
 * Fetches everything that the two APIs publish about a proof.
 *
 * @throws Error when the proof is not public, or cannot be exported, within `publicWithinMs`
 */
export async function gatherEvidence(
  { engineUrl, publicUrl, headers, trust }: Outsider,
  proofId: string,
  publicWithinMs: number,
): Promise<Omit<ReceiptEvidence, keyof Admission>> {
  const deadline = performance.now() + publicWithinMs;
  const exportUrl = `${engineUrl}/v1/proofs/${proofId}/export`;
  const verdict = await untilFound(publicUrl + PROOF_PATH + proofId, 404, deadline);
  const exported = await untilFound(exportUrl, 409, deadline, headers);
  const checkpoint = Buffer.from(await bytesAt(`${publicUrl}/log/checkpoint`)).toString();
  const { logVkey, logOrigin } = trust;
  const { size } = openCheckpoint(checkpoint, logVkey, logOrigin, nativeVerify, nativeSha256);
  const { leaf_index: leafIndex } = (verdict as PublicVerdict).integrity;
  const path = await inclusionFromTiles(nativeSha256, leafIndex, size, (level, index, width) =>
    bytesAt(`${publicUrl}/log/${tilePath(level, index, width)}`),
  );
  return { verdict: verdict as PublicVerdict, exported: exported as ProofExport, checkpoint, path };
}

const POLL_MS = 200;

/** Repeats the request while the answer has the status that means "not yet". */
async function untilFound(
  url: string,
  pending: number,
  deadline: number,
  headers: Record<string, string> = {},
): Promise<unknown> {
  for (;;) {
    const response = await fetch(url, { headers });
    const body: unknown = await response.json();
    if (response.status === 200) return body;
    if (response.status !== pending || performance.now() > deadline) {
      throw new Error(`${new URL(url).pathname} is answered ${String(response.status)}`);
    }
    await sleep(POLL_MS);
  }
}

async function bytesAt(url: string): Promise<Uint8Array> {
  const response = await fetch(url);
  if (response.status !== 200) {
    throw new Error(`${new URL(url).pathname} is answered ${String(response.status)}`);
  }
  return new Uint8Array(await response.arrayBuffer());
}
