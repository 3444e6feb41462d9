import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { v7 as uuidv7 } from 'uuid';
import { AGENT_PATH, engineHeaders, EXECUTE_PATH } from '#bench/harness/engine-api';
import { requestAt } from '#bench/harness/items';
import { newProofId } from '#protocol/ids';
import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import { ACT_KINDS, Acts, type ActRates } from './next-acts.js';
import { Records, type Batch, type Single } from './records.js';
import { until } from './pace.js';

/** Longer than an engine waits for an admission. */
const TIMEOUT_MS = 12_000;
const SINGLES_AT_ONCE = 400;
const BATCHES_AT_ONCE = 6;
const ACTS_AT_ONCE = 4;
const ACKNOWLEDGED_MS = 20_000;

export interface ClientOptions {
  /** Requests alternate between these engines; a repeated request goes to the next engine. */
  engineUrls: readonly string[];
  apiKey: string;
  tenantId: string;
  /** Database URL of the role svc_erase. */
  eraseUrl: string;
  /** A name of this client, which no other client has. */
  run: string;
  singlesPerSecond: number;
  batchesPerSecond: number;
  itemsPerBatch: number;
  actsPerSecond: ActRates;
}

/** A tenant that sends at a fixed rate, whatever the outcomes, and records every answer. */
export class Client {
  records = new Records();
  readonly acts: Acts;
  /** Number of requests without an immediate acknowledgement, for each engine. */
  readonly failedAt: number[];
  private next = 0;
  private singles = 0;
  private batches = 0;
  private stopping = new AbortController();
  private senders: Promise<void>[] = [];
  private readonly inFlight = new Set<Promise<unknown>>();
  private good: { at: number; missing: Set<number>; found: (when: number) => void } | null = null;

  constructor(private readonly options: ClientOptions) {
    this.failedAt = options.engineUrls.map(() => 0);
    this.acts = new Acts(this, options.eraseUrl);
  }

  get failed(): number {
    return this.failedAt.reduce((sum, one) => sum + one, 0);
  }

  start(): void {
    this.stopping = new AbortController();
    // One listener per sender: Node warns about more listeners than this maximum.
    setMaxListeners(ACT_KINDS.length + 2, this.stopping.signal);
    const { singlesPerSecond, batchesPerSecond, actsPerSecond } = this.options;
    this.senders = [
      this.steadily(singlesPerSecond, SINGLES_AT_ONCE, () => this.sendNew(this.newSingle())),
      this.steadily(batchesPerSecond, BATCHES_AT_ONCE, () => this.sendNew(this.newBatch())),
      ...ACT_KINDS.map((kind) =>
        this.steadily(actsPerSecond[kind], ACTS_AT_ONCE, () => this.acts.sendNew(kind)),
      ),
    ];
  }

  /** Stops sending and waits for requests in flight. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.all(this.senders);
    await Promise.all(this.inFlight);
  }

  /** Resolves with the time when each engine has acknowledged a request sent after the call. */
  nextSuccess(): Promise<number> {
    const missing = new Set(this.options.engineUrls.keys());
    return new Promise((found) => (this.good = { at: performance.now(), missing, found }));
  }

  /** A request with a new deduplication key. */
  newSingle(): Single {
    const item = this.next++;
    const { tenantId, run } = this.options;
    const path = item % 2 === 0 ? EXECUTE_PATH : AGENT_PATH;
    return this.single(path, requestAt({ tenantId, run }, item));
  }

  newRun(): { member: Single; close: Single } {
    const { tenantId, run } = this.options;
    const agents = 'without facts' as const;
    const envelope = requestAt({ tenantId, run, agents }, this.next++) as AgentEnvelope;
    const { agent, nonce, requested_at, schema_version, tenant_id } = envelope;
    const id = newProofId(uuidv7());
    const member = this.single(AGENT_PATH, { ...envelope, run: { id, seq: 0 } });
    const shared = { agent, nonce, requested_at, schema_version, tenant_id };
    const close = { ...shared, kind: 'close' as const, run: { id, seq: 1 } };
    return { member, close: this.single(AGENT_PATH, close) };
  }

  private single(path: string, body: ExecuteRequest | AgentEnvelope): Single {
    const single: Single = {
      kind: 'single',
      n: this.singles++,
      attempts: 0,
      path,
      body: JSON.stringify(body),
      receipt: null,
      proofId: null,
      acknowledged: false,
      revoked: new Set(),
      isErased: false,
      ends: false,
      open: 0,
      inPackage: false,
      isReport: 'kind' in body && body.kind !== 'admission',
    };
    this.records.requests.push(single);
    return single;
  }

