import { readdirSync, readFileSync } from 'node:fs';

/** Process IDs by the name that a report uses; several processes may share a name. */
export type Watched = Record<string, readonly number[]>;

interface CpuSample {
  seconds: Record<string, number>;
  machine: { busy: number; all: number };
}

export interface CpuShares {
  micros: Record<string, number>;
  total: number;
  /** Share of the machine's time that unwatched processes used; 0 to 1. */
  others: number;
}

/** Clock ticks per second in /proc: 100 on every Linux that Node runs on. */
const TICKS = 100;

export function sampleCpu(watched: Watched): CpuSample {
  const seconds = Object.entries(watched).map(([name, pids]) => {
    return [name, pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0)] as const;
  });
  return { seconds: Object.fromEntries(seconds), machine: machineTicks() };
}

export function cpuBetween(from: CpuSample, to: CpuSample, proofs: number): CpuShares {
  const used = Object.entries(to.seconds).map(
    ([name, seconds]) => [name, seconds - (from.seconds[name] ?? 0)] as const,
  );
  const ours = used.reduce((sum, [, seconds]) => sum + seconds, 0);
  const busy = to.machine.busy - from.machine.busy;
  const all = to.machine.all - from.machine.all;
  return {
    micros: Object.fromEntries(used.map(([name, seconds]) => [name, (seconds * 1e6) / proofs])),
    total: (ours * 1e6) / proofs,
    others: Math.max(0, (busy - ours * TICKS) / all),
  };
}

/**
 * CPU seconds of a process and its descendants; of the bench itself without its descendants. To the
 * nanosecond, but for descendants that have exited, which count in clock ticks.
 */
export function cpuSecondsOf(pid: number): number {
  if (pid === process.pid) {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  }
  return processTree(pid).reduce((sum, one) => sum + ifAlive(() => ownSeconds(one), 0), 0);
}

function ownSeconds(pid: number): number {
  const threads = `/proc/${String(pid)}/task`;
  const nanoseconds = readdirSync(threads).reduce((sum, thread) => {
    const [onCpu = '0'] = readFileSync(`${threads}/${thread}/schedstat`, 'utf8').split(' ');
    return sum + Number(onCpu);
  }, 0);
  // cutime and cstime: children that exited and were waited for.
  const [childUser, childSystem] = statFields(pid).slice(13, 15).map(Number);
  return nanoseconds / 1e9 + (childUser! + childSystem!) / TICKS;
}

/** Resident memory of a process and its descendants in MiB: now, and the peak. NaN when it ended. */
export function memoryOf(pid: number): { residentMiB: number; peakMiB: number } {
  const status = ifAlive(() => readFileSync(`/proc/${String(pid)}/status`, 'utf8'), '');
  const mebibytes = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1] ?? NaN) / 1024;
  const own = { residentMiB: mebibytes('VmRSS'), peakMiB: mebibytes('VmHWM') };
  return childrenOf(pid)
    .map(memoryOf)
    .reduce(
      (sum, { residentMiB, peakMiB }) => ({
        residentMiB: sum.residentMiB + residentMiB,
        peakMiB: sum.peakMiB + peakMiB,
      }),
      own,
    );
}

function processTree(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(processTree)];
}

function childrenOf(pid: number): number[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((one) => ifAlive(() => Number(statFields(one)[1]) === pid, false));
}

/** The fields of /proc/<pid>/stat from the state on: the name before it may hold spaces. */
function statFields(pid: number): string[] {
  const stat = readFileSync(`/proc/${String(pid)}/stat`, 'utf8');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** A process may end at any time between being listed and being read. */
function ifAlive<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

/** The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, of all cores. */
function machineTicks(): CpuSample['machine'] {
  const [line = ''] = readFileSync('/proc/stat', 'utf8').split('\n');
  const [user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0] = line
    .split(/\s+/)
    .slice(1)
    .map(Number);
  const busy = user + nice + system + irq + soft + steal;
  return { busy, all: busy + idle + wait };
}
