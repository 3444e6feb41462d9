import { orderedReceipt } from '#protocol/aep';
import { canonicalBytes, orderedBytes } from '#protocol/canonical-json';
import { isBatchId } from '#protocol/ids';
import type { JsonValue } from '#protocol/json';
import type { Batch as BatchDocument, BatchResult } from '#protocol/schemas/batch';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProblemDocument } from '#protocol/schemas/problem';
import { formatTime } from '#protocol/time';
import type { Settlement } from '#sql/admissions/outcomes';
import { type Batch, type ItemOutcome, readBatch } from '#sql/batches/read';
import { denial, receiptOf, rejection } from '../admission/answer.js';
import type { EngineContext } from '../context.js';
import type { Caller } from '../http/authenticate.js';
import { Problem, type ProblemCode } from '../http/problem.js';
import { erased } from '../proofs/stored-proof.js';

export function batchDocument(batch: Batch): BatchDocument {
  const { total, admitted, denied, refused, invalid, pending } = batch;
  return {
    schema_version: SCHEMA.batch,
    batch_id: batch.batchId,
    state: batch.completedAt === null ? 'processing' : 'completed',
    counts: { total, admitted, denied, refused, invalid, pending },
    replayed: batch.replayed,
    rate: rateOf(batch),
    accepted_at: formatTime(batch.acceptedAt),
    completed_at: batch.completedAt === null ? null : formatTime(batch.completedAt),
  };
}

/** Items per second, to a tenth. */
function rateOf({ settled, elapsedMs }: Batch): number {
  return Math.round((settled * 10_000) / Math.max(1, elapsedMs)) / 10;
}

/** Human-readable sentences of a policy set, by policy id. */
export type Sentences = (policyDigest: Buffer) => Promise<Map<string, string>>;

/** The result of an item: the response that a single request for it would get. */
export async function resultOf(
  item: ItemOutcome,
  requestId: string,
  sentences: Sentences,
): Promise<BatchResult> {
  const { index } = item;
  if (item.state === 'invalid') {
    const { code, detail, errors } = item.problem;
    const problem = new Problem(
      code as ProblemCode,
      detail,
      errors === undefined ? {} : { errors },
    );
    return failed(index, 'invalid', problem, requestId);
  }
  if (item.state === 'erased') return failed(index, 'erased', erased(), requestId);
  const { proofId, settlement } = item;
  const own = { proof_id: proofId, ...(item.replayed && { replayed: true as const }) };
  if (settlement === null) return { index, state: 'pending', status: 202, ...own };
  if (settlement.state === 'proved' && settlement.effect === 'ADMIT') {
    const receipt = receiptOf(proofId, settlement);
    return { index, state: 'admitted', status: 200, ...own, receipt };
  }
  const problem = await problemOf(proofId, settlement, sentences);
  const state = settlement.state === 'proved' ? 'denied' : settlement.state;
  return { ...failed(index, state, problem, requestId), ...own };
}

async function problemOf(
  proofId: string,
  settlement: Settlement,
  sentences: Sentences,
): Promise<Problem> {
  if (settlement.state === 'erased') return erased();
  if (settlement.state === 'refused') return rejection(settlement);
  return denial(proofId, settlement, await sentences(settlement.policyDigest));
}

function failed(
  index: number,
  state: BatchResult['state'],
  problem: Problem,
  requestId: string,
): BatchResult {
  const document = { ...problem.document(requestId), index } as unknown;
  return { index, state, status: problem.status, problem: document as ProblemDocument };
}

/** Canonical bytes. Results without a problem are built in order, several times faster than by sorting. */
export function resultBytes(result: BatchResult): Uint8Array {
  const { index, problem, proof_id, receipt, replayed, state, status } = result;
  if (problem !== undefined) return canonicalBytes(result as unknown as JsonValue);
  return orderedBytes({
    index,
    ...(proof_id !== undefined && { proof_id }),
    ...(receipt && { receipt: orderedReceipt(receipt) }),
    ...(replayed && { replayed }),
    state,
    status,
  });
}

/** The tenant's batch with the id in the path, or 404. */
export async function requireBatch(
  { tenantSql }: Pick<EngineContext, 'tenantSql'>,
  { tenantNo }: Caller,
  id: unknown,
): Promise<Batch> {
  const batchId = String(id);
  const batch = isBatchId(batchId)
    ? await tenantSql.run(tenantNo, (sql) => readBatch(sql, tenantNo, batchId))
    : null;
  if (batch === null) {
    throw new Problem('batch_not_found', 'This tenant has no batch with that id. Check the id.');
  }
  return batch;
}
