/** What the id of a request may look like, whoever made it: short, and nothing that a log line could stumble over. */
const REQUEST_ID = /^[A-Za-z0-9._~:@/+=-]{1,128}$/;
const LONGEST = 128;

export function isRequestId(value: string): boolean {
  return REQUEST_ID.test(value);
}

/** Which requests brought what a job carries. Good for log lines, and for nothing else. */
export interface RequestIds {
  /** Undefined when it is not known: the sweeper sent the job, or somebody who made it up. */
  of(id: string): string | undefined;
}

export const NO_REQUEST_IDS: RequestIds = { of: () => undefined };

/** One string, in the order of the job's ids: whoever takes the job mostly has no use for it. */
export function packRequestIds(requestIds: readonly string[]): string {
  return requestIds.join(' ');
}

/**
 * Reads them back when somebody asks. They come out of the queue, which anybody may have written
 * to: unless each is one and there is one for each of `ids`, none is known.
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
