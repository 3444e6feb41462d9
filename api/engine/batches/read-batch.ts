import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { BodyRefusedError, streamBody } from '#runtime/http/json-body';
import { findParents } from '#sql/admissions/parents';
import type { TenantConnections } from '#sql/db/tenant-connections';
import { parentProblem } from '../admission/admit.js';
import type { Caller } from '../http/authenticate.js';
import { newUuidHex } from '../http/new-id.js';
import { Problem } from '../http/problem.js';
import { readItem, type ReadItem } from './read-item.js';
import { arraySplitter, lineSplitter, SplitError, type SplitItem } from './split.js';
import type { BatchUpload } from './uploads.js';

export const JSON_ARRAY = 'application/json';
export const JSON_LINES = 'application/x-ndjson';

/** With the id of its future proof. */
export type IdentifiedItem = ReadItem & { proofId: string };

/** A parsed batch: every item is in `items` or in `problems`, by index. */
export interface ReadBatch {
  total: number;
  items: Map<number, IdentifiedItem>;
  problems: Map<number, Problem>;
  /** Deduplication key: hash of the items in order, independent of formatting. */
  itemsHash: Buffer;
  /** Fault of the whole body, thrown by a later check. */
  fault: Problem | null;
}

export interface ReadBatchLimits {
  body: number;
  item: number;
  items: number;
}

/** Longest parsing before yielding to the event loop. */
const YIELD_AFTER_MS = 5;

/**
 * Parses a batch while it streams in and enforces the limits. Rejects an invalid item with its
 * problem, by the rules of single requests.
 *
 * @throws Problem for the whole body: type, length, too many items, incomplete, slow upload, no
 *   memory
 */
export async function readBatch(
  req: IncomingMessage,
  limits: ReadBatchLimits,
  caller: Caller,
  upload: BatchUpload,
): Promise<ReadBatch> {
  try {
    const { type, chunks } = streamBody(req, limits.body, [JSON_ARRAY, JSON_LINES], upload.evicted);
    const splitter = type === JSON_LINES ? lineSplitter(limits.item) : arraySplitter(limits.item);
    const reading = createReading(limits, caller);
    for await (const chunk of chunks) {
      await upload.received(chunk.length);
      await reading.take(splitter.push(chunk));
    }
    upload.complete();
    return await reading.end(() => splitter.end());
  } catch (error) {
    if (!(error instanceof BodyRefusedError)) throw error;
    throw new Problem(error.code, error.message, { headers: error.headers, cause: error });
  }
}

function createReading(limits: ReadBatchLimits, caller: Caller) {
  const items = new Map<number, IdentifiedItem>();
  const problems = new Map<number, Problem>();
  const hash = createHash('sha256');
  let total = 0;
  let began = performance.now();

  function read(item: SplitItem): void {
    const index = total;
    total += 1;
    if (total > limits.items) {
      throw new Problem(
        'too_many_items',
        `A batch has at most ${String(limits.items)} items. Nothing was accepted. Split it into several batches.`,
      );
    }
    try {
      const found = readItem(item, limits.item, caller);
      items.set(index, { ...found, proofId: newUuidHex() });
      hash.update(tag(found.lane)).update(found.requestHash, 'hex');
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problems.set(index, error);
      hash.update(tag(INVALID)).update('bytes' in item ? sha256(item.bytes) : item.tooLong);
    }
  }

  async function take(found: SplitItem[]): Promise<void> {
    for (const item of found) {
      read(item);
      if (performance.now() - began < YIELD_AFTER_MS) continue;
      await setImmediate();
      began = performance.now();
    }
  }

  return {
    take,
    end: async (last: () => SplitItem[]): Promise<ReadBatch> => {
      const fault = await endOf(last);
      return { total, items, problems, itemsHash: hash.digest(), fault };
    },
  };

  async function endOf(last: () => SplitItem[]): Promise<Problem | null> {
    try {
      await take(last());
    } catch (error) {
      if (error instanceof SplitError) return unsplittable(error);
      throw error;
    }
    return total > 0 ? null : new Problem('empty_batch', 'A batch must have at least one item.');
  }
}

const INVALID = 0;

/** Domain separation in the items hash: request type, or invalid bytes. */
const tag = (kind: number): Buffer => Buffer.of(kind);

const sha256 = (bytes: Buffer): Buffer => createHash('sha256').update(bytes).digest();

function unsplittable(error: SplitError): Problem {
  return new Problem(error.code, `The body cannot be split into items: ${error.message}.`, {
    errors: [{ pointer: '', detail: error.message }],
    cause: error,
  });
}

const PARENTS_PER_QUERY = 1_000;

/** Problems of the items with an invalid parent, by index. */
export async function missingParents(
  tenantSql: TenantConnections,
  tenantNo: number,
  items: ReadonlyMap<number, ReadItem>,
): Promise<Map<number, Problem>> {
  const children = [...items].flatMap(([index, { parent }]) =>
    parent === null ? [] : [{ index, ...parent }],
  );
  const found = new Map<number, Problem>();
  for (let start = 0; start < children.length; start += PARENTS_PER_QUERY) {
    const some = children.slice(start, start + PARENTS_PER_QUERY);
    const proofIds = some.map(({ proofId }) => proofId);
    const parents = await tenantSql.run(tenantNo, (sql) => findParents(sql, tenantNo, proofIds));
    some.forEach(({ index, kind }, at) => {
      const problem = parentProblem(kind, parents[at] ?? null);
      if (problem !== null) found.set(index, problem);
    });
  }
  return found;
}
