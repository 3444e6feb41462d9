import type { RequestIds } from '#runtime/http/request-ids';
import { DeferredError } from './context.js';

interface GroupOptions {
  /** Groups processed concurrently: one is prepared while another waits for the append lock. */
  groupsAtOnce: number;
  idsAtOnce: number;
  /** Processes a group, and returns the ids that a later group has to process. Logs its own failures. */
  process: (ids: string[], requests: RequestIds) => Promise<readonly string[]>;
}

export type AdmissionGroups = ReturnType<typeof groupAdmissions>;

/** Milliseconds before the admissions of a failed group are processed again. */
const AGAIN_MS = 250;

interface Waiting {
  owner: string;
  requests: RequestIds;
}

/**
 * Processes announced admissions in groups (micro-batching). A group of any size costs a few round trips and takes the
 * append lock once, so many small groups would build a backlog. An admission never waits for further admissions. A
 * group takes the admissions of the owners, such as tenants, in rotation, so that those of one owner do not wait for
 * the backlog of another.
 */
export function groupAdmissions({ groupsAtOnce, idsAtOnce, process }: GroupOptions) {
  const known = new Map<string, Waiting>();
  /** The ids that wait, by owner; the owner that was served last comes last. */
  const queues = new Map<string, Set<string>>();
  let processing = 0;
  const running = new Set<Promise<void>>();
  /** Admissions whose first group failed. */
  const failedOnce = new Set<string>();
  let isClosing = false;

  async function runGroup(ids: string[]): Promise<void> {
    const group = new Map(ids.map((id) => [id, known.get(id)!]));
    const requests: RequestIds = { of: (id) => group.get(id)?.requests.of(id) };
    processing += ids.length;
    let hasFailed = false;
    const left = await process(ids, requests).catch((error: unknown) => {
      hasFailed = true;
      return error instanceof DeferredError ? error.left : [];
    });
    // Most failures are short, so admissions are retried once. After a second failure, the requeue finds the
    // admissions.
    const again = hasFailed ? ids.filter((id) => !left.includes(id) && !failedOnce.has(id)) : [];
    processing -= ids.length;
    for (const id of ids) {
      known.delete(id);
      failedOnce.delete(id);
    }
    waitFirst(left, group);
    if (again.length === 0) return;
    for (const id of again) failedOnce.add(id);
    const owners = again.map((id) => group.get(id)!.owner);
    setTimeout(() => take(again, requests, owners), AGAIN_MS).unref();
  }

  function wait(id: string, waiting: Waiting): void {
    known.set(id, waiting);
    const queue = queues.get(waiting.owner);
    if (queue === undefined) queues.set(waiting.owner, new Set([id]));
    else queue.add(id);
  }

  /**
   * Queues first the admissions for which a group had no time: otherwise an owner with a backlog could use up the time
   * of the next group, too.
   */
  function waitFirst(left: readonly string[], group: ReadonlyMap<string, Waiting>): void {
    const later = [...queues];
    queues.clear();
    for (const id of left) wait(id, group.get(id)!);
    for (const [owner, ids] of later) {
      queues.set(owner, new Set([...(queues.get(owner) ?? []), ...ids]));
    }
  }

  function nextGroup(): string[] {
    const ids: string[] = [];
    // The loop also visits the owners that it moves to the end.
    for (const [owner, queue] of queues) {
      if (ids.length === idsAtOnce) break;
      const [id] = queue;
      ids.push(id!);
      queue.delete(id!);
      queues.delete(owner);
      if (queue.size > 0) queues.set(owner, queue);
    }
    return ids;
  }

  function begin(): void {
    while (!isClosing && running.size < groupsAtOnce && queues.size > 0) {
      const over = runGroup(nextGroup()).then(() => {
        running.delete(over);
        begin();
      });
      running.add(over);
    }
  }

  /**
   * Accepts ids, except those that already wait or are being processed. Returns the accepted ids.
   * Never throws.
   *
   * @param owners the owner of each id; empty if unknown
   */
  function take(
    ids: readonly string[],
    requests: RequestIds,
    owners: readonly string[] = [],
  ): string[] {
    const taken = ids.filter((id, at) => {
      if (known.has(id)) return false;
      wait(id, { owner: owners[at] ?? '', requests });
      return true;
    });
    begin();
    return taken;
  }

  return {
    take,
    waiting: () => known.size - processing,
    /** Finishes the running groups and starts no more. */
    close: async () => {
      isClosing = true;
      await Promise.all(running);
    },
  };
}
