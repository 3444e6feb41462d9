import { spawnSync } from 'node:child_process';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { adminWith } from '../fixtures/admin.js';
import { isOverloaded, slownessNow, until } from './pace.js';
import { startPrometheus, type AlertOptions, type Prometheus } from './prometheus.js';
import type { Signals } from './signals.js';
import { PROCESSES, type World } from './world.js';

const hasPrometheus = spawnSync('prometheus', ['--version']).status === 0;

/** Intervals of the polls: `admin status` is expensive, and alerts change at most once a second. */
const EVERY_MS = { unready: 250, status: 1_000, alert: 1_000 } as const;
const LOOK_MS = 250;
/** A program that does not answer for this long is unready. */
const READYZ_MS = 2_500;
const GONE_MS = 30_000;
/** A sign that a fault must cause counts as missing after this time. */
const SEEN_MS = 30_000;
/** A sign that no fault explains counts only after this time, because a busy machine delays answers. */
const BLIP_MS = 2_000;
/** Programs log a repeated error at most once in this time. */
const RARELY_MS = 10_000;
/**
 * Limit of lines with one message: 30, or three per interval in a long scenario, because two programs
 * may log the message.
 */
const floodLines = (scenarioMs: number): number => Math.max(30, (3 * scenarioMs) / RARELY_MS);

/** A sign of a fault: an unready program, a problem of status, an alert, or a log line. */
export interface Seen {
  signal: string;
  /** Seconds from the start of the fault until the sign appeared. */
  appeared: number;
  /**
   * Seconds from the end of the fault until the sign disappeared; null for a log line, and for an alert
   * that still fires when the scenario ends.
   */
  gone: number | null;
}

type Source = 'unready' | 'status' | 'alert';

interface Presence {
  /** Time when the sign first appeared. */
  from: number;
  /** Time when the sign last appeared. */
  since: number;
  /** Time when the sign last disappeared; null while it is present. */
  to: number | null;
  /** The longest time for which the sign was present without interruption. */
  longestMs: number;
}

interface LogLine {
  time: string;
  level: string;
  program: string;
  msg: string;
  status?: number;
  err?: { message?: string };
}

async function problemsOf({ adminUrl, publicUrl }: World): Promise<string[]> {
  const admin = adminWith({ DATABASE_URL: adminUrl, PUBLIC_URL: publicUrl });
  const { json, err } = await admin('status', '--json');
  const problems = (json as { attention: { what: string }[] } | null)?.attention;
  return problems?.map(({ what }) => what) ?? [err.trim()];
}

/** Follows what operators see of a world: `/readyz`, `admin status`, alerts and logs. */
export class Observation {
  private readonly end = new AbortController();
  private readonly following: Promise<unknown>;
  private present: Record<Source, Set<string>> = {
    unready: new Set(),
    status: new Set(),
    alert: new Set(),
  };
  /** Alerts of earlier scenarios that have not ended. */
  private readonly left = new Map<string, { seen: Seen; ended: number }>();
  private seen = new Map<string, Presence>();
  private signals: Signals | null = null;
  private began = { wall: 0, at: 0 };
  private healedAt: number | null = null;
  private hasSettled = false;
  /** Errors of sources that could not be read. */
  private readonly unread = new Set<string>();

  private constructor(
    private readonly world: World,
    private readonly prometheus: Prometheus | null,
  ) {
    this.following = Promise.all([
      this.follow('unready', () => this.unready()),
      this.follow('status', () => this.problems()),
      ...(prometheus === null ? [] : [this.follow('alert', () => prometheus.firing())]),
    ]);
  }

  static async open(world: World, alerts: AlertOptions): Promise<Observation> {
    if (hasPrometheus) {
      return new Observation(world, await startPrometheus(world.dir, world.opsPorts, alerts));
    }
    if (process.env['CI'] === 'true')
      throw new Error('prometheus is not installed, and CI must check alerts');
    console.log('alerts are not checked: install prometheus from Debian');
    return new Observation(world, null);
  }

  async close(): Promise<void> {
    this.end.abort();
    await this.following;
    await this.prometheus?.stop();
  }

  /** Waits until the signs of earlier faults have disappeared. Returns the signs that have not. */
  async untilQuiet(signals: Signals): Promise<string[]> {
    this.signals = signals;
    const { alert } = signals;
    const isQuiet = (): boolean =>
      this.isHealthy() && !(typeof alert === 'string' && this.present.alert.has(alert));
    const isQuietNow = await until(isQuiet, GONE_MS);
    return isQuietNow ? [] : [`before the fault: ${this.shown().join(', ')}`];
  }

  /** Waits until all programs are ready and `admin status` reports no problem. */
  untilHealthy(ms: number): Promise<boolean> {
    return until(() => this.isHealthy(), ms);
  }

