import { randomBytes } from 'node:crypto';
import { SCOPES } from '#api/engine/http/gates';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey, parseApiKey } from '#protocol/api-key';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  expireApiKey,
  insertApiKey,
  listApiKeys,
  revokeApiKey,
  rotateApiKey,
} from '#sql/tenants/api-keys';
import {
  oneOf,
  required,
  seconds,
  secondsOrNone,
  UsageError,
  words,
  type Command,
  type ParsedArgs,
} from './command.js';

const DEFAULT_SCOPES = 'admit,read';
const DEFAULT_OVERLAP_S = '86400';

export const apiKeyCommands: Command[] = [
  {
    name: 'key issue',
    takes: ['<tenant_id>'],
    options: {
      review: {
        value: 'reference',
        required: true,
        help: 'reference of the architectural review that approved the key, such as a ticket',
      },
      scopes: {
        value: 'list',
        help: `comma-separated, of ${SCOPES.join(', ')} (${DEFAULT_SCOPES} by default)`,
      },
      'expires-in': { value: 'seconds', help: 'or none, the default' },
    },
    help: 'issue an API key; it is shown once, and only its hash is stored',
    example: 'key issue acme --review REV-2026-014 --scopes admit,read,export --expires-in 7776000',
    run: async (admin, given) => {
      const tenantId = given.argument(0);
      const reviewRef = words(required(given, 'review'), 'the review reference');
      const scopes = scopesFrom(given.option('scopes') ?? DEFAULT_SCOPES);
      const lifetime = secondsOrNone(given.option('expires-in') ?? 'none');
      if (lifetime === 0) throw new UsageError('the lifetime of a key must not be 0 seconds');
      const { keyId, secretHash, text } = newKey();
      const expiresAt = await admin.act((tx) =>
        insertApiKey(tx, { keyId, tenantId, secretHash, scopes, reviewRef, lifetime }),
      );
      return {
        document: {
          api_key: text,
          key_id: keyId,
          tenant_id: tenantId,
          scopes,
          review: reviewRef,
          expires_at: expiresAt,
        },
      };
    },
  },
  {
    name: 'key rotate',
    takes: ['<key_id>'],
    options: {
      overlap: {
        value: 'seconds',
        help: `how long the old key stays valid (${DEFAULT_OVERLAP_S} by default)`,
      },
    },
    help: 'issue the successor of a key, with its tenant, scopes and review',
    example: 'key rotate k3f9a2m4x7q1 --overlap 3600',
    run: async (admin, given) => {
      const oldKeyId = keyIdFrom(given);
      const overlap = seconds(given.option('overlap') ?? DEFAULT_OVERLAP_S);
      const { keyId, secretHash, text } = newKey();
      const rotated = await admin.act((tx) =>
        rotateApiKey(tx, { oldKeyId, newKeyId: keyId, secretHash, overlap }),
      );
      return {
        document: {
          api_key: text,
          key_id: keyId,
          tenant_id: rotated.tenantId,
          scopes: rotated.scopes,
          review: rotated.reviewRef,
          expires_at: rotated.newExpiresAt,
          replaces: oldKeyId,
          replaced_until: rotated.oldExpiresAt,
        },
      };
    },
  },
  {
    name: 'key expire',
    takes: ['<key_id>', '<seconds>'],
    help: 'set a key to expire in the given number of seconds; never extends its lifetime',
    example: 'key expire k3f9a2m4x7q1 3600',
    run: async (admin, given) => {
      const keyId = keyIdFrom(given);
      const end = seconds(given.argument(1));
      const expiresAt = await admin.act((tx) => expireApiKey(tx, keyId, end));
      return { document: { key_id: keyId, expires_at: expiresAt } };
    },
  },
  {
    name: 'key revoke',
    takes: ['<key_id>'],
    help: 'revoke an API key immediately and permanently, by its id or the whole key',
    example: 'key revoke k3f9a2m4x7q1',
    run: async (admin, given) => {
      const keyId = keyIdFrom(given);
      await admin.act((tx) => revokeApiKey(tx, keyId));
      return { document: { key_id: keyId, revoked: true } };
    },
  },
  {
    name: 'key list',
    takes: ['<tenant_id>'],
    help: 'list the keys of a tenant, including expired and revoked ones',
    example: 'key list acme',
    run: async (admin, given) => {
      const keys = await listApiKeys(await admin.database(), given.argument(0));
      return {
        document: keys.map((key) => ({
          key_id: key.keyId,
          state: key.state,
          scopes: key.scopes,
          review: key.reviewRef,
          replaces: key.replaces,
          created_at: key.createdAt,
          expires_at: key.expiresAt,
          revoked_at: key.revokedAt,
        })),
      };
    },
  },
];

function newKey(): { keyId: string; secretHash: Uint8Array; text: string } {
  const keyId = apiKeyIdFrom(randomBytes(8));
  const secret = randomBytes(32);
  return {
    keyId,
    secretHash: apiKeySecretHash(nativeSha256, secret),
    text: formatApiKey({ keyId, secret }),
  };
}

function scopesFrom(list: string): string[] {
  return [...new Set(list.split(',').map((scope) => oneOf(scope.trim(), SCOPES)))];
}

/** The id of a key. Accepts a whole key, for a report of a leaked one. */
function keyIdFrom(given: ParsedArgs): string {
  const said = given.argument(0);
  const keyId = parseApiKey(said)?.keyId ?? said;
  if (/^[a-z0-9]{12}$/.test(keyId)) return keyId;
  // The input is not quoted: it may be a mistyped key.
  throw new UsageError('a key id is 12 characters of a-z and 0-9: key list <tenant_id> shows them');
}
