import { readdirSync, readFileSync } from 'node:fs';
import { attempt } from '#protocol/errors';
import { sumOf } from './statistics.js';

/** Process IDs by the name that a report uses. */
export type Watched = Record<string, number>;

/** CPU microseconds per proof or request. */
export type CpuShares = ReturnType<ReturnType<typeof startCpu>>;

/** Clock ticks per second in /proc: 100 on every Linux that Node runs on. */
const TICKS = 100;

/** Starts to measure. The returned function divides the CPU time since then by a number of proofs. */
export function startCpu(watched: Watched) {
  const from = Object.entries(watched).map(
    ([name, pid]) => [name, pid, cpuSecondsOf(pid)] as const,
  );
  return (proofs: number) => {
    const micros = from.map(([name, pid, before]): [string, number] => {
      return [name, ((cpuSecondsOf(pid) - before) * 1e6) / proofs];
    });
    return { micros: Object.fromEntries(micros), total: sumOf(micros, ([, share]) => share) };
  };
}

/**
 * CPU seconds of a process and its descendants, or of the bench itself without its descendants. The
 * CPU time of exited descendants is exact to a clock tick, all other CPU time to a nanosecond.
 */
export function cpuSecondsOf(pid: number): number {
  if (pid === process.pid) {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  }
  // A process may end at any time between being listed and being read.
  return sumOf(processTree(pid), (one) => attempt(() => ownSeconds(one)) ?? 0);
}

function ownSeconds(pid: number): number {
  const threads = `/proc/${String(pid)}/task`;
  const nanoseconds = readdirSync(threads).reduce((sum, thread) => {
    const [onCpu = '0'] = readFileSync(`${threads}/${thread}/schedstat`, 'utf8').split(' ');
    return sum + Number(onCpu);
  }, 0);
  // cutime and cstime: CPU time of children that exited and were waited for.
  const [childUser, childSystem] = statFields(pid).slice(13, 15).map(Number);
  return nanoseconds / 1e9 + (childUser! + childSystem!) / TICKS;
}

/** Peak resident memory of a process and its descendants in MiB; NaN when the process has ended. */
export function peakMemoryOf(pid: number): number {
  return sumOf(processTree(pid), (one) => {
    const status = attempt(() => readFileSync(`/proc/${String(one)}/status`, 'utf8')) ?? '';
    return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? NaN) / 1024;
  });
}

/** Reads each process only once: the synchronous reads delay the requests of the bench. */
function processTree(root: number): number[] {
  const children = new Map<number, number[]>();
  for (const pid of readdirSync('/proc').map(Number).filter(Number.isInteger)) {
    const parent = attempt(() => Number(statFields(pid)[1])) ?? 0;
    children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const treeOf = (pid: number): number[] => [pid, ...(children.get(pid) ?? []).flatMap(treeOf)];
  return treeOf(root);
}

/** The fields of /proc/<pid>/stat from the state on; the preceding name may contain spaces. */
function statFields(pid: number): string[] {
  const stat = readFileSync(`/proc/${String(pid)}/stat`, 'utf8');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}
