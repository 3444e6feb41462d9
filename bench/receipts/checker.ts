import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { JsonValue } from '#protocol/json';
import type { BatchResult, BatchResults } from '#protocol/schemas/batch';
import type { SentBatch } from '../batches/batch-client-task.js';
import { isDenied, requestAt, type ItemSource } from '../service/items.js';
import { gatherEvidence, type Outside } from './receipt-evidence.js';
import { receiptFaults, type ReceiptEvidence } from './receipt-faults.js';

export interface Checked {
  checked: number;
  denied: number;
  /** What was found wrong, a line each. */
  wrong: string[];
}

export interface CheckerOptions {
  outside: Outside;
  source: ItemSource;
  /** Milliseconds from a few receipts to the next: what keeps it from being a load of its own. */
  everyMs: number;
  /** How long a receipt may take to be public. */
  patienceMs: number;
}

/** Results of the page that is looked at, and how many of them are checked. */
const PAGE = 50;
const OF_A_PAGE = 4;

/** Checks random receipts of batches that are being worked, from the outside, until it is stopped. */
export class Checker {
  private readonly sent: SentBatch[] = [];
  private readonly found: Checked = { checked: 0, denied: 0, wrong: [] };
  private readonly stopping = new AbortController();
  private readonly checking: Promise<void>;

  constructor(private readonly options: CheckerOptions) {
    this.checking = this.checkUntilStopped();
  }

  /** A batch that was accepted: its receipts are among those that are checked from now on. */
  add(batch: SentBatch): void {
    this.sent.push(batch);
  }

  async stop(): Promise<Checked> {
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
    const { outside } = this.options;
    try {
      const page = await randomPage(outside, batch);
      const settled = page.filter(({ state }) => state !== 'pending');
      for (const result of someOf(settled)) await this.check(batch, result);
    } catch (error) {
      // What cannot be checked is not right.
      const said = error instanceof Error ? error.message : String(error);
      this.found.wrong.push(`${batch.batchId}: ${said}`);
    }
  }

  private async check(batch: SentBatch, result: BatchResult): Promise<void> {
    const { outside, source, patienceMs } = this.options;
    const n = batch.first + result.index;
    const faults = await checkResult(outside, { source, n, result }, patienceMs);
    this.found.checked += 1;
    if (isDenied(n)) this.found.denied += 1;
    if (faults.length === 0) return;
    this.found.wrong.push(`${batch.batchId}/${String(result.index)}: ${faults.join(', ')}`);
  }
}

/** Some at random; a denial among them where there is one, since few are. */
function someOf(settled: readonly BatchResult[]): BatchResult[] {
  const start = randomInt(Math.max(1, settled.length - OF_A_PAGE));
  const some = settled.slice(start, start + OF_A_PAGE);
  const denied = settled.find(({ state }) => state === 'denied');
  return denied === undefined || some.includes(denied) ? some : [denied, ...some.slice(1)];
}

/** Everything that is wrong about one result of a batch; `n` is which item of the source it is of. */
export async function checkResult(
  outside: Outside,
  { source, n, result }: { source: ItemSource; n: number; result: BatchResult },
  patienceMs: number,
): Promise<string[]> {
  const receipt = receiptOf(result);
  if (receipt === null) return [`it is ${result.state}, and has no receipt`];
  const found = await gatherEvidence(outside, receipt.registry_proof_id, patienceMs);
  const request = requestAt(source, n) as unknown as JsonValue;
  const effect = isDenied(n) ? 'DENY' : 'ADMIT';
  return receiptFaults({ ...found, request, effect, receipt }, outside.trust);
}

/** A denial carries its receipt within its problem. */
function receiptOf({ receipt, problem }: BatchResult): ReceiptEvidence['receipt'] | null {
  const denied = problem as { receipt?: ReceiptEvidence['receipt'] } | undefined;
  return receipt ?? denied?.receipt ?? null;
}

const LONGEST_PAGE = 1_000;

/** A random page of results, which is reached as clients reach it: from page to page. */
async function randomPage(outside: Outside, batch: SentBatch): Promise<BatchResult[]> {
  const { engineUrl, headers } = outside;
  const start = randomInt(Math.max(1, batch.items - PAGE));
  let cursor: string | null = null;
  for (let from = 0; ;) {
    // A long way is gone in long steps; only the page that is looked at is a short one.
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
