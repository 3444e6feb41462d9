import { randomUUID } from 'node:crypto';

/** Format of a request id, from any source: short, and safe in a log line. */
export const REQUEST_ID_FORM = /^[A-Za-z0-9._~:@/+=-]{1,128}$/;
const LONGEST = 128;

function isRequestId(value: string): boolean {
  return REQUEST_ID_FORM.test(value);
}

/** The id of a request: the caller's, if it is well-formed, otherwise a new id. */
export const requestIdFrom = (sent: string | string[] | undefined): string =>
  typeof sent === 'string' && isRequestId(sent) ? sent : randomUUID();

/** The request ids of a job's items. Only for log lines. */
export interface RequestIds {
  /** The request id of an item; undefined in a requeue of stale admissions or a forged job. */
  of(id: string): string | undefined;
}

export const NO_REQUEST_IDS: RequestIds = { of: () => undefined };

/** Packs request ids, in the order of the job's ids, into a string that workers rarely parse. */
export function packRequestIds(requestIds: readonly string[]): string {
  return requestIds.join(' ');
}

/**
 * Unpacks on first use. The queue is untrusted: all request ids are unknown if one is malformed, or if
 * `ids` has another length.
 */
export function unpackRequestIds(packed: unknown, ids: readonly string[]): RequestIds {
  if (packed === undefined) return NO_REQUEST_IDS;
  let known: Map<string, string> | null = null;
  return { of: (id) => (known ??= unpack(packed, ids)).get(id) };
}

function unpack(packed: unknown, ids: readonly string[]): Map<string, string> {
  if (typeof packed !== 'string' || packed.length > ids.length * (LONGEST + 1)) return new Map();
  const requestIds = packed.split(' ');
  if (requestIds.length !== ids.length || !requestIds.every(isRequestId)) return new Map();
  return new Map(ids.map((id, at) => [id, requestIds[at] ?? '']));
}