  begin(): void {
    for (const signal of this.present.alert) {
      const seen = { signal, appeared: 0, gone: null };
      if (!this.left.has(signal)) this.left.set(signal, { seen, ended: performance.now() });
    }
    this.seen = new Map();
    this.began = { wall: Date.now(), at: performance.now() };
    this.healedAt = null;
    this.hasSettled = false;
  }

  /** Waits until each sign that the fault must cause has appeared. */
  async untilSeen(): Promise<void> {
    await until(() => this.missing().length === 0, SEEN_MS, LOOK_MS);
  }

  healed(): void {
    this.healedAt = performance.now();
  }

  /** Ignores new signs from now on, because the audit, which repeats every request, causes signs. */
  settled(): void {
    this.hasSettled = true;
  }

  /** Ends a scenario. Returns what was seen, and every missing or false sign. */
  async finish(): Promise<{ seen: Seen[]; problems: string[] }> {
    const { signals } = this;
    if (signals === null) throw new Error('no scenario has begun');
    const problems = [...this.unread];
    this.unread.clear();
    const lasting = (): string[] =>
      [...this.seen].flatMap(([key, { to }]) =>
        to === null && !key.startsWith('alert ') ? [key] : [],
      );
    const isAsDeclared = async (): Promise<boolean> =>
      this.compare((await this.logged()).lines).length === 0;
    if (signals.lasts === true) await until(isAsDeclared, GONE_MS, LOOK_MS);
    else if (!(await until(() => lasting().length === 0, GONE_MS))) {
      problems.push(`still after the fault: ${lasting().join(', ')}`);
    }
    const { lines, flooding } = await this.logged();
    problems.push(...flooding, ...this.compare(lines));
    const ended = this.healedAt ?? performance.now();
    const seen = [...this.seen].map(([signal, { from, to }]): Seen => {
      const appeared = secondsBetween(this.began.at, from);
      const one = { signal, appeared, gone: to === null ? null : secondsBetween(ended, to) };
      if (to === null && signal.startsWith('alert ')) {
        this.left.set(signal.slice('alert '.length), { seen: one, ended });
      }
      return one;
    });
    const { log } = signals;
    const matching = lines.filter((one) => log instanceof RegExp && log.test(textOf(one)));
    const line =
      matching.find(({ time }) => Date.parse(time) >= this.began.wall) ?? matching.at(-1);
    if (line !== undefined) {
      const appeared = secondsBetween(this.began.wall, Date.parse(line.time));
      seen.push({ signal: `log ${textOf(line).slice(0, 120)}`, appeared, gone: null });
    }
    return { seen, problems };
  }

  private namesOf(source: Source): string[] {
    return [...this.seen.keys()].flatMap((key) =>
      key.startsWith(`${source} `) ? [key.slice(source.length + 1)] : [],
    );
  }

  /** The required signs that have not appeared yet, except log lines, which programs may write later. */
  private missing(): string[] {
    const { unready, status, alert } = this.signals ?? {};
    const required: [Source, RegExp | undefined][] = [
      ['unready', unready],
      ['status', status],
    ];
    if (this.prometheus !== null && typeof alert === 'string') {
      required.push(['alert', new RegExp(`^${alert}$`)]);
    }
    return required.flatMap(([source, must]) =>
      must === undefined || this.namesOf(source).some((name) => must.test(name))
        ? []
        : [`missing: ${source} ${must.source}`],
    );
  }

  private compare(lines: readonly LogLine[]): string[] {
    const { unready, mayBeUnready, status, mayStatus, alert, mayAlert, log } = this.signals ?? {};
    const problems = this.missing();
    const check = (
      source: Source,
      explained: (RegExp | undefined)[],
      harmlessMs: (name: string) => number,
    ): void => {
      for (const name of this.namesOf(source)) {
        const { longestMs = 0 } = this.seen.get(`${source} ${name}`) ?? {};
        const isExplained = explained.some((one) => one?.test(name));
        const counts = longestMs >= harmlessMs(name) && !isOverloaded();
        if (!isExplained && counts) problems.push(`unexpected: ${source} ${name}`);
      }
    };
    const blip = (): number => BLIP_MS * slownessNow();
    check('unready', [unready, mayBeUnready], blip);
    check('status', [status, mayStatus], blip);
    // This Prometheus ignores the `for` of a rule, so an unexpected alert counts only if it fires for that
    // long.
    const must = typeof alert === 'string' ? new RegExp(`^${alert}$`) : undefined;
    check('alert', [must, mayAlert], (name) => this.prometheus?.firesAfterMs(name) ?? 0);
    if (log instanceof RegExp && !lines.some((line) => log.test(textOf(line)))) {
      problems.push(`missing: log ${log.source}`);
    }
    return problems;
  }