  newBatch(items = this.options.itemsPerBatch): Batch {
    const { tenantId, run } = this.options;
    const lines = Array.from({ length: items }, () =>
      JSON.stringify(requestAt({ tenantId, run }, this.next++)),
    );
    const batch: Batch = {
      kind: 'batch',
      n: this.batches++,
      attempts: 0,
      body: `${lines.join('\n')}\n`,
      items,
      batchId: null,
      proofIds: [],
      acknowledged: false,
    };
    this.records.requests.push(batch);
    return batch;
  }

  /** Sends a request and returns whether it was acknowledged. */
  async send(one: Single | Batch): Promise<boolean> {
    const url = this.urlFor(one);
    one.attempts += 1;
    try {
      return await (one.kind === 'single' ? this.sendSingle(one, url) : this.sendBatch(one, url));
    } catch {
      // The response was incomplete, so the outcome is unknown.
      return false;
    }
  }

  async sendUntilAcknowledged(one: Single | Batch): Promise<void> {
    if (!(await until(() => this.send(one), ACKNOWLEDGED_MS, 100))) {
      throw new Error('the request was not acknowledged');
    }
  }

  get tenantId(): string {
    return this.options.tenantId;
  }

  get headers(): Record<string, string> {
    return engineHeaders(this.options);
  }

  /** The engine of the next attempt: attempts alternate. */
  urlFor(one: { n: number; attempts: number }): string {
    return this.options.engineUrls[this.engineOf(one)] ?? '';
  }

  async call(
    url: string,
    method: string,
    body?: string,
    { headers = this.headers, type = 'application/json' } = {},
  ): Promise<[status: number, text: string]> {
    const response = await fetch(url, {
      method,
      headers: { ...headers, ...(body !== undefined && { 'Content-Type': type }) },
      ...(body !== undefined && { body }),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    return [response.status, await response.text()];
  }

  /** Records a status that no fault explains: anything but 503 and 429. */
  checkResponse(status: number, text: string, what = 'a good request'): void {
    if (status === 503 || status === 429) return;
    const { code = '' } = JSON.parse(text || '{}') as { code?: string };
    this.records.wrong.push(`${what} was answered ${String(status)} ${code}`);
  }

  /** Consecutive requests of one type go to different engines. */
  private engineOf({ n, attempts }: { n: number; attempts: number }): number {
    return ((n >> 1) + attempts) % this.options.engineUrls.length;
  }

  private async sendNew(one: Single | Batch): Promise<void> {
    const began = performance.now();
    const engine = this.engineOf(one);
    const isGood = await this.send(one);
    if (!isGood) this.failedAt[engine] = (this.failedAt[engine] ?? 0) + 1;
    const { good } = this;
    if (!isGood || good === null || began < good.at) return;
    good.missing.delete(engine);
    if (good.missing.size > 0) return;
    this.good = null;
    good.found(performance.now());
  }

  private async sendSingle(single: Single, url: string): Promise<boolean> {
    const [status, text] = await this.call(url + single.path, 'POST', single.body);
    if (status === 200) {
      this.records.recordReceipt(single, text, proofIdOf(JSON.parse(text)), true);
      return true;
    }
    const answer = JSON.parse(text) as { code?: string; receipt?: unknown; proof_id?: string };
    if (status === 403 && answer.code === 'policy_denied') {
      // The problem document differs per request; its receipt does not.
      const receipt = JSON.stringify(answer.receipt);
      this.records.recordReceipt(single, receipt, proofIdOf(answer.receipt), false);
      return true;
    }
    if (status === 202 && answer.proof_id !== undefined) {
      this.records.recordProofId(single, answer.proof_id);
      return false;
    }
    this.checkResponse(status, text);
    return false;
  }

  private async sendBatch(batch: Batch, url: string): Promise<boolean> {
    const type = 'application/x-ndjson';
    const [status, text] = await this.call(`${url}/v1/batches`, 'POST', batch.body, { type });
    const answer = JSON.parse(text) as { batch_id?: string };
    if (status === 202 && answer.batch_id !== undefined) {
      this.records.recordBatch(batch, answer.batch_id);
      return true;
    }
    this.checkResponse(status, text);
    return false;
  }

  private async steadily(
    perSecond: number,
    atOnce: number,
    send: () => Promise<unknown>,
  ): Promise<void> {
    if (perSecond === 0) return;
    const { signal } = this.stopping;
    const own = new Set<Promise<unknown>>();
    let count = 0;
    const began = performance.now();
    while (!signal.aborted) {
      const wait = began + (count * 1000) / perSecond - performance.now();
      if (wait > 0) await sleep(wait, undefined, { signal }).catch(() => null);
      if (signal.aborted) return;
      count += 1;
      if (own.size >= atOnce) continue;
      const sending: Promise<unknown> = send().finally(() => {
        own.delete(sending);
        this.inFlight.delete(sending);
      });
      own.add(sending);
      this.inFlight.add(sending);
    }
  }
}

const proofIdOf = (receipt: unknown): string =>
  String((receipt as { registry_proof_id?: unknown }).registry_proof_id);
