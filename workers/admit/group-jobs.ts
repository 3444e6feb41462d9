import { NO_REQUEST_IDS, type RequestIds } from '#runtime/http/request-ids';
import { DeferredError } from './context.js';

export interface GroupJobsOptions {
  /** Groups processed concurrently: the next is prepared while one waits for the append lock. */
  groupsAtOnce: number;
  /** Ids per group. A larger job is a group of one. */
  idsAtOnce: number;
  process: (ids: string[], requests: RequestIds) => Promise<void>;
}

interface Job {
  ids: string[];
  requests: RequestIds;
  resolve: () => void;
  reject: (reason: unknown) => void;
}

/**
 * Processes waiting jobs together as one group (micro-batching). A group costs a dozen round trips
 * and one hold of the append lock at any size, so many small groups would build a backlog. A job
 * never waits for another one.
 */
export function groupJobs(
  options: GroupJobsOptions,
): (ids: string[], requests: RequestIds) => Promise<void> {
  const { groupsAtOnce, idsAtOnce, process } = options;
  const waiting: Job[] = [];
  let running = 0;

  function nextGroup(): Job[] {
    let ids = 0;
    const first = waiting.findIndex((job, at) => {
      ids += job.ids.length;
      return at > 0 && ids > idsAtOnce;
    });
    return waiting.splice(0, first === -1 ? waiting.length : first);
  }

  async function runGroup(group: Job[]): Promise<void> {
    try {
      const ids = group.flatMap((job) => job.ids);
      await process(ids, requestsOf(group));
      for (const { resolve } of group) resolve();
    } catch (error) {
      for (const job of group) {
        if (error instanceof DeferredError && !job.ids.some((id) => error.ids.has(id)))
          job.resolve();
        else job.reject(error);
      }
    }
  }

  function begin(): void {
    while (running < groupsAtOnce && waiting.length > 0) {
      running += 1;
      void runGroup(nextGroup()).then(() => {
        running -= 1;
        begin();
      });
    }
  }

  return (ids, requests) =>
    new Promise((resolve, reject) => {
      waiting.push({ ids, requests, resolve, reject });
      begin();
    });
}

function requestsOf(group: readonly Job[]): RequestIds {
  const known = group.map(({ requests }) => requests).filter((ids) => ids !== NO_REQUEST_IDS);
  return {
    of: (id) => {
      for (const requests of known) {
        const requestId = requests.of(id);
        if (requestId !== undefined) return requestId;
      }
      return undefined;
    },
  };
}
