import { parseEntry } from '#protocol/entries';
import { keyStateAt } from '#protocol/key-state';
import { nativeSha256 } from '#runtime/crypto/node';
import { parentFault } from '#policy/parent';
import { claimPending, gatesOf, insertProofs, refuse, type BatchRef } from '#sql/admissions/append';
import { countSettled, type BatchOutcomeCount } from '#sql/batches/chunks';
import { pipeline, type Transaction, transaction } from '#sql/db/transaction';
import { appendLocked, keyEntries, lockHead } from '#sql/log/log';
import { parentsOf } from '#sql/admissions/parents';
import {
  type AdmitContext,
  type AdmitMetrics,
  type Settled,
  SigningKeyInactiveError,
  NO_METRICS,
} from './context.js';
import type { Prepared } from './prepare.js';

/** Outcome of a group. It leaves out admissions that another worker committed first. */
export interface Appended {
  admitted: readonly Prepared[];
  refusals: readonly { proofId: string; code: string }[];
  /** The batch of each admission; null outside a batch. */
  shares: ReadonlyMap<string, BatchRef | null>;
}

const NOTHING: Appended = { admitted: [], refusals: [], shares: new Map() };

/**
 * Appends prepared proofs in one transaction. Under the append lock it claims pending admissions,
 * checks every gate again, and assigns leaf indexes. The proofs are committed when it returns;
 * nothing is written when it throws.
 */
export async function append(context: AdmitContext, prepared: Prepared[]): Promise<Appended> {
  const metrics = context.metrics ?? NO_METRICS;
  let commitStart = 0;
  const appended = await transaction(context.sql, async (tx) => {
    const result = await appendIn(tx, context, prepared, metrics);
    commitStart = performance.now();
    return result;
  });
  // COMMIT POINT: the proofs are durable and may be answered. A crash before it leaves the
  // admissions pending; a crash after it needs no recovery.
  metrics.took('commit', performance.now() - commitStart);
  metrics.committed(settledBy(appended));
  return appended;
}

function settledBy({ admitted, refusals }: Appended): Settled {
  const denied = admitted.reduce((n, { effect }) => (effect === 'DENY' ? n + 1 : n), 0);
  return { admitted: admitted.length - denied, denied, refused: refusals.length };
}

async function appendIn(
  tx: Transaction,
  context: AdmitContext,
  prepared: Prepared[],
  metrics: AdmitMetrics,
): Promise<Appended> {
  const began = performance.now();
  const size = await lockHead(tx);
  const locked = performance.now();
  metrics.took('lock', locked - began);
  const ids = prepared.map((item) => item.intake.proofId);
  // READ COMMITTED: each statement sees every earlier append, and the lock excludes new ones.
  const [claimed, keys, gates] = await pipeline(
    claimPending(tx, ids),
    keyEntries(tx),
    gatesOf(tx, ids),
  );
  const open = prepared.filter((item) => claimed.has(item.intake.proofId));
  if (open.length === 0) return NOTHING;

  const key = keyStateAt(
    keys.map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) })),
    context.keyId,
    size,
    size,
  );
  if (key.state !== 'active') {
    throw new SigningKeyInactiveError(
      `AEP key ${context.keyId} is ${key.state} at index ${size}: activate it with admin, or give this worker the active one`,
    );
  }

  const faults = await parentFaults(tx, open);
  const refusals: { proofId: string; code: string; detail: string }[] = [];
  const admitted: Prepared[] = [];
  for (const item of open) {
    const { proofId } = item.intake;
    const gate = gates.get(proofId);
    if (context.laneLocked || gate?.laneOpen !== true) {
      refusals.push({
        proofId,
        code: 'lane_locked',
        detail: 'admissions were paused before signing',
      });
    } else if (!gate.keyHolds) {
      const detail = 'the API key was revoked before signing';
      refusals.push({ proofId, code: 'api_key_revoked', detail });
    } else if (!gate.allowlisted) {
      const detail = 'the tenant left the allowlist before signing';
      refusals.push({ proofId, code: 'tenant_not_allowlisted', detail });
    } else if (!gate.pinsHold) {
      const detail = 'the intake pins an environment, a time or a policy that was not in force';
      refusals.push({ proofId, code: 'processing_failed', detail });
    } else if (faults.has(proofId)) {
      const detail = `${faults.get(proofId) ?? ''}: the engine accepted a parent that the policy forbids`;
      refusals.push({ proofId, code: 'processing_failed', detail });
    } else {
      admitted.push(item);
    }
  }
  await refuse(tx, refusals);
  await pipeline(
    insertProofs(
      tx,
      admitted.map((item, offset) => ({
        proofId: item.intake.proofId,
        tenantNo: item.intake.tenantNo,
        lane: item.intake.lane,
        isOutcome: item.subject.kind === 'outcome',
        action: 'action' in item.subject ? item.subject.action : null,
        intentId: 'intent_id' in item.subject ? item.subject.intent_id : null,
        leafIndex: size + offset,
        effect: item.effect,
        environment: item.intake.environment,
        keyId: context.keyId,
        packedAep: item.packedAep,
        signature: item.signature,
        input: item.input,
      })),
    ),
    appendLocked(
      tx,
      nativeSha256,
      size,
      admitted.map((item) => ({
        kind: 'proof',
        proofId: item.intake.proofId,
        at: item.intake.acceptedAt,
        aepHash: item.aepHash,
        proofRecordHash: item.proofRecordHash,
      })),
    ),
  );
  const countOf = (proofId: string, became: BatchOutcomeCount['became']): BatchOutcomeCount[] => {
    const share = claimed.get(proofId) ?? null;
    return share === null ? [] : [{ share, became }];
  };
  await countSettled(tx, [
    ...refusals.flatMap(({ proofId }) => countOf(proofId, 'refused')),
    ...admitted.flatMap(({ intake, effect }) =>
      countOf(intake.proofId, effect === 'ADMIT' ? 'admitted' : 'denied'),
    ),
  ]);
  metrics.took('append', performance.now() - locked);
  return { admitted, refusals, shares: claimed };
}

/** Items with a forbidden parent. The engine checks this too, but the worker does not trust it. */
async function parentFaults(tx: Transaction, items: Prepared[]): Promise<Map<string, string>> {
  const children = items.flatMap(({ intake: { proofId, tenantNo }, subject }) => {
    if (subject.kind === 'execute' || subject.parent_proof_id === undefined) return [];
    return [
      { proofId, kind: subject.kind, parent: { tenantNo, proofId: subject.parent_proof_id } },
    ];
  });
  if (children.length === 0) return new Map();
  const parents = await parentsOf(
    tx,
    children.map(({ parent }) => parent),
  );
  return new Map(
    children.flatMap(({ proofId, kind }, index) => {
      const fault = parentFault(kind, parents[index] ?? null);
      return fault === null ? [] : [[proofId, fault]];
    }),
  );
}
