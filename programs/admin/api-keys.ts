import {
  API_KEY_ID_PATTERN,
  type KeyRestriction,
  keyRestrictionSchema,
  SCOPES,
  UNRESTRICTED_SCOPES,
} from '#protocol/schemas/api-keys';
import { safeParse } from '#protocol/schemas/messages';
import { newApiKey, parseApiKey } from '#runtime/crypto/api-key';
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
    .option('--expires-in <seconds>', 'lifetime, or none', 'none')
    .option('--agent <agent_id>', 'restrict the key to envelopes of this agent')
    .option('--action <patterns...>', 'restrict the key to actions; * matches any characters')
    .option('--tool <patterns...>', 'restrict the key to tools; * matches any characters')
    .option('--environment <name>', 'restrict the key to sandbox or live');
  add(
    'key rotate <key_id>',
    'Issue the successor of a key, with its tenant, scopes, restriction and review',
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
      return { key_id: keyId, expires_at: expiresAt };
    },
  );
  add(
    'key revoke <key_id>',
    'Revoke an API key immediately and permanently, by its id or the whole key',
    'k3f9a2m4x7q1',
    async ({ act }, key: string) => {
      const keyId = keyIdFrom(key);
      await act((tx) => revokeApiKey(tx, keyId));
      return { key_id: keyId, revoked: true };
    },
  );
  add(
    'key list <tenant_id>',
    'List the keys of a tenant, including expired and revoked ones',
    'acme',
    async ({ database }, tenantId: string) => {
      const keys = await listApiKeys(await database(), tenantId);
      return keys.map(({ reviewRef: review, ...key }) => snakeCase({ ...key, review }));
    },
  );
}

async function issue(
  { act }: Admin,
  tenantId: string,
  options: { review: string; scopes: string; expiresIn: string } & RestrictionOptions,
) {
  const reviewRef = words(options.review, 'the review reference');
  const listed = options.scopes.split(',').map((scope) => oneOf(scope.trim(), SCOPES));
  const scopes = [...new Set(listed)];
  const restriction = restrictionFrom(options);
  if (restriction !== null && scopes.some((scope) => UNRESTRICTED_SCOPES.includes(scope))) {
    throw new UsageError(
      `a restricted key cannot have the scope ${UNRESTRICTED_SCOPES.join(' or ')}`,
    );
  }
  const lifetime = secondsOrNone(options.expiresIn);
  if (lifetime === 0) throw new UsageError('the lifetime of a key must not be 0 seconds');
  const { keyId, secretHash, text } = newApiKey();
  const expiresAt = await act((tx) =>
    insertApiKey(tx, { keyId, tenantId, secretHash, scopes, restriction, reviewRef, lifetime }),
  );
  const issued = { tenantId, scopes, restriction, review: reviewRef, expiresAt };
  return { api_key: text, key_id: keyId, ...snakeCase(issued) };
}

interface RestrictionOptions {
  agent?: string;
  action?: string[];
  tool?: string[];
  environment?: string;
}

function restrictionFrom(options: RestrictionOptions): KeyRestriction | null {
  const given = {
    agent_id: options.agent,
    actions: options.action,
    tools: options.tool,
    environment: options.environment,
  };
  const members = Object.entries(given).filter(([, value]) => value !== undefined);
  if (members.length === 0) return null;
  const result = safeParse(keyRestrictionSchema, Object.fromEntries(members));
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new UsageError(`the restriction is invalid: ${issue?.path.join('.')}: ${issue?.message}`);
}

async function rotate({ act }: Admin, oldKey: string, options: { overlap: string }) {
  const oldKeyId = keyIdFrom(oldKey);
  const overlap = seconds(options.overlap);
  const { keyId, secretHash, text } = newApiKey();
  const rotated = await act((tx) =>
    rotateApiKey(tx, { oldKeyId, newKeyId: keyId, secretHash, overlap }),
  );
  const { tenantId, scopes, restriction, reviewRef: review } = rotated;
  const issued = { tenantId, scopes, restriction, review, expiresAt: rotated.newExpiresAt };
  const replaced = { replaces: oldKeyId, replaced_until: rotated.oldExpiresAt };
  return { api_key: text, key_id: keyId, ...snakeCase(issued), ...replaced };
}

/** Returns the id of a key. Accepts the whole key as well, for reports of leaked keys. */
function keyIdFrom(text: string): string {
  const keyId = parseApiKey(text)?.keyId ?? text;
  if (API_KEY_ID_PATTERN.test(keyId)) return keyId;
  // Does not quote the input, which may be a mistyped key.
  throw new UsageError(
    'a key id must be 12 characters of a-z and 0-9: key list <tenant_id> shows the ids',
  );
}
