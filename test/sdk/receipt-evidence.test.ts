import { describe, expect, vi } from 'vitest';
import {
  executeIntentHttp,
  isDenial,
  readReceiptEvidenceHttp,
  receiptEvidenceOf,
  verifyOffline,
  type EngineOptions,
  type ReceiptEvidenceOptions,
} from '#sdk/index';
import { testKey } from '../fixtures/public-log.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, sdkTest, type SdkWorld } from '../fixtures/sdk-world.js';

const it = sdkTest();

const pinsOf = ({ registry, log }: SdkWorld) => ({
  aepKeys: [registry.admit.signer.publicKey],
  log: { vkey: log.vkey, origin: log.origin },
});

/** Options of a caller who stores evidence, and the stored evidence. */
function keeper(world: SdkWorld, more: Partial<ReceiptEvidenceOptions> = {}) {
  const stored = vi.fn<NonNullable<ReceiptEvidenceOptions['store']>>();
  const failed = vi.fn<ReceiptEvidenceOptions['onError']>();
  const receiptEvidence = { pins: pinsOf(world), store: stored, onError: failed, ...more };
  const options: EngineOptions = { ...world.shaky, receiptEvidence };
  return { options, stored, failed };
}

const requested = ({ network }: SdkWorld): string[] =>
  network.seen.map(({ method, path }) => `${method} ${path.split('/').at(-1) ?? ''}`);

describe('evidence of a receipt', () => {
  it('is fetched by default, and verifies under pinned keys', async ({ world }) => {
    const options = { ...world.shaky };
    delete options.receiptEvidence;
    const receipt = await executeIntentHttp(options, intent());
    const { evidence, verification } = await receiptEvidenceOf(receipt);
    expect(verification).toBeNull();
    expect(evidence.tlog_proof).toBeNull();
    expect(verifyOffline(evidence, pinsOf(world), { receipt })).toMatchObject({ authentic: true });
    expect(requested(world)).toEqual(['POST execute', 'GET receipt-evidence']);
  });

  it('is stored once it verifies, for admissions and denials', async ({ world }) => {
    const { options, stored, failed } = keeper(world);
    const receipt = await executeIntentHttp(options, intent());
    const { evidence, verification } = await receiptEvidenceOf(receipt);
    expect(verification).toMatchObject({ authentic: true, status: 'unknown' });
    expect(stored.mock.calls).toEqual([[evidence, receipt]]);
    const denied = executeIntentHttp(options, intent({ action: 'DELETE_AUDIT_LOG' }));
    const error = await sdkError(denied, 'policy_denied');
    if (!isDenial(error)) throw error;
    await receiptEvidenceOf(error.denial.receipt);
    expect(stored.mock.lastCall?.[1]).toBe(error.denial.receipt);

    await world.log.publish();
    const later = await readReceiptEvidenceHttp(options, receipt);
    expect(later.verification).toMatchObject({ included: true });
    expect(stored.mock.lastCall).toEqual([later.evidence, receipt]);
    expect(failed).not.toHaveBeenCalled();
  });

  it('does not delay or withhold the receipt when fetching the evidence fails', async ({
    world,
  }) => {
    const stopping = new AbortController();
    const { options, stored, failed } = keeper(world);
    world.network.faults.push({ kind: 'changed', change: (body) => body }, { kind: 'silent' });
    const receipt = await executeIntentHttp({ ...options, signal: stopping.signal }, intent());
    expect(receipt.status).toBe('ADMITTED');
    stopping.abort();
    const error = await sdkError(receiptEvidenceOf(receipt), 'aborted');
    await vi.waitFor(() => expect(failed.mock.calls).toEqual([[error, receipt]]));
    expect(stored).not.toHaveBeenCalled();
    await readReceiptEvidenceHttp(options, receipt);
    expect(stored).toHaveBeenCalledOnce();
  });

  it('is rejected when it belongs to a different receipt or is signed by a key that is not pinned', async ({
    world,
  }) => {
    const [one, other] = await Promise.all(
      [intent(), intent()].map((input) => executeIntentHttp(world.options, input)),
    );
    const { evidence } = await readReceiptEvidenceHttp(world.options, other!);
    const swap = { kind: 'changed', change: () => JSON.stringify(evidence) } as const;
    const unpinned = { ...world.shaky, receiptEvidence: false } as const;
    const { options, stored } = keeper(world);
    for (const caller of [unpinned, options]) {
      world.network.faults.push(swap);
      const { fault } = await sdkError(readReceiptEvidenceHttp(caller, one!), 'evidence_rejected');
      expect(fault).toBe('receipt_mismatch');
    }
    const strangers = keeper(world, { pins: { aepKeys: [testKey().raw] } });
    const error = await sdkError(
      readReceiptEvidenceHttp(strangers.options, one!),
      'evidence_rejected',
    );
    expect(error.message).toContain('signing_key_not_pinned');
    expect(stored).not.toHaveBeenCalled();
  });

  it('requires a callback for errors, and usable pins', async ({ world }) => {
    const none = { ...world.shaky, receiptEvidence: {} as ReceiptEvidenceOptions };
    const { pointer } = await sdkError(executeIntentHttp(none, intent()), 'invalid_input');
    expect(pointer).toBe('/receiptEvidence/onError');
    const unusable = keeper(world, { pins: { aepKeys: ['x'] } });
    await sdkError(executeIntentHttp(unusable.options, intent()), 'unusable_pin');
    expect(world.network.seen).toEqual([]);
  });
});
