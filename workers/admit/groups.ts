import type { RequestIds } from '#runtime/http/request-ids';

interface GroupOptions {
  /** Groups processed concurrently: one is prepared while another waits for the append lock. */
  groupsAtOnce: number;
  /** Maximum number of admissions in a group. */
  idsAtOnce: number;
  /** Processes a group. Logs a failure itself. */
  process: (ids: string[], requests: RequestIds) => Promise<void>;
}

export type AdmissionGroups = ReturnType<typeof groupAdmissions>;

/** Pause before the admissions of a failed group are processed again. */
const AGAIN_MS = 250;

/**
 * Processes announced admissions in groups (micro-batching). A group of any size costs a few round trips
 * and takes the append lock once, so many small groups would build a backlog. An admission never waits
 * for others to arrive.
 */
export function groupAdmissions({ groupsAtOnce, idsAtOnce, process }: GroupOptions) {
  const waiting = new Map<string, RequestIds>();
  const processing = new Set<string>();
  const running = new Set<Promise<void>>();
  /** Admissions whose first group failed. */
  const failedOnce = new Set<string>();
  let isClosing = false;

  async function runGroup(group: ReadonlyMap<string, RequestIds>): Promise<void> {
    const ids = [...group.keys()];
    for (const id of ids) processing.add(id);
    const requests: RequestIds = { of: (id) => group.get(id)?.of(id) };
    const isFailed = await process(ids, requests).then(
      () => false,
      () => true,
    );
    // Most failures are short, so admissions are retried once. If that fails too, the requeue finds them.
    const again = isFailed ? ids.filter((id) => !failedOnce.has(id)) : [];
    for (const id of ids) {
      processing.delete(id);
      failedOnce.delete(id);
    }
    if (again.length === 0) return;
    for (const id of again) failedOnce.add(id);
    setTimeout(() => take(again, requests), AGAIN_MS).unref();
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

  /**
   * Accepts ids, except those that already wait or are being processed. Returns the accepted ids.
   * Never throws.
   */
  function take(ids: readonly string[], requests: RequestIds): string[] {
    const taken = ids.filter((id) => !waiting.has(id) && !processing.has(id));
    for (const id of taken) waiting.set(id, requests);
    begin();
    return taken;
  }

  return {
    take,
    waiting: () => waiting.size,
    /** Finishes the running groups and starts no more. */
    close: async () => {
      isClosing = true;
      await Promise.all(running);
    },
  };
}
