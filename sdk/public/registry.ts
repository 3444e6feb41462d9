import type * as z from 'zod';
import { isTime } from '../../protocol/time.js';
import { readDocument, unexpected } from '../http/answers.js';
import type { Answer } from '../http/attempt.js';
import { openHttpClient, type HttpClient } from '../http/client.js';
import { withDeadline } from '../http/deadline.js';
import { parseBaseUrl, type PublicOptions } from '../options.js';

/** Above the size of every public document: a package of 100 proofs has some hundred kilobytes. */
const MAX_RESPONSE_BYTES = 4 * 1024 * 1024;

/** The published snapshot behind a response. */
export interface SnapshotFacts {
  /** Number of log leaves that the snapshot covers: NOT_FOUND holds as of this size. */
  tree_size: number;
  /** Version of the snapshot, incremented with each publication. */
  generation: number;
  /** Time of its signature: RFC 3339 UTC with milliseconds. */
  issued_at: string;
}

/** A response of the public API: the unchanged record and its snapshot. */
export interface PublicAnswer<T> {
  record: T;
  snapshot: SnapshotFacts;
}

/** Validates the options, and opens no connection. */
export function openRegistry(options: PublicOptions): HttpClient {
  const base = parseBaseUrl('publicUrl', options.publicUrl);
  return openHttpClient(options, base, {}, MAX_RESPONSE_BYTES);
}

export async function readPublic<T>(
  options: PublicOptions,
  path: string,
  schema: z.ZodType<T>,
): Promise<PublicAnswer<T>> {
  const registry = openRegistry(options);
  const answer = await withDeadline(options, (deadline) =>
    registry.read({ method: 'GET', path }, deadline),
  );
  return { record: readDocument(answer, schema), snapshot: snapshotOf(answer) };
}

/** Required: a verdict is only meaningful with the state of the log that it holds for. */
export function snapshotOf(answer: Answer): SnapshotFacts {
  const number = (name: string): number => {
    const text = answer.headers.get(name) ?? '';
    if (!/^[0-9]{1,15}$/.test(text)) throw unexpected(answer, `the response has no ${name}`);
    return Number(text);
  };
  const issuedAt = answer.headers.get('x-svc-snapshot-issued-at') ?? '';
  if (!isTime(issuedAt)) throw unexpected(answer, 'the response has no x-svc-snapshot-issued-at');
  return {
    tree_size: number('x-svc-tree-size'),
    generation: number('x-svc-snapshot-generation'),
    issued_at: issuedAt,
  };
}
