import { NO_REQUEST_IDS, type RequestIds } from '#runtime/http/request-ids';
import { DeferredError } from './context.js';

export interface GroupJobsOptions {
  /** Groups in work at a time: the next is prepared while one waits for the append lock. */
  groupsAtOnce: number;
  /** A group takes no further job past so many ids. */
  idsAtOnce: number;
  settle: (ids: string[], requests: RequestIds) => Promise<void>;
}

interface Job {
  ids: string[];
  requests: RequestIds;
  resolve: () => void;
  reject: (reason: unknown) => void;
}

/**
 * Settles jobs that wait together in one group. A group costs a dozen round trips and a turn at the
 * append lock however small it is: many small jobs, each by itself, are what a backlog is made of.
 * A job alone never waits for company.
 */
export function groupJobs(
  options: GroupJobsOptions,
): (ids: string[], requests: RequestIds) => Promise<void> {
  const { groupsAtOnce, idsAtOnce, settle } = options;
  const waiting: Job[] = [];
  let working = 0;

  function takeGroup(): Job[] {
    let ids = 0;
    const first = waiting.findIndex((job, at) => {
      ids += job.ids.length;
      return at > 0 && ids > idsAtOnce;
    });
    return waiting.splice(0, first === -1 ? waiting.length : first);
  }

  async function work(group: Job[]): Promise<void> {
    try {
      await settle(
        group.flatMap(({ ids }) => ids),
        requestsOf(group),
      );
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
    while (working < groupsAtOnce && waiting.length > 0) {
      working += 1;
      void work(takeGroup()).then(() => {
        working -= 1;
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
  const known = group.map(({ requests }) => requests).filter((one) => one !== NO_REQUEST_IDS);
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
