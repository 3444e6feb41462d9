import { timingSafeEqual } from 'node:crypto';
import type { Request, Response } from 'express';
import { apiKeySecretHash, parseApiKey } from '#protocol/api-key';
import { coalesce } from '#runtime/concurrency/coalesce';
import { nativeSha256 } from '#runtime/crypto/node';
import { authenticate as readCredentials, type Credential } from '#sql/tenants/authenticate';
import { isUnavailable } from '#sql/db/errors';
import type { EngineContext } from '../context.js';
import { addLogFields } from './request-context.js';
import { Problem } from './problem.js';
import { createRequestCounter, requireWithinRate } from './rate-limit.js';

/** Who asks, as the database says at this moment: nothing of it is ever remembered. */
export interface Caller extends Omit<
  Credential,
  'secretHash' | 'expiresAt' | 'revokedAt' | 'rateLimit'
> {
  keyId: string;
}

export type Authenticate = (req: Request, res: Response) => Promise<Caller>;

// Compared with when there is nothing to compare with. No id of this form is ever issued.
const NOBODY = { keyId: '0'.repeat(12), secret: new Uint8Array(32) };
const NO_HASH = Buffer.alloc(32);

/**
 * Reads the caller from X-Svc-Api-Key. Malformed, unknown, wrong, expired and revoked keys go the
 * same way, through the same query and the same comparison, to the same answer: nobody learns from
 * the body or the time which of them it was. Only a good key counts towards its tenant's rate: who
 * has none cannot use it up. A database that cannot be asked is neither a refusal nor a permit; its
 * error passes through.
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
    if (sent === undefined) throw unauthenticated();
    const key = parseApiKey(sent);
    const { keyId, secret } = key ?? NOBODY;
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
    if (key === null || found === undefined || !matches || !inForce) throw unauthenticated();
    addLogFields(res, { keyId, tenantId: found.tenantId });
    const { keyNo, tenantNo, tenantId, environment, allowlisted, laneOpen, scopes } = found;
    // Here, so that no operation can forget it, and what is refused for anything else counts too.
    requireWithinRate(res, found.rateLimit ?? ctx.rateLimit, await counter.count(tenantNo));
    return { keyId, keyNo, tenantNo, tenantId, environment, allowlisted, laneOpen, scopes };
  };
}

function unauthenticated(): Problem {
  return new Problem('unauthenticated', 'Send a valid engine key in X-Svc-Api-Key.', {
    headers: { 'WWW-Authenticate': 'ApiKey realm="engine"' },
  });
}
