import { readdirSync, readFileSync } from 'node:fs';
import { processTree } from './resources.js';

/** CPU seconds of single processes, by id; to the nanosecond, where clock ticks count hundredths. */
export type CpuTimes = ReadonlyMap<number, number>;

/** What a process and its children have used so far, each of them alone. */
export function cpuTimesOf(pid: number): CpuTimes {
  const times = new Map<number, number>();
  for (const one of processTree(pid)) {
    try {
      times.set(one, threadSeconds(one));
    } catch {
      // It ended in between.
    }
  }
  return times;
}

/**
 * What was used between two looks: a process that came in between counts whole, and of one that ended
 * in between nothing is known any more.
 */
export function cpuSecondsBetween(before: CpuTimes, after: CpuTimes): number {
  let seconds = 0;
  for (const [pid, used] of after) seconds += used - (before.get(pid) ?? 0);
  return seconds;
}

/** The first field of schedstat: nanoseconds on a CPU, of each thread. */
function threadSeconds(pid: number): number {
  const threads = `/proc/${String(pid)}/task`;
  return readdirSync(threads).reduce((sum, thread) => {
    const [onCpu = '0'] = readFileSync(`${threads}/${thread}/schedstat`, 'utf8').split(' ');
    return sum + Number(onCpu) / 1e9;
  }, 0);
}
