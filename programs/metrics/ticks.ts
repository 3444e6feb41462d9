import type { CycleObserver } from '#publisher/run';

/** Several that want to know how ticks go. */
export function watchedBy(...watches: readonly CycleObserver[]): CycleObserver {
  return {
    went: (report, ms) => watches.forEach((watch) => watch.went(report, ms)),
    failed: (error, ms) => watches.forEach((watch) => watch.failed(error, ms)),
  };
}
