import type { Response } from 'express';
import { RateLimiterMemory, RateLimiterRedis, type RateLimiterRes } from 'rate-limiter-flexible';
import type { Logger } from '#runtime/process/log';
import type { RedisClient } from '#runtime/queue/redis';
import { withTimeout } from '#runtime/concurrency/promises';
import { Problem } from './problem.js';

/** One request's place in its tenant's window of a second. */
export interface Place {
  /** The how manieth of the window this request is, from 1. */
  used: number;
  /** Milliseconds until the window ends. */
  resetMs: number;
}

/** Counts requests by tenant. It only counts: what is too many is for `requireWithinRate` to say. */
export interface RequestCounter {
  count(tenantNo: number): Promise<Place>;
}

export interface RequestCounterOptions {
  /** Where all engines count together; null: each counts for itself. */
  redis: RedisClient | null;
  log: Pick<Logger, 'warn'>;
}

const WINDOW_S = 1;
const PREFIX = '{svc}:rate';
/** A counter that has not answered by then is away: no request waits for it any longer. */
const TIMEOUT_MS = 250;
/** A counter that was away is left alone for so long. */
const REST_MS = 1_000;

type Counted = Pick<RateLimiterRes, 'consumedPoints' | 'msBeforeNext'>;

/**
 * The requests of a tenant that arrive while its count is under way are counted together by the
 * next one, so that under load a request costs a fraction of a round trip. Without Redis, or while
 * it is away, this process counts for itself: a limit that is too generous for a while, but never
 * none, and never an outage.
 */
export function createRequestCounter({ redis, log }: RequestCounterOptions): RequestCounter {
  const limits = { points: Number.MAX_SAFE_INTEGER, duration: WINDOW_S, keyPrefix: PREFIX };
  const own = new RateLimiterMemory(limits);
  const shared =
    redis === null
      ? null
      : new RateLimiterRedis({ ...limits, storeClient: redis, rejectIfRedisNotReady: true });
  let restsUntil = -Infinity;
  let wasAway = false;

  async function add(key: string, requests: number): Promise<Counted> {
    if (shared === null || performance.now() < restsUntil) return own.penalty(key, requests);
    try {
      const counted = await withTimeout(shared.penalty(key, requests), TIMEOUT_MS, tooLate);
      wasAway = false;
      return counted;
    } catch (error) {
      restsUntil = performance.now() + REST_MS;
      if (!wasAway) log.warn({ err: error }, 'Redis is away: this engine limits rates by itself');
      wasAway = true;
      return own.penalty(key, requests);
    }
  }

  // An entry means that a count is under way, or about to be; its list is who came for the next one.
  const gathering = new Map<number, ((place: Place) => void)[]>();

  async function countAll(tenantNo: number): Promise<void> {
    // Whose keys were looked up together come together.
    await nextTick();
    for (;;) {
      const group = gathering.get(tenantNo) ?? [];
      if (group.length === 0) break;
      gathering.set(tenantNo, []);
      const { consumedPoints, msBeforeNext } = await add(String(tenantNo), group.length);
      const before = consumedPoints - group.length;
      group.forEach((tell, index) => {
        tell({ used: before + index + 1, resetMs: Math.max(0, msBeforeNext) });
      });
    }
    gathering.delete(tenantNo);
  }

  return {
    count: (tenantNo) =>
      new Promise((resolve, reject) => {
        const others = gathering.get(tenantNo);
        if (others !== undefined) {
          others.push(resolve);
          return;
        }
        gathering.set(tenantNo, [resolve]);
        countAll(tenantNo).catch(reject);
      }),
  };
}

/** When all that can go on by now has gone on. */
const nextTick = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));

const tooLate = (): Error => new Error(`no answer in ${String(TIMEOUT_MS)} ms`);

/**
 * 429 past the tenant's limit. Every answer from here on says what is left, in the fields of
 * draft-ietf-httpapi-ratelimit-headers-10.
 */
export function requireWithinRate(res: Response, limit: number, { used, resetMs }: Place): void {
  const resetS = Math.max(1, Math.ceil(resetMs / 1000));
  res.setHeader('RateLimit-Policy', `"tenant";q=${limit};w=${WINDOW_S}`);
  res.setHeader('RateLimit', `"tenant";r=${Math.max(0, limit - used)};t=${resetS}`);
  if (used <= limit) return;
  throw new Problem(
    'rate_limited',
    `This tenant may send ${limit} requests a second. Nothing was done; send it again later.`,
    { headers: { 'Retry-After': String(resetS) } },
  );
}
