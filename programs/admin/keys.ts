import { randomBytes } from 'node:crypto';
import { SCOPES } from '#api/engine/operation';
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
  seconds,
  secondsOrNone,
  snakeCase,
  UsageError,
  words,
  type AddCommand,
  type Admin,
  type Outcome,
} from './command.js';

export function addApiKeyCommands(add: AddCommand): void {
  add(
    'key issue <tenant_id>',
    'Issue an API key; it is shown once, and only its hash is stored',
    'acme --review REV-2026-014 --scopes admit,read,export --expires-in 7776000',
    issue,
  )
    .requiredOption(
      '--review <reference>',
      'reference of the architectural review that approved the key, such as a ticket',
    )
    .option('--scopes <list>', `comma-separated, of ${SCOPES.join(', ')}`, 'admit,read')
    .option('--expires-in <seconds>', 'lifetime, or none', 'none');
  add(
    'key rotate <key_id>',
    'Issue the successor of a key, with its tenant, scopes and review',
    'k3f9a2m4x7q1 --overlap 3600',
    rotate,
  ).option('--overlap <seconds>', 'how long the old key stays valid', '86400');
  add(
    'key expire <key_id> <seconds>',
    'Set a key to expire in the given number of seconds; never extends its lifetime',
    'k3f9a2m4x7q1 3600',
    async ({ act }, key: string, lifetime: string) => {
      const [keyId, end] = [keyIdFrom(key), seconds(lifetime)];
      const expiresAt = await act((tx) => expireApiKey(tx, keyId, end));
      return { document: { key_id: keyId, expires_at: expiresAt } };
    },
  );
  add(
    'key revoke <key_id>',
    'Revoke an API key immediately and permanently, by its id or the whole key',
    'k3f9a2m4x7q1',
    async ({ act }, key: string) => {
      const keyId = keyIdFrom(key);
      await act((tx) => revokeApiKey(tx, keyId));
      return { document: { key_id: keyId, revoked: true } };
    },
  );
  add(
    'key list <tenant_id>',
    'List the keys of a tenant, including expired and revoked ones',
    'acme',
    async ({ database }, tenantId: string) => {
      const keys = await listApiKeys(await database(), tenantId);
      return {
        document: keys.map(({ reviewRef: review, ...key }) => snakeCase({ ...key, review })),
      };
    },
  );
}

async function issue(
  { act }: Admin,
  tenantId: string,
  options: { review: string; scopes: string; expiresIn: string },
): Promise<Outcome> {
  const reviewRef = words(options.review, 'the review reference');
  const listed = options.scopes.split(',').map((scope) => oneOf(scope.trim(), SCOPES));
  const scopes = [...new Set(listed)];
  const lifetime = secondsOrNone(options.expiresIn);
  if (lifetime === 0) throw new UsageError('the lifetime of a key must not be 0 seconds');
  const { keyId, secretHash, text } = newKey();
  const expiresAt = await act((tx) =>
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
}

async function rotate(
  { act }: Admin,
  oldKey: string,
  options: { overlap: string },
): Promise<Outcome> {
  const oldKeyId = keyIdFrom(oldKey);
  const overlap = seconds(options.overlap);
  const { keyId, secretHash, text } = newKey();
  const rotated = await act((tx) =>
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
}

function newKey(): { keyId: string; secretHash: Uint8Array; text: string } {
  const [keyId, secret] = [apiKeyIdFrom(randomBytes(8)), randomBytes(32)];
  const secretHash = apiKeySecretHash(nativeSha256, secret);
  return { keyId, secretHash, text: formatApiKey({ keyId, secret }) };
}

/** Returns the id of a key. Accepts the whole key as well, for reports of leaked keys. */
function keyIdFrom(text: string): string {
  const keyId = parseApiKey(text)?.keyId ?? text;
  if (/^[a-z0-9]{12}$/.test(keyId)) return keyId;
  // Does not quote the input, which may be a mistyped key.
  throw new UsageError('a key id is 12 characters of a-z and 0-9: key list <tenant_id> shows them');
}
