import {
  API_KEY_ID_PATTERN,
  apiKeyListSchema,
  apiKeyRequestSchema,
  createdApiKeySchema,
  type ApiKeyList,
  type ApiKeyRequest,
  type CreatedApiKey,
  type ListedApiKey,
} from '../../protocol/schemas/api-keys.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { canonicalHash } from '../canonical.js';
import { readDocument, unexpected, validBody } from '../http/answers.js';
import { type EngineOptions, invalidInput } from '../options.js';
import { openEngine } from './engine.js';
import { itemsOf, type PageInput, readPage } from './pages.js';

/** Scopes, and optionally a restriction and an expiry. */
export type ApiKeyInput = Omit<ApiKeyRequest, 'schema_version'>;

/**
 * `POST /v1/keys`: creates an API key of the tenant, for example one for each agent; the calling key
 * needs the scope `keys`. Only this response has the key.
 *
 * Never retries, because each request creates another key. After `aborted`, `timeout`, `network`, `unavailable` or
 * `engine_failed`, list the keys, and revoke those that you did not receive.
 */
export async function createApiKeyHttp(
  options: EngineOptions,
  input: ApiKeyInput,
): Promise<CreatedApiKey> {
  const engine = openEngine({ ...options, retry: { ...options.retry, attempts: 1 } });
  const body = validBody(apiKeyRequestSchema, { schema_version: SCHEMA.apiKeyRequest, ...input });
  const request = { method: 'POST', path: '/v1/keys', body, expected: [201] } as const;
  const answer = await engine.read(request);
  const created = readDocument(answer, createdApiKeySchema);
  if (hasRights(created, input)) return created;
  throw unexpected(answer, 'the key in the response does not have the requested rights');
}

const RESTRICTIONS = ['agent_id', 'actions', 'tools', 'environment'] as const;

/** Whether a key has exactly the requested scopes and restriction, and expires in time. */
function hasRights(
  created: CreatedApiKey,
  { expires_at, restriction, scopes }: ApiKeyInput,
): boolean {
  const { expires_at: end } = created;
  return (
    canonicalHash([...created.scopes].sort()) === canonicalHash([...new Set(scopes)].sort()) &&
    RESTRICTIONS.every(
      (name) =>
        canonicalHash(created.restriction?.[name] ?? null) ===
        canonicalHash(restriction?.[name] ?? null),
    ) &&
    (expires_at === undefined || (end !== null && end <= expires_at))
  );
}

/** `GET /v1/keys`: one page of the API keys of the tenant, the newest first, without the keys themselves. */
export const listApiKeyPageHttp = (
  options: EngineOptions,
  input: PageInput = {},
): Promise<ApiKeyList> => readPage(options, '/v1/keys', apiKeyListSchema, input);

/** All API keys of the tenant, the newest first, without the keys themselves. */
export function listApiKeysHttp(
  options: EngineOptions,
): AsyncGenerator<ListedApiKey, void, undefined> {
  return itemsOf(options, '/v1/keys', apiKeyListSchema, (page) => page.keys);
}

/**
 * `POST /v1/keys/{key_id}/revoke`: revokes an API key of the tenant and the keys that this key created,
 * at once and permanently.
 */
export async function revokeApiKeyHttp(
  options: EngineOptions,
  { key_id: keyId }: { key_id: string },
): Promise<void> {
  if (typeof keyId !== 'string' || !API_KEY_ID_PATTERN.test(keyId)) {
    throw invalidInput('/key_id', 'a key id is 12 characters of a-z and 0-9');
  }
  const path = `/v1/keys/${keyId}/revoke`;
  await openEngine(options).read({ method: 'POST', path, expected: [204] });
}
