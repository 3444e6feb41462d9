import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { problemsOf } from '../faults/observation.js';
import { until } from '../faults/pace.js';
import type { World } from '../faults/world.js';
import type { Prometheus } from '../faults/prometheus.js';

const EVERY_MS = 250;
const HEALTHY_MS = 90_000;

/** What a step must make an operator see. */
export interface Signals {
  /** A problem of `admin status`. */
  problem?: RegExp;
  /** A log line of any program. */
  log?: RegExp;
  /** An alert, without its `for`. */
  alert?: string;
}

/** Follows `admin status`, the alerts and the programs' logs, as an operator would. */
export class Watch {
  /** Problems and alerts, and the milliseconds after which each appeared. */
  private readonly seen = new Map<string, number>();
  private readonly offsets = new Map<string, number>();
  private readonly end = new AbortController();
  private following: Promise<void> = Promise.resolve();

  constructor(
    private readonly world: World,
    private readonly prometheus: Prometheus,
  ) {}

  async start(): Promise<void> {
    for (const [name, text] of await this.logs()) this.offsets.set(name, text.length);
    const began = performance.now();
    const since = Date.now();
    const follow = async (): Promise<void> => {
      while (!this.end.signal.aborted) {
        for (const what of [...(await problemsOf(this.world)), ...(await this.alerts(since))]) {
          if (!this.seen.has(what)) this.seen.set(what, performance.now() - began);
        }
        await sleep(EVERY_MS, undefined, { signal: this.end.signal }).catch(() => undefined);
      }
    };
    this.following = follow();
  }

  private async alerts(since: number): Promise<string[]> {
    return (await this.prometheus.firing(since)).map((name) => `alert ${name}`);
  }

  /** Resolves with the milliseconds until status is healthy again; null if it never is. */
  async untilHealthy(): Promise<number | null> {
    const began = performance.now();
    const isHealthy = async (): Promise<boolean> => (await problemsOf(this.world)).length === 0;
    return (await until(isHealthy, HEALTHY_MS, EVERY_MS)) ? performance.now() - began : null;
  }

  /** Ends the step; returns what was seen, and which signals were missing. */
  async stop({ alert, problem, log }: Signals): Promise<{ seen: string[]; missing: string[] }> {
    this.end.abort();
    await this.following;
    const missing: string[] = [];
    const seen = [...this.seen].map(([what, ms]) => `${what} (after ${seconds(ms)})`);
    if (problem !== undefined && ![...this.seen.keys()].some((what) => problem.test(what))) {
      missing.push(`admin status did not report ${problem.source}`);
    }
    if (alert !== undefined && !this.seen.has(`alert ${alert}`)) {
      missing.push(`the alert ${alert} did not fire`);
    }
    if (log !== undefined) {
      const lines = (await this.logs()).flatMap(([name, text]) =>
        text.slice(this.offsets.get(name) ?? 0).split('\n'),
      );
      const line = lines.find((one) => log.test(one));
      if (line === undefined) missing.push(`no program logged ${log.source}`);
      else seen.push(`log: ${messageOf(line)}`);
    }
    return { seen, missing };
  }

  private async logs(): Promise<[name: string, text: string][]> {
    const { dir } = this.world;
    const names = (await readdir(dir)).filter((name) => name.endsWith('.log'));
    return Promise.all(
      names.map(
        async (name) => [name, await readFile(join(dir, name), 'utf8')] as [string, string],
      ),
    );
  }
}

const messageOf = (line: string): string => {
  try {
    return (JSON.parse(line) as { msg: string }).msg;
  } catch {
    return line;
  }
};

export const seconds = (ms: number | null): string =>
  ms === null ? 'never' : `${(ms / 1000).toFixed(1)} s`;
