import { performance } from 'node:perf_hooks';
import { mutate, Random } from './mutate.js';
import type { Target } from './target.js';

interface Finding {
  error: unknown;
  input: Uint8Array;
}

export interface TargetReport {
  name: string;
  executions: number;
  accepted: number;
  outcomes: Map<string, number>;
  /** The time that the slowest input took, in milliseconds, and the length of this input. */
  slowestMs: number;
  slowestBytes: number;
  findings: Finding[];
}

export interface Bounds {
  /** The run ends when either limit is reached. */
  milliseconds: number;
  executions: number;
}

/** Time limit for an input of 256 KiB: a linear parser needs far less. */
const TOO_SLOW_MS = 1_000;
const MAX_FINDINGS = 5;
/** Largest heap growth in one run; more growth is reported as a leak. */
const MAX_HEAP_GROWTH = 256 * 1024 * 1024;

/** Global prototypes, which no parser may change. */
const SHARED = [
  Object.prototype,
  Array.prototype,
  String.prototype,
  Function.prototype,
  Map.prototype,
];
const ownNames = (): string => SHARED.map((one) => Reflect.ownKeys(one).length).join();

export function fuzz(target: Target, seed: number, bounds: Bounds): TargetReport {
  const random = new Random(seed);
  const report: TargetReport = {
    name: target.name,
    executions: 0,
    accepted: 0,
    outcomes: new Map(),
    slowestMs: 0,
    slowestBytes: 0,
    findings: [],
  };
  const clean = ownNames();
  const heapBefore = process.memoryUsage().heapUsed;
  // The first short inputs with each outcome become seeds, too.
  const seeds = [...target.seeds];
  const end = performance.now() + bounds.milliseconds;
  const found = (error: unknown, input: Uint8Array): void => {
    report.findings.push({ error, input });
  };
  while (
    performance.now() < end &&
    report.executions < bounds.executions &&
    report.findings.length < MAX_FINDINGS
  ) {
    const at = report.executions;
    const input = at < target.seeds.length ? target.seeds[at]! : mutate(seeds, random);
    report.executions += 1;
    const began = performance.now();
    try {
      const outcome = target.run(input.slice());
      const count = report.outcomes.get(outcome) ?? 0;
      report.outcomes.set(outcome, count + 1);
      if (count < 3 && input.length < 16_384) seeds.push(input);
    } catch (error) {
      found(error, input);
    }
    const took = performance.now() - began;
    if (took > report.slowestMs) {
      report.slowestMs = took;
      report.slowestBytes = input.length;
    }
    if (took > TOO_SLOW_MS && isSlowAgain(target, input)) {
      found(new Error(`took ${took.toFixed(0)} ms for ${String(input.length)} bytes`), input);
    }
    if (ownNames() !== clean) found(new Error('a shared prototype was changed'), input);
  }
  report.accepted = report.outcomes.get('accepted') ?? 0;
  if (process.memoryUsage().heapUsed - heapBefore > MAX_HEAP_GROWTH) {
    found(new Error('memory leak'), new Uint8Array());
  }
  return report;
}

/** Repeats the measurement, because the machine may have been busy for a moment. */
function isSlowAgain(target: Target, input: Uint8Array): boolean {
  for (let i = 0; i < 2; i += 1) {
    const began = performance.now();
    try {
      target.run(input.slice());
    } catch {
      // The main loop already reported this error.
    }
    if (performance.now() - began <= TOO_SLOW_MS) return false;
  }
  return true;
}
