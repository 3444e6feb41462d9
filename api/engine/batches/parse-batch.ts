import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { streamBody } from '#runtime/http/json-body';
import { findParents } from '#sql/admissions/intake';
import type { TenantConnections } from '../tenant-connections.js';
import { parentProblem } from '../admission/admit.js';
import {
  AGENT,
  EXECUTE,
  parseAdmission,
  requireOwnTenant,
  type ParsedAdmission,
} from '../admission/admit.js';
import type { Caller } from '../http/authenticate.js';
import { newUuidHex } from '../http/new-id.js';
import { bodyProblem, isObject, parseJson, unknownVersion } from '../http/parse-body.js';
import { at, Problem } from '../http/problem.js';
import { arraySplitter, lineSplitter, SplitError, type SplitItem } from './split.js';
import type { BatchUpload } from './uploads.js';

export const JSON_ARRAY = 'application/json';
export const JSON_LINES = 'application/x-ndjson';

/** A valid item, except for its parent, which needs a query. */
export interface ParsedItem extends Omit<ParsedAdmission, 'body'> {
  request: Buffer;
  /** Id of the future proof. */
  proofId: string;
}

/** A parsed batch: every item is in `items` or in `problems`, by index. */
export interface ParsedBatch {
  total: number;
  items: Map<number, ParsedItem>;
  problems: Map<number, Problem>;
  /** Deduplication key: hash of the items in order, independent of formatting. */
  itemsHash: Buffer;
  /** Fault of the whole body, thrown by a later check. */
  fault: Problem | null;
}

export interface BatchLimits {
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
export async function parseBatch(
  req: IncomingMessage,
  limits: BatchLimits,
  caller: Caller,
  upload: BatchUpload,
): Promise<ParsedBatch> {
  try {
    const { type, chunks } = streamBody(req, limits.body, [JSON_ARRAY, JSON_LINES], upload.evicted);
    const splitter = type === JSON_LINES ? lineSplitter(limits.item) : arraySplitter(limits.item);
    const parser = new BatchParser(limits, caller);
    for await (const chunk of chunks) {
      await upload.received(chunk.length);
      await parser.take(splitter.push(chunk));
    }
    upload.complete();
    return await parser.end(() => splitter.end());
  } catch (error) {
    throw bodyProblem(error);
  }
}

class BatchParser {
  private readonly items = new Map<number, ParsedItem>();
  private readonly problems = new Map<number, Problem>();
  private readonly hash = createHash('sha256');
  private total = 0;
  private began = performance.now();

  constructor(
    private readonly limits: BatchLimits,
    private readonly caller: Caller,
  ) {}

  async take(found: SplitItem[]): Promise<void> {
    for (const item of found) {
      this.parse(item);
      if (performance.now() - this.began < YIELD_AFTER_MS) continue;
      await setImmediate();
      this.began = performance.now();
    }
  }

  async end(last: () => SplitItem[]): Promise<ParsedBatch> {
    const fault = await this.finish(last);
    const { hash, items, problems, total } = this;
    return { total, items, problems, itemsHash: hash.digest(), fault };
  }

  private async finish(last: () => SplitItem[]): Promise<Problem | null> {
    try {
      await this.take(last());
    } catch (error) {
      if (error instanceof SplitError) return unsplittable(error);
      throw error;
    }
    if (this.total > 0) return null;
    return new Problem('empty_batch');
  }

  private parse(item: SplitItem): void {
    const { limits } = this;
    const index = this.total;
    this.total += 1;
    if (this.total > limits.items) {
      throw new Problem(
        'too_many_items',
        `A batch has at most ${String(limits.items)} items. Nothing was accepted. Split it into several batches.`,
      );
    }
    try {
      const found = parseItem(item, limits.item, this.caller);
      this.items.set(index, { ...found, proofId: newUuidHex() });
      this.hash.update(tag(found.lane)).update(found.requestHash, 'hex');
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.problems.set(index, error);
      this.hash.update(tag(INVALID)).update('bytes' in item ? sha256(item.bytes) : item.tooLong);
    }
  }
}

const INVALID = 0;

/** Domain separation in the items hash: request type, or invalid bytes. */
const tag = (kind: number): Buffer => Buffer.of(kind);

const sha256 = (bytes: Buffer): Buffer => createHash('sha256').update(bytes).digest();

function unsplittable(error: SplitError): Problem {
  return new Problem(error.code, `The body cannot be split into items: ${error.message}.`, {
    ...at('', error.message),
    cause: error,
  });
}

/** @throws Problem the one that a single request with this body would get */
function parseItem(item: SplitItem, limit: number, caller: Caller): Omit<ParsedItem, 'proofId'> {
  if ('tooLong' in item) {
    throw new Problem('body_too_large', `An item must not be longer than ${String(limit)} bytes.`);
  }
  const value = parseJson(item.bytes);
  const version = isObject(value) ? value['schema_version'] : undefined;
  if (version !== EXECUTE.version && version !== AGENT.version) {
    throw unknownVersion(value, [EXECUTE.version, AGENT.version]);
  }
  const { body, ...parsed } =
    version === EXECUTE.version ? parseAdmission(EXECUTE, value) : parseAdmission(AGENT, value);
  requireOwnTenant(body, caller);
  return { ...parsed, request: item.bytes };
}

const PARENTS_PER_QUERY = 1_000;

/** Problems of the items with an invalid parent, by index. */
export async function missingParents(
  tenantSql: TenantConnections,
  tenantNo: number,
  items: ReadonlyMap<number, Pick<ParsedItem, 'parent'>>,
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
