import type { Request, Response } from 'express';
import { timingSafeEqual } from 'node:crypto';
import { RateLimiterMemory, RateLimiterRedis, type RateLimiterRes } from 'rate-limiter-flexible';
import { apiKeySecretHash, parseApiKey } from '#runtime/crypto/api-key';
import { coalesce, withTimeout } from '#runtime/concurrency';
import type { Logger } from '#runtime/process/log';
import { isUnavailable } from '#sql/db/errors';
import { authenticate as readCredentials, type Credential } from '#sql/tenants/api-keys';
import type { EngineContext } from '../context.js';
import { Problem } from './problem.js';
import { addLogFields } from './respond.js';

/** The authenticated caller. Read from the database for every request, so revocation takes effect at once. */
export type Caller = Omit<Credential, 'secretHash' | 'state' | 'rateLimit'>;

/** @param key the API key; default: X-Svc-Api-Key */
export type Authenticate = (req: Request, res: Response, key?: string) => Promise<Caller>;

// Looked up and compared in place of a malformed key, so that timing does not reveal the fault. No key has this id.
const UNKNOWN_KEY = { keyId: '0'.repeat(12), secret: new Uint8Array(32) };
const NO_HASH = Buffer.alloc(32);

/**
 * Reads the caller from X-Svc-Api-Key. Malformed, unknown, wrong, expired and revoked keys take the
 * same query and the same constant-time comparison and get the same 401, so neither body nor timing
 * reveals the reason. Only valid keys count towards the tenant's rate limit. Database errors pass
 * through: a failed query neither rejects nor accepts a key.
 */
export function createAuthenticate(ctx: EngineContext): Authenticate {
  const lookUp = coalesce<string, Credential | undefined>({
    maxWaitMs: 1,
    aloneMs: 0,
    maxItems: ctx.coalesceItems,
    isRetryAlone: (error) => !isUnavailable(error),
    run: async (keyIds) => {
      const found = await readCredentials(ctx.sql, [...new Set(keyIds)]);
      return keyIds.map((keyId) => found.get(keyId));
    },
  });

  const countRequest = createRequestCounter(ctx);

  return async (req, res, sent = readSingleHeader(req, 'x-svc-api-key')) => {
    if (sent === undefined) throw new Problem('unauthenticated');
    const key = parseApiKey(sent);
    const { keyId, secret } = key ?? UNKNOWN_KEY;
    const found = await lookUp(keyId);
    const matches = timingSafeEqual(apiKeySecretHash(secret), found?.secretHash ?? NO_HASH);
    if (key === null || !matches || found?.state !== 'active') throw new Problem('unauthenticated');
    addLogFields(res, { key_id: keyId, tenant_id: found.tenantId });
    const { keyNo, tenantNo, tenantId, environment, allowlisted, environmentOpen } = found;
    const { scopes, restriction } = found;
    // The limit applies here rather than in the operations, so that requests that operations reject count as well.
    requireWithinRate(res, found.rateLimit ?? ctx.rateLimit, await countRequest(tenantNo));
    const tenant = { tenantNo, tenantId, environment, allowlisted, environmentOpen };
    return { keyNo, ...tenant, scopes, restriction };
  };
}

/** Rejects a repeated header: Node would join the values with commas. */
export function readSingleHeader(req: Request, name: string): string | undefined {
  // Fast path: headersDistinct parses all headers, which costs more than all other checks.
  if (req.get(name)?.includes(',') !== true) return req.get(name);
  const values = req.headersDistinct[name];
  if (values !== undefined && values.length > 1) {
    throw new Problem('duplicate_header', `The header ${name} is repeated. Send it once.`);
  }
  return values?.[0];
}

/** One request's position in its tenant's one-second window. */
interface WindowPosition {
  /** Number of this request in the window, from 1. */
  used: number;
  resetMs: number;
}

const WINDOW_S = 1;
const PREFIX = '{svc}:rate';
/** Longest wait for Redis before this process counts locally. */
const TIMEOUT_MS = 250;
/** Pause after a failure before Redis is tried again. */
const RETRY_AFTER_MS = 1_000;

/**
 * Counts requests in groups: requests that arrive during a round trip to Redis share the next round
 * trip. Without Redis, or during its outage, each process counts locally: the limit is then higher,
 * but still enforced, and requests do not fail.
 */
export function createRequestCounter({
  redis,
  log,
}: Pick<EngineContext, 'redis'> & { log: Pick<Logger, 'warn'> }) {
  const limits = { points: Number.MAX_SAFE_INTEGER, duration: WINDOW_S, keyPrefix: PREFIX };
  const local = new RateLimiterMemory(limits);
  const shared =
    redis === null
      ? null
      : new RateLimiterRedis({ ...limits, storeClient: redis, rejectIfRedisNotReady: true });
  let retryAt = -Infinity;
  let isFailing = false;

  async function add(key: string, requests: number): Promise<RateLimiterRes> {
    if (shared === null || performance.now() < retryAt) return local.penalty(key, requests);
    try {
      const counted = await withTimeout(shared.penalty(key, requests), TIMEOUT_MS, timedOut);
      isFailing = false;
      return counted;
    } catch (error) {
      retryAt = performance.now() + RETRY_AFTER_MS;
      if (!isFailing) {
        log.warn({ err: error }, 'Redis unavailable, this engine counts rate limits locally');
      }
      isFailing = true;
      return local.penalty(key, requests);
    }
  }

  // Requests to count in the next round trip, by tenant. A tenant has an entry while a round trip runs.
  const gathering = new Map<number, ((position: WindowPosition) => void)[]>();

  async function countAll(tenantNo: number): Promise<void> {
    // Waits, so that requests whose keys were looked up together share one round trip.
    await nextTick();
    for (;;) {
      const group = gathering.get(tenantNo) ?? [];
      if (group.length === 0) break;
      gathering.set(tenantNo, []);
      const { consumedPoints, msBeforeNext } = await add(String(tenantNo), group.length);
      const before = consumedPoints - group.length;
      group.forEach((resolve, index) => {
        resolve({ used: before + index + 1, resetMs: Math.max(0, msBeforeNext) });
      });
    }
    gathering.delete(tenantNo);
  }

  return (tenantNo: number): Promise<WindowPosition> =>
    new Promise((resolve, reject) => {
      const waiting = gathering.get(tenantNo);
      if (waiting !== undefined) {
        waiting.push(resolve);
        return;
      }
      gathering.set(tenantNo, [resolve]);
      countAll(tenantNo).catch(reject);
    });
}

const nextTick = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));

const timedOut = (): Error => new Error(`no answer in ${String(TIMEOUT_MS)} ms`);

/** Sets the fields of draft-ietf-httpapi-ratelimit-headers-10; throws a 429 above the tenant's limit. */
function requireWithinRate(res: Response, limit: number, { used, resetMs }: WindowPosition): void {
  const resetS = Math.max(1, Math.ceil(resetMs / 1000));
  res.setHeader('RateLimit-Policy', `"tenant";q=${limit};w=${WINDOW_S}`);
  res.setHeader('RateLimit', `"tenant";r=${Math.max(0, limit - used)};t=${resetS}`);
  if (used <= limit) return;
  throw new Problem(
    'rate_limited',
    `This tenant may send ${limit} requests per second. The request had no effect. Send it again after Retry-After.`,
    { headers: { 'Retry-After': String(resetS) } },
  );
}
