import { readdirSync, readFileSync } from 'node:fs';

/** What a process and its children have used, as Linux counts it. */
export interface Resources {
  /** Resident now, and at most so far; of all together. */
  residentMiB: number;
  peakMiB: number;
  cpuSeconds: number;
}

/** Clock ticks a second in /proc: 100 on every Linux that Node runs on. */
export const TICKS = 100;

/** Null where there is no /proc, or no such process any more. */
export function resourcesOf(pid: number): Resources | null {
  const total = { residentMiB: 0, peakMiB: 0, cpuSeconds: 0 };
  try {
    for (const one of processTree(pid)) {
      const status = readFileSync(`/proc/${String(one)}/status`, 'utf8');
      total.residentMiB += mebibytes(status, 'VmRSS');
      total.peakMiB += mebibytes(status, 'VmHWM');
      total.cpuSeconds += cpuTicks(one) / TICKS;
    }
    return total;
  } catch {
    return null;
  }
}

function mebibytes(status: string, field: string): number {
  const [, kibibytes = '0'] = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status) ?? [];
  return Number(kibibytes) / 1024;
}

/** Its own, and that of the children it has waited for. */
function cpuTicks(pid: number): number {
  return statFields(pid)
    .slice(11, 15)
    .reduce((sum, ticks) => sum + Number(ticks), 0);
}

/** The fields of /proc/<pid>/stat from the state on: the name before it may hold anything. */
function statFields(pid: number): string[] {
  const stat = readFileSync(`/proc/${String(pid)}/stat`, 'utf8');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** A process, its children, and theirs. */
export function processTree(pid: number): number[] {
  return [pid, ...childrenOf(pid)];
}

function childrenOf(pid: number): number[] {
  const parents = readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      return [{ child: Number(name), parent: Number(statFields(Number(name))[1]) }];
    } catch {
      return []; // it is gone
    }
  });
  return parents.flatMap(({ child, parent }) =>
    parent === pid ? [child, ...childrenOf(child)] : [],
  );
}
