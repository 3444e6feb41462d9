import type { RequestIds } from '#runtime/http/request-ids';

export interface GroupOptions {
  /** Groups processed concurrently: one is prepared while another waits for the append lock. */
  groupsAtOnce: number;
  /** The most admissions of a group. */
  idsAtOnce: number;
  /** Logs its failure; the requeue finds the admissions again. */
  process: (ids: string[], requests: RequestIds) => Promise<void>;
}

export interface AdmissionGroups {
  /** Ignores ids that wait already, or are processed now. Never throws. */
  take(ids: readonly string[], requests: RequestIds): void;
  /** Admissions that wait for a group. */
  waiting(): number;
  /** Finishes the running groups and takes no more. */
  close(): Promise<void>;
}

/** Any database role can announce ids. The requeue finds those above the limit. */
const MOST_WAITING = 100_000;

/**
 * Processes announced admissions in groups (micro-batching). A group costs a few round trips and one
 * hold of the append lock at any size, so many small groups would build a backlog. An admission never
 * waits for more to arrive.
 */
export function groupAdmissions({
  groupsAtOnce,
  idsAtOnce,
  process,
}: GroupOptions): AdmissionGroups {
  const waiting = new Map<string, RequestIds>();
  const processing = new Set<string>();
  const running = new Set<Promise<void>>();
  let isClosing = false;

  async function runGroup(group: ReadonlyMap<string, RequestIds>): Promise<void> {
    for (const id of group.keys()) processing.add(id);
    await process([...group.keys()], { of: (id) => group.get(id)?.of(id) }).catch(() => undefined);
    for (const id of group.keys()) processing.delete(id);
  }

  function begin(): void {
    while (!isClosing && running.size < groupsAtOnce && waiting.size > 0) {
      const group = new Map<string, RequestIds>();
      for (const [id, requests] of waiting) {
        if (group.size === idsAtOnce) break;
        group.set(id, requests);
        waiting.delete(id);
      }
      const over = runGroup(group).then(() => {
        running.delete(over);
        begin();
      });
      running.add(over);
    }
  }

  return {
    take(ids, requests) {
      for (const id of ids) {
        const isKnown = waiting.has(id) || processing.has(id);
        if (!isKnown && waiting.size < MOST_WAITING) waiting.set(id, requests);
      }
      begin();
    },
    waiting: () => waiting.size,
    close: async () => {
      isClosing = true;
      await Promise.all(running);
    },
  };
}
