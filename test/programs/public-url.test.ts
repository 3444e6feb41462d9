import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPdf } from '../fixtures/pdf.js';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';

/** Exports as soon as there is a verdict and a checkpoint to export. */
function paperOf(stack: RunningStack, proofId: string): Promise<Uint8Array> {
  const attempt = async (): Promise<Uint8Array | null> => {
    const response = await fetch(`${stack.engineUrl}/v1/proofs/${proofId}/export?format=pdf`, {
      headers: { 'x-svc-api-key': stack.apiKey, 'x-svc-tenant-id': stack.tenantId },
    });
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (response.status === 200) return bytes;
    expect(response.status).toBe(409);
    return null;
  };
  return eventually(attempt, 30_000, 'the paper');
}

describe('npm start', () => {
  let stack: RunningStack;
  beforeAll(async () => {
    stack = await startStack();
  }, 90_000);
  afterAll(() => stack.destroy());

  it('links exported documents to its own public API, whatever its port', async () => {
    const admitted = await stack.execute({ intent_id: 'paper', action: 'BOOK_RESERVATION' });
    const { registry_proof_id: id } = (await admitted.json()) as { registry_proof_id: string };
    const { links } = await readPdf(await paperOf(stack, id));
    expect(links).toEqual([`${stack.publicUrl}/api/public/verify/proof/${id}`]);
    const lookup = await eventually(
      async () => {
        const response = await fetch(links[0]!);
        const body = await response.json();
        return response.status === 200 ? body : null;
      },
      15_000,
      'the lookup',
    );
    expect(lookup).toMatchObject({ verification: { verification_status: 'VALID' } });
  }, 60_000);
});
