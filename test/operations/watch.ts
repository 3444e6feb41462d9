import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { problemsOf } from '../faults/observation.js';
import { until } from '../faults/pace.js';
import type { World } from '../faults/world.js';
import type { Prometheus } from '../faults/prometheus.js';

const EVERY_MS = 250;
const HEALTHY_MS = 90_000;

/** The signs of a step that an operator must see. */
export interface Signals {
  /** A problem of `admin status`. */
  problem?: RegExp;
  /** A log line of any program. */
  log?: RegExp;
  /** An alert whose expression must hold, for however short a time. */
  alert?: string;
  /** Further alerts that may hold for as long as their `for`. */
  mayAlert?: RegExp;
}

/** Follows `admin status`, the alerts and the programs' logs, as an operator would. */
export class Watch {
  /** Problems and alerts, and the milliseconds after which each appeared. */
  private readonly seen = new Map<string, number>();
  /** For each alert: when it began to fire (null while it does not fire), and its longest duration. */
  private readonly alerts = new Map<string, { since: number | null; longestMs: number }>();
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
        const alerts = await this.prometheus.firing(since);
        this.follow(alerts);
        const found = [...(await problemsOf(this.world)), ...alerts.map((name) => `alert ${name}`)];
        for (const what of found) {
          if (!this.seen.has(what)) this.seen.set(what, performance.now() - began);
        }
        await sleep(EVERY_MS, undefined, { signal: this.end.signal }).catch(() => undefined);
      }
    };
    this.following = follow();
  }

  private follow(firing: readonly string[]): void {
    const now = performance.now();
    for (const name of firing) {
      const one = this.alerts.get(name) ?? { since: null, longestMs: 0 };
      one.since ??= now;
      one.longestMs = Math.max(one.longestMs, now - one.since);
      this.alerts.set(name, one);
    }
    for (const [name, one] of this.alerts) if (!firing.includes(name)) one.since = null;
  }

  /** Resolves with the milliseconds until status is healthy again; null if it never is. */
  async untilHealthy(): Promise<number | null> {
    const began = performance.now();
    const isHealthy = async (): Promise<boolean> => (await problemsOf(this.world)).length === 0;
    return (await until(isHealthy, HEALTHY_MS, EVERY_MS)) ? performance.now() - began : null;
  }

  /** Ends the step; returns the signs that were seen, and as problems the missing and the unexpected signs. */
  async stop(signals: Signals): Promise<{ seen: string[]; problems: string[] }> {
    const { alert, problem, log, mayAlert } = signals;
    this.end.abort();
    await this.following;
    const problems: string[] = [];
    for (const [name, { longestMs }] of this.alerts) {
      if (name === alert || mayAlert?.test(name) === true) continue;
      if (longestMs < this.prometheus.firesAfterMs(name)) continue;
      problems.push(`the alert ${name} held for ${seconds(longestMs)}`);
    }
    const seen = [...this.seen].map(([what, ms]) => `${what} (after ${seconds(ms)})`);
    if (problem !== undefined && ![...this.seen.keys()].some((what) => problem.test(what))) {
      problems.push(`admin status did not report ${problem.source}`);
    }
    if (alert !== undefined && !this.seen.has(`alert ${alert}`)) {
      problems.push(`the alert ${alert} did not fire`);
    }
    const lines = (await this.logs()).flatMap(([name, text]) =>
      text.slice(this.offsets.get(name) ?? 0).split('\n'),
    );
    const fatal = lines.find((one) => one.startsWith('{"level":"fatal"'));
    if (fatal !== undefined) problems.push(`a program ended: ${messageOf(fatal)}`);
    if (log !== undefined) {
      const line = lines.find((one) => log.test(one));
      if (line === undefined) problems.push(`no program logged ${log.source}`);
      else seen.push(`log: ${messageOf(line)}`);
    }
    return { seen, problems };
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
