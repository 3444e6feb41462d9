import { expect } from 'vitest';
import type { Batch, BatchResult } from '#protocol/schemas/batch';
import { eventually, type RunningStack } from '../fixtures/stack.js';

export interface Answer {
  intent: string;
  status: number;
  /** From the receipt or the 202. */
  id: string | undefined;
  code: string | undefined;
}

let counter = 0;

/** The tenant of a stack whose processes are killed. */
export class StackClient {
  constructor(private readonly stack: RunningStack) {}

  async execute(
    intent = `fault-${String(++counter)}`,
    action = 'BOOK_RESERVATION',
  ): Promise<Answer> {
    const response = await this.stack.execute({ intent_id: intent, action });
    const { code, ...body } = (await response.json()) as Record<string, string>;
    const id = body['registry_proof_id'] ?? body['proof_id'];
    return { intent, status: response.status, id, code };
  }

  executeMany(count: number): Promise<Answer[]> {
    return Promise.all(Array.from({ length: count }, () => this.execute()));
  }

  /** Sends each execution again until it returns its receipt, which has the id of earlier answers. */
  async proofIdsOf(answers: readonly Answer[]): Promise<string[]> {
    for (const { status } of answers) expect([200, 202, 503]).toContain(status);
    const ids: string[] = [];
    for (const { intent, id } of answers) {
      const receipt = await this.receiptOf(intent);
      if (id !== undefined) expect(receipt.id).toBe(id);
      ids.push(receipt.id ?? '');
    }
    expect(new Set(ids).size).toBe(answers.length);
    return ids;
  }

  receiptOf(intent?: string): Promise<Answer> {
    return eventually(
      async () => {
        const answer = await this.execute(intent).catch(() => null);
        return answer?.status === 200 ? answer : null;
      },
      40_000,
      `the receipt of ${intent ?? 'an execution'}`,
    );
  }

  newBatch(count: number): string {
    return JSON.stringify(
      Array.from({ length: count }, () => ({
        schema_version: 'svc.runtime.intent_execute.request/1.0',
        tenant_id: this.stack.tenantId,
        intent_id: `batch-fault-${String(++counter)}`,
        action: 'BOOK_RESERVATION',
      })),
    );
  }

  sendBatch(body: string): Promise<Response | null> {
    const { headers } = this;
    const url = `${this.stack.engineUrl}/v1/batches`;
    return fetch(url, { method: 'POST', headers, body }).catch(() => null);
  }

  /** Sends a batch until a running engine accepts it. */
  acceptBatch(body: string): Promise<{ id: string; isReplayed: boolean }> {
    return eventually(
      async () => {
        const response = await this.sendBatch(body);
        if (response?.status !== 202) return null;
        const { batch_id: id } = (await response.json()) as Batch;
        return { id, isReplayed: response.headers.get('idempotent-replayed') === 'true' };
      },
      40_000,
      'the acceptance of a batch',
    );
  }

  /** Waits until more than `count` items of batches are admitted. */
  async untilAdmitted(count: number): Promise<void> {
    const sql = this.stack.superuser();
    const admitted = async (): Promise<true | null> => {
      const [row] = await sql<{ n: number }[]>`
        select sum(admitted)::int as n from svc.batch_progress`;
      return (row?.n ?? 0) > count || null;
    };
    await eventually(admitted, 60_000, `${String(count)} admitted items`);
  }

  /** Waits for the end of a batch whose items are all admitted; returns their proof ids. */
  async batchProofIds(id: string): Promise<string[]> {
    const { headers } = this;
    const url = `${this.stack.engineUrl}/v1/batches/${id}`;
    const { counts } = await eventually(
      async () => {
        const response = await fetch(url, { headers }).catch(() => null);
        const batch = response?.status === 200 ? ((await response.json()) as Batch) : null;
        return batch?.state === 'completed' ? batch : null;
      },
      90_000,
      'the end of a batch',
    );
    const lines = await fetch(`${url}/results`, {
      headers: { ...headers, accept: 'application/x-ndjson' },
    });
    const results = (await lines.text())
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as BatchResult);
    expect(results.map(({ index, state }) => `${String(index)} ${state}`)).toEqual(
      Array.from({ length: counts.total }, (_, index) => `${String(index)} admitted`),
    );
    const ids = results.map(({ proof_id: proofId }) => proofId ?? '');
    expect(new Set(ids).size).toBe(counts.total);
    return ids;
  }

  private get headers(): Record<string, string> {
    return {
      'content-type': 'application/json',
      'x-svc-api-key': this.stack.apiKey,
      'x-svc-tenant-id': this.stack.tenantId,
    };
  }
}

/** Twenty of a batch's proofs: `expectNothingLost` checks the whole log. */
export const sampleOf = (ids: string[]): string[] =>
  ids.filter((_, at) => at % Math.ceil(ids.length / 20) === 0);
