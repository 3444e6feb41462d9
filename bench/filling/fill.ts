import { randomBytes } from 'node:crypto';
import { newUuidHex } from '#api/engine/http/new-id';
import { fromHex, utf8 } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Pool } from '#sql/db/transaction';
import { acceptIntake, type IntakeItem } from '#sql/admissions/accept';
import { pendingOlderThan } from '#sql/admissions/outcomes';
import type { AdmitContext } from '#workers/admit/context';
import { processAdmissions } from '#workers/admit/process';
import { requestAt, type ItemSource } from '../service/items.js';

/** Who asks, and what the engine and a worker would work with. */
export interface FillContext {
  engine: Pool;
  admit: AdmitContext;
  tenant: { tenantId: string; tenantNo: number; keyNo: number };
}

export interface FillOptions {
  count: number;
  /** Admissions in one intake transaction, one policy round and one append. */
  group: number;
  /** Groups in work beside each other, so that one computes while another waits for the database. */
  lanes: number;
  signal: AbortSignal;
  /** After each group: how many, and how long its two halves took, in milliseconds. */
  onGroup: (count: number, took: { acceptMs: number; settleMs: number }) => void;
}

/** Admits `count` executions and envelopes: accepted as by the engine, settled as by a worker. */
export async function fill(context: FillContext, options: FillOptions): Promise<void> {
  const { engine, admit, tenant } = context;
  const { group, lanes, signal, onGroup } = options;
  const source = { tenantId: tenant.tenantId, run: randomBytes(6).toString('hex') };
  let begun = 0;
  const lane = async (): Promise<void> => {
    while (begun < options.count && !signal.aborted) {
      const first = begun;
      begun = Math.min(begun + group, options.count);
      const items = Array.from({ length: begun - first }, (_, i) =>
        intakeItem(tenant, source, first + i),
      );
      const began = performance.now();
      const outcomes = await acceptIntake(engine, items);
      const accepted = performance.now();
      const ids = outcomes.flatMap((one) => (one.outcome === 'accepted' ? [one.proofId] : []));
      if (ids.length !== items.length) throw new Error('an admission was made twice');
      await processAdmissions(admit, ids);
      onGroup(ids.length, { acceptMs: accepted - began, settleMs: performance.now() - accepted });
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

/** What the engine hands over for the `n`th request of this tenant. */
function intakeItem(
  { tenantNo, keyNo }: FillContext['tenant'],
  source: ItemSource,
  n: number,
): IntakeItem {
  const request = requestAt(source, n);
  return {
    proofId: newUuidHex(),
    tenantNo,
    lane: request.schema_version === SCHEMA.agentEnvelope ? 2 : 1,
    request: utf8(JSON.stringify(request)),
    requestHash: fromHex(documentHash(nativeSha256, { ...request })),
    salt: randomBytes(32),
    fixtureRef: null,
    idempotencyKey: null,
    keyNo,
  };
}

const SWEPT_AT_ONCE = 256;

/** Settles what an earlier run accepted and did not come to settle. Returns how many. */
export async function settleLeftovers(admit: AdmitContext): Promise<number> {
  let settled = 0;
  for (;;) {
    const left = await pendingOlderThan(admit.sql, 0, SWEPT_AT_ONCE);
    if (left.length === 0) return settled;
    await processAdmissions(
      admit,
      left.map(({ proofId }) => proofId),
    );
    settled += left.length;
  }
}
