import { timingSafeEqual } from 'node:crypto';
import type { Request, Response } from 'express';
import { apiKeySecretHash, parseApiKey } from '#protocol/api-key';
import { coalesce } from '#runtime/concurrency';
import { nativeSha256 } from '#runtime/crypto/node';
import { authenticate as readCredentials, type Credential } from '#sql/tenants/api-keys';
import { isUnavailable } from '#sql/db/errors';
import type { EngineContext } from '../context.js';
import { addLogFields } from './request-context.js';
import { Problem } from './problem.js';
import { createRequestCounter, requireWithinRate } from './rate-limit.js';

/** The authenticated caller. Read from the database for every request, so revocation takes effect at once. */
export interface Caller extends Omit<
  Credential,
  'secretHash' | 'expiresAt' | 'revokedAt' | 'rateLimit'
> {
  keyId: string;
}

export type Authenticate = (req: Request, res: Response) => Promise<Caller>;

// Stand-in for unknown keys, so that they take the same time. Ids of this form are never issued.
const UNKNOWN_KEY = { keyId: '0'.repeat(12), secret: new Uint8Array(32) };
const NO_HASH = Buffer.alloc(32);

/**
 * Reads the caller from X-Svc-Api-Key. Malformed, unknown, wrong, expired and revoked keys take the
 * same query and the same constant-time comparison and get the same 401, so neither body nor timing
 * reveals the reason. Only valid keys count towards the tenant's rate limit. Database errors pass
 * through: they are neither a 401 nor a permit.
 */
export function createAuthenticate(ctx: EngineContext): Authenticate {
  const lookUp = coalesce<string, Credential | undefined>({
    maxWaitMs: 1,
    maxItems: ctx.coalesceItems,
    isRetryAlone: (error) => !isUnavailable(error),
    run: async (keyIds) => {
      const found = await readCredentials(ctx.sql, [...new Set(keyIds)]);
      return keyIds.map((keyId) => found.get(keyId));
    },
  });

  const counter = createRequestCounter(ctx);

  return async (req, res) => {
    const sent = req.get('x-svc-api-key');
    if (sent === undefined) throw new Problem('unauthenticated');
    const key = parseApiKey(sent);
    const { keyId, secret } = key ?? UNKNOWN_KEY;
    const found = await lookUp(keyId);
    const matches = timingSafeEqual(
      apiKeySecretHash(nativeSha256, secret),
      found?.secretHash ?? NO_HASH,
    );
    const now = ctx.clock.now();
    const inForce =
      found !== undefined &&
      found.revokedAt === null &&
      (found.expiresAt === null || now < found.expiresAt);
    if (key === null || found === undefined || !matches || !inForce)
      throw new Problem('unauthenticated');
    addLogFields(res, { key_id: keyId, tenant_id: found.tenantId });
    const { keyNo, tenantNo, tenantId, environment, allowlisted, environmentOpen, scopes } = found;
    // Here rather than in the operations, so that rejected requests count as well.
    requireWithinRate(res, found.rateLimit ?? ctx.rateLimit, await counter.count(tenantNo));
    return { keyId, keyNo, tenantNo, tenantId, environment, allowlisted, environmentOpen, scopes };
  };
}
