import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { openCheckpoint } from '#protocol/checkpoint';
import type { JsonValue } from '#protocol/json';
import type { BatchResult, BatchResults } from '#protocol/schemas/batch';
import type { ExecuteReceipt } from '#protocol/schemas/execute';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { inclusionFromTiles, tilePath, type TileReader } from '#protocol/tiles';
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

export interface ReceiptCheckerOptions {
  outsider: Outsider;
  source: ItemSource;
  /** Milliseconds between checks, so that the checker is not a load of its own. */
  everyMs: number;
  publicWithinMs: number;
}

/** Checks random receipts of batches from outside while they are processed. */
export class ReceiptChecker {
  private readonly sent: SentBatch[] = [];
  private readonly found: CheckedReceipts = { checked: 0, denied: 0, wrong: [] };
  private readonly stopping = new AbortController();
  private readonly checking: Promise<void>;

  constructor(private readonly options: ReceiptCheckerOptions) {
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
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const batch = this.sent[randomInt(Math.max(1, this.sent.length))];
      if (batch !== undefined) await this.checkSomeOf(batch);
      await sleep(this.options.everyMs, undefined, { signal }).catch(() => undefined);
    }
  }

  private async checkSomeOf(batch: SentBatch): Promise<void> {
    const { outsider, source, publicWithinMs } = this.options;
    const { found } = this;
    try {
      const page = await randomPage(outsider, batch);
      for (const result of sampleOf(page.filter(({ state }) => state !== 'pending'))) {
        const n = batch.first + result.index;
        const faults = await checkResult(outsider, { source, n, result }, publicWithinMs);
        found.checked += 1;
        if (isDenied(n)) found.denied += 1;
        if (faults.length === 0) continue;
        found.wrong.push(`${batch.batchId}/${String(result.index)}: ${faults.join(', ')}`);
      }
    } catch (error) {
      found.wrong.push(`${batch.batchId}: ${messageOf(error)}`);
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

/** All faults of one result of a batch; `n` is its item's number in the source. */
export async function checkResult(
  outsider: Outsider,
  { source, n, result }: { source: ItemSource; n: number; result: BatchResult },
  publicWithinMs: number,
): Promise<string[]> {
  // A denial carries its receipt in its problem document.
  const denied = result.problem as { receipt?: ReceiptEvidence['receipt'] } | undefined;
  const receipt = result.receipt ?? denied?.receipt;
  if (receipt === undefined) return [`${result.state} without a receipt`];
  const request = requestAt(source, n) as unknown as JsonValue;
  const effect = isDenied(n) ? 'DENY' : 'ADMIT';
  return faultsOf(outsider, { receipt, request, effect }, publicWithinMs);
}

async function faultsOf(
  outsider: Outsider,
  expected: Pick<ReceiptEvidence, 'receipt' | 'request' | 'effect'>,
  publicWithinMs: number,
): Promise<string[]> {
  const proofId = expected.receipt.registry_proof_id;
  const evidence = await gatherEvidence(outsider, proofId, publicWithinMs);
  return receiptFaults({ ...evidence, ...expected }, outsider.trust);
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

const LONGEST_PAGE = 1_000;

/** A random page of results, reached from page to page as clients do. */
async function randomPage(outsider: Outsider, batch: SentBatch): Promise<BatchResult[]> {
  const { engineUrl, headers } = outsider;
  const start = randomInt(Math.max(1, batch.items - PAGE));
  let cursor: string | null = null;
  for (let from = 0; ;) {
    const limit = from === start ? PAGE : Math.min(LONGEST_PAGE, start - from);
    const query = new URLSearchParams({ limit: String(limit), ...(cursor !== null && { cursor }) });
    const url = `${engineUrl}/v1/batches/${batch.batchId}/results?${query.toString()}`;
    const response = await fetch(url, { headers });
    if (response.status !== 200) throw new Error(`results are answered ${String(response.status)}`);
    const page = (await response.json()) as BatchResults;
    if (from === start) return page.results;
    if (page.next_cursor === null) throw new Error(`results end before ${String(start)}`);
    cursor = page.next_cursor;
    from += limit;
  }
}

/** Checks receipts of admitted executions from outside, each against the request that was sent. */
export async function checkReceipts(
  outsider: Outsider,
  sent: readonly { receipt: ExecuteReceipt; request: JsonValue }[],
  publicWithinMs: number,
): Promise<CheckedReceipts> {
  const wrong: string[] = [];
  for (const { receipt, request } of sent) {
    const expected = { receipt, request, effect: 'ADMIT' as const };
    const faults = await faultsOf(outsider, expected, publicWithinMs).catch((error: unknown) => [
      messageOf(error),
    ]);
    if (faults.length > 0) wrong.push(`${receipt.registry_proof_id}: ${faults.join(', ')}`);
  }
  return { checked: sent.length, denied: 0, wrong };
}

/** A client outside the service: two URLs, an API key and two pinned public keys. */
export interface Outsider {
  engineUrl: string;
  publicUrl: string;
  /** For calls of the engine API. */
  headers: Record<string, string>;
  trust: PinnedKeys;
}

export function outsiderOf({
  engineUrl,
  publicUrl,
  registry,
}: Pick<BenchStack, 'engineUrl' | 'publicUrl' | 'registry'>): Outsider {
  return {
    engineUrl,
    publicUrl,
    headers: engineHeaders(registry),
    trust: {
      aepKey: loadSigningKey(registry.keyFiles.aep).publicKey,
      logVkey: registry.vkeys.log,
      logOrigin: registry.origin,
    },
  };
}

/**
 * Fetches everything that the two APIs publish about a proof.
 *
 * @throws Error when the proof is not public, or cannot be exported, within `publicWithinMs`
 */
export async function gatherEvidence(
  outsider: Outsider,
  proofId: string,
  publicWithinMs: number,
): Promise<Pick<ReceiptEvidence, 'verdict' | 'exported' | 'checkpoint' | 'path'>> {
  const { engineUrl, publicUrl, headers } = outsider;
  const deadline = performance.now() + publicWithinMs;
  const verdict = (await untilFound(publicUrl + PROOF_PATH + proofId, {
    pending: 404,
    deadline,
  })) as PublicVerdict;
  const exported = (await untilFound(`${engineUrl}/v1/proofs/${proofId}/export`, {
    headers,
    pending: 409,
    deadline,
  })) as ProofExport;
  const checkpoint = Buffer.from(await bytesAt(`${publicUrl}/log/checkpoint`)).toString();
  const { logVkey, logOrigin } = outsider.trust;
  const { size } = openCheckpoint(checkpoint, logVkey, logOrigin, nativeVerify, nativeSha256);
  const read: TileReader = (level, index, width) =>
    bytesAt(`${publicUrl}/log/${tilePath(level, index, width)}`);
  const path = await inclusionFromTiles(nativeSha256, verdict.integrity.leaf_index, size, read);
  return { verdict, exported, checkpoint, path };
}

const POLL_MS = 200;

/** Repeats the request while the status is the one that means "not yet". */
async function untilFound(
  url: string,
  {
    headers = {},
    pending,
    deadline,
  }: { headers?: Record<string, string>; pending: number; deadline: number },
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
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (response.status === 200) return bytes;
  throw new Error(`${new URL(url).pathname} is answered ${String(response.status)}`);
}
