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

/** With the id that its proof would have. */
export type IdentifiedItem = ReadItem & { proofId: string };

/** A batch as it was sent: every item is among `items` or among `problems`, by its index. */
export interface ReadBatch {
  total: number;
  items: Map<number, IdentifiedItem>;
  problems: Map<number, Problem>;
  /** The identity of the items in their order, however they were written down. */
  itemsHash: Buffer;
  /** What is wrong with the body as a whole: for the step that refuses bodies. */
  fault: Problem | null;
}

export interface ReadBatchLimits {
  body: number;
  item: number;
  items: number;
}

/** The longest that items are read without letting others on the event loop. */
const AT_A_STRETCH_MS = 5;

/**
 * Reads a batch while it comes, each item as its lane would, with limits enforced on the way. An
 * item that is at fault is set aside with its problem.
 *
 * @throws Problem for a body that is refused unread: its type, its length, too many items, no end,
 *   too slow an upload, no memory for it
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
        `A batch has at most ${String(limits.items)} items. Nothing was accepted; send several.`,
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
      if (performance.now() - began < AT_A_STRETCH_MS) continue;
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
    return total > 0 ? null : new Problem('empty_batch', 'A batch has at least one item.');
  }
}

const INVALID = 0;

/** Keeps apart what is hashed on one lane, on the other, and as bytes that are neither. */
const tag = (kind: number): Buffer => Buffer.of(kind);

const sha256 = (bytes: Buffer): Buffer => createHash('sha256').update(bytes).digest();

function unsplittable(error: SplitError): Problem {
  return new Problem(error.code, `The body is refused: ${error.message}.`, {
    errors: [{ pointer: '', detail: error.message }],
    cause: error,
  });
}

const ASKED_AT_ONCE = 1_000;

/** The items whose parent is not one that they can have, by index, each with its problem. */
export async function missingParents(
  tenantSql: TenantConnections,
  tenantNo: number,
  items: ReadonlyMap<number, ReadItem>,
): Promise<Map<number, Problem>> {
  const children = [...items].flatMap(([index, { parent }]) =>
    parent === null ? [] : [{ index, ...parent }],
  );
  const found = new Map<number, Problem>();
  for (let start = 0; start < children.length; start += ASKED_AT_ONCE) {
    const some = children.slice(start, start + ASKED_AT_ONCE);
    const proofIds = some.map(({ proofId }) => proofId);
    const parents = await tenantSql.run(tenantNo, (sql) => findParents(sql, tenantNo, proofIds));
    some.forEach(({ index, kind }, at) => {
      const problem = parentProblem(kind, parents[at] ?? null);
      if (problem !== null) found.set(index, problem);
    });
  }
  return found;
}