  private async follow(source: Source, read: () => Promise<string[]>): Promise<void> {
    const { signal } = this.end;
    while (!signal.aborted) {
      const found = new Set(
        await read().catch((error: unknown) => {
          this.unread.add(`${source} cannot be read: ${String(error)}`);
          return [];
        }),
      );
      const now = performance.now();
      this.present[source] = found;
      if (source === 'alert') {
        for (const [name, { seen, ended }] of this.left) {
          if (found.has(name)) continue;
          seen.gone = secondsBetween(ended, now);
          this.left.delete(name);
        }
      }
      for (const name of found) {
        if (source === 'alert' && this.left.has(name)) continue;
        const key = `${source} ${name}`;
        if (this.hasSettled && !this.seen.has(key)) continue;
        const one = this.seen.get(key) ?? { from: now, since: now, to: null, longestMs: 0 };
        if (one.to !== null) one.since = now;
        one.to = null;
        one.longestMs = Math.max(one.longestMs, now - one.since);
        this.seen.set(key, one);
      }
      for (const [key, one] of this.seen) {
        const [of, ...name] = key.split(' ');
        if (of === source && !found.has(name.join(' '))) one.to ??= now;
      }
      await sleep(EVERY_MS[source], undefined, { signal }).catch(() => undefined);
    }
  }

  private async unready(): Promise<string[]> {
    const { opsPorts } = this.world;
    const found = await Promise.all(
      PROCESSES.map(async (name) => {
        const signal = AbortSignal.timeout(READYZ_MS);
        const isReady = await fetch(`http://127.0.0.1:${String(opsPorts[name])}/readyz`, {
          signal,
        }).then(
          async (response) => {
            await response.arrayBuffer();
            return response.ok;
          },
          () => false,
        );
        return isReady ? [] : [name];
      }),
    );
    return found.flat();
  }

  /** The problems of `admin status`, with N for each number, because numbers change all the time. */
  private async problems(): Promise<string[]> {
    const found = await problemsOf(this.world);
    return found.map((what) => what.replaceAll(/\d[\d.]*/g, 'N'));
  }

  private isHealthy(): boolean {
    return this.present.unready.size + this.present.status.size === 0;
  }

  private shown(): string[] {
    return (['unready', 'status', 'alert'] as const).flatMap((source) =>
      [...this.present[source]].map((name) => `${source} ${name}`),
    );
  }

  /**
   * The lines of the scenario, and earlier lines whose rate limit may have suppressed lines of the
   * scenario.
   */
  private async logged(): Promise<{ lines: LogLine[]; flooding: string[] }> {
    const { dir } = this.world;
    const began = new Date(this.began.wall).toISOString();
    const from = new Date(this.began.wall - RARELY_MS).toISOString();
    const now = new Date().toISOString();
    const all: LogLine[] = [];
    for (const file of await readdir(dir)) {
      if (!file.endsWith('.log')) continue;
      for (const text of (await readFile(join(dir, file), 'utf8')).split('\n')) {
        // Excludes lines without a time (messages of Node and for operators), and lines of processes with
        // a shifted clock.
        const [, time = ''] = /^\{.*?"time":"([^"]+)"/.exec(text) ?? [];
        if (time < from || time > now) continue;
        const line = JSON.parse(text) as LogLine;
        if (time >= began || hasRateLimit(line)) all.push(line);
      }
    }
    all.sort((a, b) => (a.time < b.time ? -1 : 1));
    const counts = new Map<string, number>();
    for (const line of all) {
      if (line.time < began || !hasRateLimit(line)) continue;
      const key = `${line.program}: ${line.msg}`;
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    const most = floodLines(Date.now() - this.began.wall);
    const flooding = [...counts].flatMap(([key, count]) =>
      count > most ? [`${String(count)} log lines: ${key}`] : [],
    );
    return { lines: all, flooding };
  }
}

/** Lines below level warn are never suppressed. */
const hasRateLimit = ({ level }: LogLine): boolean => ['warn', 'error', 'fatal'].includes(level);

/** `engine: request 503`, or `publisher: the cycle failed: ENOSPC: …`. */
const textOf = ({ program, msg, status, err }: LogLine): string =>
  [msg.startsWith(`${program}: `) ? msg : `${program}: ${msg}`, status ?? []].flat().join(' ') +
  (err?.message === undefined ? '' : `: ${err.message}`);

const secondsBetween = (from: number, to: number): number => Math.round((to - from) / 100) / 10;

export const printed = ({ signal, appeared, gone }: Seen): string =>
  `${signal} after ${String(appeared)} s${gone === null ? '' : `, gone after ${String(gone)} s`}`;
