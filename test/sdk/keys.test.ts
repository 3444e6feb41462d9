import { describe, expect } from 'vitest';
import { admitHttp, createApiKeyHttp, listApiKeyPageHttp, revokeApiKeyHttp } from '#sdk/index';
import { sdkError } from '../fixtures/sdk-error.js';
import { sdkTest } from '../fixtures/sdk-world.js';

const it = sdkTest();

describe('createApiKeyHttp', () => {
  it('creates a key for one agent, which is listed and can be revoked', async ({ world }) => {
    const restriction = { agent_id: 'support-1', tools: ['refunds.*'] };
    const made = await createApiKeyHttp(world.options, { scopes: ['admit'], restriction });
    const own = { ...world.options, apiKey: made.api_key };
    const admission = { kind: 'admission', action: 'REFUND', tool: 'refunds.issue' } as const;
    await admitHttp(own, { ...admission, agent: { id: 'support-1' } });
    const error = await sdkError(admitHttp(own, { ...admission, agent: { id: 'x' } }), 'forbidden');
    expect(error.problem).toMatchObject({ code: 'key_restricted' });

    const page = await listApiKeyPageHttp(world.options, { limit: 1 });
    expect(page.keys).toMatchObject([{ key_id: made.key_id, restriction, state: 'active' }]);
    const next = await listApiKeyPageHttp(world.options, { cursor: page.next_cursor ?? '' });
    expect(next.keys.map(({ key_id }) => key_id)).toEqual([made.created_by]);

    await revokeApiKeyHttp(world.options, made);
    await revokeApiKeyHttp(world.options, made);
    await sdkError(admitHttp(own, { ...admission, agent: { id: 'support-1' } }), 'unauthenticated');
    await sdkError(revokeApiKeyHttp(world.options, { key_id: 'z'.repeat(12) }), 'not_found');
    await sdkError(revokeApiKeyHttp(world.options, { key_id: '../proofs' }), 'invalid_input');
  });

  it('does not retry, because each request creates a key', async ({ world }) => {
    let sent = 0;
    const fails: typeof fetch = () => {
      sent += 1;
      return Promise.reject(new TypeError('network'));
    };
    const options = { ...world.shaky, fetch: fails };
    await sdkError(createApiKeyHttp(options, { scopes: ['read'] }), 'network');
    expect(sent).toBe(1);
  });
});
