import {
  API_KEY_ID_PATTERN,
  apiKeyListSchema,
  apiKeyRequestSchema,
  createdApiKeySchema,
  type Scope,
} from '#protocol/schemas/api-keys';
import { SCHEMA } from '#protocol/schemas/ids';
import { formatTime, parseTime } from '#protocol/time';
import { newApiKey } from '#runtime/crypto/api-key';
import {
  createTenantKey,
  listTenantKeys,
  revokeTenantKey,
  type ApiKeyRow,
} from '#sql/tenants/api-keys';
import type { Caller } from '../http/authenticate.js';
import { documentOperation, hasScope, tenantOperation } from '../http/request.js';
import { listOperation } from '../http/paging.js';
import { at, Problem } from '../http/problem.js';
import { sendJson } from '../http/respond.js';
import { json } from '../operation.js';

export const createApiKeyOperation = documentOperation(
  {
    id: 'createApiKey',
    method: 'post',
    path: '/v1/keys',
    tag: 'Keys',
    summary: 'Create an API key',
    description:
      'Creates a key of your tenant. The calling key must have each of its scopes, or `admin`. The new ' +
      'key expires no later than the calling key; a later change of that expiry does not ' +
      'affect the new key. A restricted key admits only what its restriction allows, and can have neither the ' +
      'scope `keys` nor `admin`. Only this response shows the key. Sending the same body again creates ' +
      'another key: if the response is lost, revoke the key by its id from the list.',
    scopes: ['keys'],
    body: {
      schema: apiKeyRequestSchema,
      examples: {
        agent: {
          schema_version: SCHEMA.apiKeyRequest,
          scopes: ['admit', 'read'],
          restriction: {
            agent_id: 'booking-agent-7',
            actions: ['BOOK_*', 'SEND_REPORT'],
            tools: ['reservations.*'],
            environment: 'sandbox',
          },
          expires_at: '2036-12-31T23:59:59.000Z',
        },
      },
    },
    responses: { 201: json('Created. Only this response shows the key.', createdApiKeySchema) },
    problems: ['expiry_over', 'too_many_keys'],
  },
  async ({ caller, ctx, inTenant, res }, document) => {
    requireScopes(caller, document.scopes);
    const expiresAt = document.expires_at === undefined ? null : parseTime(document.expires_at);
    if (expiresAt !== null && expiresAt <= ctx.clock.now()) {
      const detail = 'The key would expire at once. Send a later expires_at.';
      throw new Problem('expiry_over', detail, at('/expires_at', 'must be in the future'));
    }
    const { keyId, secretHash, text } = newApiKey();
    const { scopes, restriction = null } = document;
    const made = { keyId, secretHash, scopes: [...new Set(scopes)], restriction, expiresAt };
    const key = await inTenant(createTenantKey, caller.keyNo, made);
    if (key === null) throw new Problem('unauthenticated');
    if (key === 'too_many') throw new Problem('too_many_keys');
    sendJson(res, 201, { schema_version: SCHEMA.apiKey, api_key: text, ...membersOf(key) });
  },
);

function requireScopes(caller: Caller, scopes: readonly Scope[]): void {
  const lacking = scopes.findIndex((scope) => !hasScope(caller, [scope]));
  if (lacking === -1) return;
  throw new Problem(
    'scope_missing',
    `This API key lacks the scope ${String(scopes[lacking])}, so it cannot create a key with that scope. Nothing was created.`,
    at(`/scopes/${String(lacking)}`, 'must be a scope that the calling key has'),
  );
}

const timeOrNull = (time: Date | null) => time && formatTime(time.getTime());

const membersOf = ({ keyId, scopes, restriction, createdBy, createdAt, expiresAt }: ApiKeyRow) => ({
  key_id: keyId,
  scopes,
  restriction,
  created_by: createdBy,
  created_at: formatTime(createdAt.getTime()),
  expires_at: timeOrNull(expiresAt),
});

export const listApiKeysOperation = listOperation(
  {
    id: 'listApiKeys',
    path: '/v1/keys',
    tag: 'Keys',
    summary: 'List API keys',
    description:
      'Lists your API keys without their secrets, newest first, including keys that the operator issued.',
    scopes: ['keys'],
    page: json('A page of API keys, including expired and revoked keys.', apiKeyListSchema),
  },
  {
    name: 'keys',
    version: SCHEMA.apiKeyList,
    documentOf: (key: ApiKeyRow) => ({
      ...membersOf(key),
      state: key.state,
      revoked_at: timeOrNull(key.revokedAt),
    }),
    id: API_KEY_ID_PATTERN,
    placeOf: ({ createdAt, keyId }) => ({ createdAt: createdAt.getTime(), id: keyId }),
    read: listTenantKeys,
  },
);

export const revokeApiKeyOperation = tenantOperation(
  {
    id: 'revokeApiKey',
    method: 'post',
    path: '/v1/keys/{key_id}/revoke',
    tag: 'Keys',
    summary: 'Revoke an API key',
    description:
      'Revokes a key of your tenant, and every key that it created, at once and permanently. Their ' +
      'admissions that are not signed yet are rejected. A key can revoke itself. Revoking again changes ' +
      'nothing.',
    scopes: ['keys'],
    responses: { 204: { description: 'The key is revoked.' } },
    problems: ['key_not_found'],
  },
  async ({ caller, inTenant, req, res }) => {
    const keyId = String(req.params['key_id']);
    const outcome = API_KEY_ID_PATTERN.test(keyId)
      ? await inTenant(revokeTenantKey, caller.keyNo, keyId)
      : 'unknown';
    if (outcome === 'unknown') throw new Problem('key_not_found');
    if (outcome === 'rejected') throw new Problem('unauthenticated');
    res.status(204).end();
  },
);
