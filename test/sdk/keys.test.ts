import { expect } from 'vitest';
import { createApiKeyHttp } from '#sdk/index';
import { sdkError } from '../fixtures/sdk-error.js';
import { sdkTest } from '../fixtures/sdk-world.js';

const it = sdkTest();

it('createApiKeyHttp > does not retry, because each request creates a key', async ({ world }) => {
  let sent = 0;
  const fails: typeof fetch = () => {
    sent += 1;
    return Promise.reject(new TypeError('network'));
  };
  const options = { ...world.shaky, fetch: fails };
  await sdkError(createApiKeyHttp(options, { scopes: ['read'] }), 'network');
  expect(sent).toBe(1);
});
