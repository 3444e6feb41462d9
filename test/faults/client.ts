import { setTimeout as sleep } from 'node:timers/promises';
import { EXECUTE_PATH } from '#bench/singles/execute-load';
import { engineHeaders } from '#bench/service/headers';
import { requestAt } from '#bench/service/items';
import { Memory, type Batch, type Single } from './memory.js';

/** Longer than an engine waits for an admission. */
const TIMEOUT_MS = 12_000;
const AGENT_PATH = '/v1/agent/admissions';
const SINGLES_AT_ONCE = 400;
const BATCHES_AT_ONCE = 6;

export interface ClientOptions {
  engineUrl: string;
  apiKey: string;
  tenantId: string;
  /** A word that no other client has. */
  run: string;
  singlesPerSecond: number;
  batchesPerSecond: number;
  itemsPerBatch: number;
}

/** A tenant that sends at a steady rate whatever becomes of it, and remembers every answer. */
export class Client {
  memory = new Memory();
  /** Requests that were not acknowledged at once. */
  failed = 0;
  private next = 0;
  private stopping = new AbortController();
  private senders: Promise<void>[] = [];
  private readonly underWay = new Set<Promise<void>>();
  private goodAfter: { at: number; found: (when: number) => void } | null = null;

  constructor(private readonly options: ClientOptions) {}

  start(): void {
    this.stopping = new AbortController();
    const { singlesPerSecond, batchesPerSecond } = this.options;
    this.senders = [
      this.steadily(singlesPerSecond, SINGLES_AT_ONCE, () => this.sendNew(this.newSingle())),
      this.steadily(batchesPerSecond, BATCHES_AT_ONCE, () => this.sendNew(this.newBatch())),
    ];
  }

  /** Sends no more, and waits for what is under way. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.all(this.senders);
    await Promise.all(this.underWay);
  }

  /** When the first request was answered well that began after now, by `performance.now`. */
  nextGoodAnswer(): Promise<number> {
    return new Promise((found) => (this.goodAfter = { at: performance.now(), found }));
  }

  /** Sends what this client never sent before, once. */
  newSingle(): Single {
    const { tenantId, run } = this.options;
    const n = this.next++;
    const single: Single = {
      kind: 'single',
      path: n % 2 === 0 ? EXECUTE_PATH : AGENT_PATH,
      body: JSON.stringify(requestAt({ tenantId, run }, n)),
      receipt: null,
      proofId: null,
      acknowledged: false,
    };
    this.memory.asked.push(single);
    return single;
  }

  newBatch(items = this.options.itemsPerBatch): Batch {
    const { tenantId, run } = this.options;
    const lines = Array.from({ length: items }, () =>
      JSON.stringify(requestAt({ tenantId, run }, this.next++)),
    );
    const body = `${lines.join('\n')}\n`;
    const batch: Batch = {
      kind: 'batch',
      body,
      items,
      batchId: null,
      proofIds: [],
      acknowledged: false,
    };
    this.memory.asked.push(batch);
    return batch;
  }

  /** Whether it was acknowledged. */
  async send(one: Single | Batch): Promise<boolean> {
    try {
      return await (one.kind === 'single' ? this.sendSingle(one) : this.sendBatch(one));
    } catch {
      // No answer, or not all of one: nobody knows what became of it.
      return false;
    }
  }

  get headers(): Record<string, string> {
    return engineHeaders(this.options.apiKey, this.options.tenantId);
  }

  get engineUrl(): string {
    return this.options.engineUrl;
  }

  private async sendNew(one: Single | Batch): Promise<void> {
    const began = performance.now();
    const isGood = await this.send(one);
    if (!isGood) this.failed += 1;
    const { goodAfter } = this;
    if (!isGood || goodAfter === null || began < goodAfter.at) return;
    this.goodAfter = null;
    goodAfter.found(performance.now());
  }

  private async post(path: string, body: string, type: string): Promise<[number, string]> {
    const response = await fetch(this.options.engineUrl + path, {
      method: 'POST',
      headers: { ...this.headers, 'Content-Type': type },
      body,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    return [response.status, await response.text()];
  }

  private async sendSingle(single: Single): Promise<boolean> {
    const [status, text] = await this.post(single.path, single.body, 'application/json');
    if (status === 200) {
      this.memory.takeReceipt(single, text, proofIdOf(JSON.parse(text)));
      return true;
    }
    const answer = JSON.parse(text) as { code?: string; receipt?: unknown; proof_id?: string };
    if (status === 403 && answer.code === 'policy_denied') {
      // The problem around it names its request; the receipt is the promise.
      const receipt = JSON.stringify(answer.receipt);
      this.memory.takeReceipt(single, receipt, proofIdOf(answer.receipt));
      return true;
    }
    if (status === 202 && answer.proof_id !== undefined) {
      this.memory.takeProofId(single, answer.proof_id);
      return false;
    }
    this.judge(status, answer.code);
    return false;
  }

  private async sendBatch(batch: Batch): Promise<boolean> {
    const [status, text] = await this.post('/v1/batches', batch.body, 'application/x-ndjson');
    const answer = JSON.parse(text) as { code?: string; batch_id?: string };
    if (status === 202 && answer.batch_id !== undefined) {
      this.memory.takeBatch(batch, answer.batch_id);
      return true;
    }
    this.judge(status, answer.code);
    return false;
  }

  /** Trouble is 5xx or 429. Anything else would tell a client that it did something wrong. */
  private judge(status: number, code = ''): void {
    if (status >= 500 || status === 429) return;
    this.memory.wrong.push(`a good request was answered ${String(status)} ${code}`);
  }

  private async steadily(
    perSecond: number,
    atOnce: number,
    send: () => Promise<void>,
  ): Promise<void> {
    if (perSecond === 0) return;
    const { signal } = this.stopping;
    let count = 0;
    const began = performance.now();
    while (!signal.aborted) {
      const wait = began + (count * 1000) / perSecond - performance.now();
      if (wait > 0) await sleep(wait, undefined, { signal }).catch(() => null);
      if (signal.aborted) return;
      count += 1;
      if (this.underWay.size >= atOnce) continue;
      const sending: Promise<void> = send().finally(() => this.underWay.delete(sending));
      this.underWay.add(sending);
    }
  }
}

const proofIdOf = (receipt: unknown): string =>
  String((receipt as { registry_proof_id?: unknown }).registry_proof_id);
