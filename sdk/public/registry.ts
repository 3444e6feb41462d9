import type * as z from 'zod';
import type { Answer } from '../http/attempt.js';
import type { Deadline } from '../http/deadline.js';
import { readDocument, unexpected } from '../http/documents.js';
import { openExchange } from '../http/exchange.js';
import { refusal } from '../http/refusal.js';
import { isTime } from '../../protocol/time.js';
import { baseOf, type PublicOptions } from '../options.js';

/** A package of a hundred proofs has some hundred kilobytes. */
const ANSWER_MAX = 4 * 1024 * 1024;

/** The published state of the registry that an answer was drawn from. */
export interface SnapshotFacts {
  /** Leaves of the log that are spoken for: NOT_FOUND holds as of this size. */
  tree_size: number;
  /** Counts up with each snapshot that is published. */
  generation: number;
  /** When it was signed: RFC 3339 UTC with milliseconds. */
  issued_at: string;
}

/** An answer of the public API: the record as it was relayed, and what it was drawn from. */
export interface PublicAnswer<T> {
  record: T;
  snapshot: SnapshotFacts;
}

export interface PublicRequest {
  /** From `/api` on, with its segments escaped. */
  path: string;
  query?: Record<string, string>;
  /** Makes it a POST. */
  body?: Uint8Array;
}

/** The public API. */
export interface PublicRegistry {
  ask(request: PublicRequest, deadline: Deadline): Promise<Answer>;
  /** A document that nothing but a 200 can be. */
  read<T>(
    request: PublicRequest,
    schema: z.ZodType<T>,
    deadline: Deadline,
  ): Promise<PublicAnswer<T>>;
}

/** Checks the options, and connects to nothing. */
export function openRegistry(options: PublicOptions): PublicRegistry {
  const base = baseOf('publicUrl', options.publicUrl);
  const exchange = openExchange(options);
  const ask: PublicRegistry['ask'] = ({ path, query = {}, body }, deadline) => {
    const url = new URL(path.slice(1), base);
    url.search = new URLSearchParams(query).toString();
    const method = body === undefined ? 'GET' : 'POST';
    const headers = {
      Accept: 'application/json',
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
    };
    return exchange(
      { method, url, headers, maxBytes: ANSWER_MAX, ...(body !== undefined && { body }) },
      deadline,
    );
  };
  return {
    ask,
    read: async (request, schema, deadline) => {
      const answer = await ask(request, deadline);
      if (answer.status !== 200) throw refusal(answer);
      return { record: readDocument(answer, schema), snapshot: snapshotOf(answer) };
    },
  };
}

/** A verdict without the state of the log that it holds for is half of one. */
export function snapshotOf(answer: Answer): SnapshotFacts {
  const number = (name: string): number => {
    const text = answer.headers.get(name) ?? '';
    if (!/^[0-9]{1,15}$/.test(text)) throw unexpected(answer, `the answer has no ${name}`);
    return Number(text);
  };
  const issuedAt = answer.headers.get('x-svc-snapshot-issued-at') ?? '';
  if (!isTime(issuedAt)) throw unexpected(answer, 'the answer has no x-svc-snapshot-issued-at');
  return {
    tree_size: number('x-svc-tree-size'),
    generation: number('x-svc-snapshot-generation'),
    issued_at: issuedAt,
  };
}
