import { randomBytes } from 'node:crypto';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey, parseApiKey } from '#protocol/api-key';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto';
import {
  createTenant,
  insertApiKey,
  revokeApiKey,
  setAllowlisted,
  setLane,
  setValidity,
} from '#sql/administration';
import { argument, oneOf, required, secondsOrNone, type Command } from './command.js';

const ENVIRONMENTS = ['sandbox', 'live'] as const;
const SCOPES = ['admit', 'read', 'export', 'verify', 'lifecycle', 'admin'] as const;

export const tenantCommands: Command[] = [
  {
    name: 'tenant create',
    takes: ['<tenant_id>', '<sandbox|live>'],
    help: 'create a tenant, not allowlisted yet',
    run: async (sql, given) => {
      const tenantId = argument(given, 0);
      const environment = oneOf(argument(given, 1), ENVIRONMENTS);
      await createTenant(sql, { tenantId, environment });
      return { tenant_id: tenantId, environment };
    },
  },
  {
    name: 'tenant allow',
    takes: ['<tenant_id>'],
    help: 'put a tenant on the allowlist',
    run: async (sql, given) => {
      await setAllowlisted(sql, argument(given, 0), true);
      return { tenant_id: argument(given, 0), allowlisted: true };
    },
  },
  {
    name: 'tenant disallow',
    takes: ['<tenant_id>'],
    help: 'take a tenant off the allowlist; holds for what is accepted and not yet signed, too',
    run: async (sql, given) => {
      await setAllowlisted(sql, argument(given, 0), false);
      return { tenant_id: argument(given, 0), allowlisted: false };
    },
  },
  {
    name: 'tenant validity',
    takes: ['<tenant_id>', '<proof>', '<passport>', '<certificate>', '<trust>'],
    help: 'how long artifacts of admissions from now on assert, in seconds or none',
    run: async (sql, given) => {
      const validity = {
        proof: secondsOrNone(argument(given, 1)),
        passport: secondsOrNone(argument(given, 2)),
        certificate: secondsOrNone(argument(given, 3)),
        trust: secondsOrNone(argument(given, 4)),
      };
      await setValidity(sql, argument(given, 0), validity);
      return { tenant_id: argument(given, 0), validity };
    },
  },
  {
    name: 'lane open',
    takes: ['<sandbox|live>'],
    help: 'open the execution lane of an environment',
    run: async (sql, given) => {
      const environment = oneOf(argument(given, 0), ENVIRONMENTS);
      await setLane(sql, environment, true);
      return { environment, open: true };
    },
  },
  {
    name: 'lane lock',
    takes: ['<sandbox|live>'],
    help: 'lock it; takes effect at once, also for what is accepted and not yet signed',
    run: async (sql, given) => {
      const environment = oneOf(argument(given, 0), ENVIRONMENTS);
      await setLane(sql, environment, false);
      return { environment, open: false };
    },
  },
  {
    name: 'key issue',
    takes: ['<tenant_id>'],
    options: {
      review: { required: true, help: 'reference of the architectural review' },
      scopes: { required: false, help: `comma-separated, of ${SCOPES.join(', ')}` },
      'expires-in': { required: false, help: 'seconds, or none (the default)' },
    },
    help: 'issue an API key; it is shown once, and only its hash is kept',
    run: async (sql, given) => {
      const tenantId = argument(given, 0);
      const secret = randomBytes(32);
      const keyId = apiKeyIdFrom(randomBytes(8));
      const scopes = (given.option('scopes') ?? 'admit,read')
        .split(',')
        .map((scope) => oneOf(scope, SCOPES));
      const lifetime = secondsOrNone(given.option('expires-in') ?? 'none');
      const expiresAt = lifetime === null ? null : Date.now() + lifetime * 1000;
      await insertApiKey(sql, {
        keyId,
        tenantId,
        secretHash: apiKeySecretHash(nativeSha256, secret),
        scopes,
        reviewRef: required(given, 'review'),
        expiresAt,
      });
      return {
        api_key: formatApiKey({ keyId, secret }),
        key_id: keyId,
        tenant_id: tenantId,
        scopes,
        expires_at: expiresAt === null ? null : formatTime(expiresAt),
      };
    },
  },
  {
    name: 'key revoke',
    takes: ['<key_id or whole key>'],
    help: 'revoke an API key, at once and for ever',
    run: async (sql, given) => {
      const keyId = parseApiKey(argument(given, 0))?.keyId ?? argument(given, 0);
      await revokeApiKey(sql, keyId);
      return { key_id: keyId, revoked: true };
    },
  },
];
