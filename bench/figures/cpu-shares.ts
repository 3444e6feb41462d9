import { readFileSync } from 'node:fs';
import { resourcesOf, TICKS } from './resources.js';

/** Processes by the name that they go by in a report; several may share one. */
export type Watched = Record<string, readonly number[]>;

/** CPU seconds so far, by name, and of the machine as a whole. */
export interface CpuSample {
  at: number;
  seconds: Record<string, number>;
  /** What all cores did, and could have done; null where there is no /proc. */
  machine: { busy: number; all: number } | null;
}

export interface CpuShares {
  /** Microseconds a proof, by name. */
  micros: Record<string, number>;
  /** Of all of them together. */
  total: number;
  /** The share of the machine's time that others took, who are no part of this; 0 to 1. */
  others: number | null;
}

export function sampleCpu(watched: Watched): CpuSample {
  const seconds = Object.fromEntries(
    Object.entries(watched).map(([name, pids]) => [
      name,
      pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0),
    ]),
  );
  return { at: performance.now(), seconds, machine: machineTicks() };
}

/** Of a process and its children; of this one alone, for the others are its children. */
function cpuSecondsOf(pid: number): number {
  if (pid !== process.pid) return resourcesOf(pid)?.cpuSeconds ?? 0;
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** What each took for each of `proofs` between two samples: hardly touched by what else runs. */
export function cpuBetween(from: CpuSample, to: CpuSample, proofs: number): CpuShares {
  const spent = Object.entries(to.seconds).map(
    ([name, seconds]) => [name, seconds - (from.seconds[name] ?? 0)] as const,
  );
  const micros = Object.fromEntries(spent.map(([name, one]) => [name, (one * 1e6) / proofs]));
  const ours = spent.reduce((sum, [, one]) => sum + one, 0);
  const busy = (to.machine?.busy ?? 0) - (from.machine?.busy ?? 0);
  const all = (to.machine?.all ?? 0) - (from.machine?.all ?? 0);
  return {
    micros,
    total: (ours * 1e6) / proofs,
    others: all > 0 ? Math.max(0, (busy - ours * TICKS) / all) : null,
  };
}

/** The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, of all cores. */
function machineTicks(): CpuSample['machine'] {
  try {
    const [line = ''] = readFileSync('/proc/stat', 'utf8').split('\n');
    const [user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0] = line
      .split(/\s+/)
      .slice(1)
      .map(Number);
    const busy = user + nice + system + irq + soft + steal;
    return { busy, all: busy + idle + wait };
  } catch {
    return null;
  }
}
