import { isProofId } from '#protocol/ids';
import { unpackRequestIds, type RequestIds } from './request-ids.js';

/** The most ids that a job may carry; a job with more did not come from us. */
export const MAX_IDS_PER_JOB = 1_000;

export function isIds(value: unknown): value is string[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.length <= MAX_IDS_PER_JOB &&
    value.every((id) => typeof id === 'string' && isProofId(id))
  );
}

/**
 * What a job carries; null when it is none of ours. Whoever gets at the queue can put any JSON
 * there, `null` included, and one that made this throw would be tried again and again.
 */
export function readJob(data: unknown): { ids: string[]; requests: RequestIds } | null {
  if (typeof data !== 'object' || data === null) return null;
  const { ids, requests } = data as { ids?: unknown; requests?: unknown };
  return isIds(ids) ? { ids, requests: unpackRequestIds(requests, ids) } : null;
}
