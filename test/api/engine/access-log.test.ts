import { pino } from 'pino';
import { describe, expect } from 'vitest';
import { executeBody, headersFor } from '../../fixtures/engine.js';
import { TENANT } from '../../fixtures/registry.js';
import { engineTest, keyIdOf } from './setup.js';

const lines: Record<string, unknown>[] = [];
const log = pino(
  { level: 'trace' },
  { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
);
const it = engineTest({ log });

it.beforeEach(() => void lines.splice(0));

describe('access log', () => {
  it('writes one line per request with caller and outcome, without secrets and payload', async ({
    setup,
  }) => {
    const body = executeBody({
      intent_id: 'payload-of-the-tenant',
      idempotency_key: 'opaque',
    });
    const headers = { 'X-Request-Id': 'trace-1' };
    const reply = await setup.post('/v1/intents/execute?token=in-the-query', body, headers);
    expect(reply.status).toBe(200);
    expect((await setup.execute('{"x":"payload-of-the-tenant"')).status).toBe(400);
    await expect.poll(() => lines.length).toBe(2);
    expect(lines[0]).toMatchObject({
      msg: 'request',
      request_id: 'trace-1',
      method: 'POST',
      route: '/v1/intents/execute',
      status: 200,
      key_id: keyIdOf(setup.key),
      tenant_id: TENANT,
      proof_id: reply.json['registry_proof_id'],
    });
    expect(typeof lines[0]!['ms']).toBe('number');
    const text = JSON.stringify(lines);
    for (const secret of [setup.key.slice(20), 'payload-of-the-tenant', 'opaque', 'in-the-query']) {
      expect(text).not.toContain(secret);
    }
  });

  it('omits share tokens in any spelling or encoding of the path', async ({ setup }) => {
    const headers = headersFor(setup.key);
    const random = 'aB3-'.repeat(10) + 'xyz';
    const encoded = [...`share_${random}`].map((c) => `%${c.charCodeAt(0).toString(16)}`).join('');
    const paths = [
      `share_${random}`,
      `SHARE_${random}`,
      `%73hare_${random}`,
      `share%5F${random}`,
      `share_/${random}`,
      `share_${random}%`,
      encoded,
    ].flatMap((token) => [`/v1/share-tokens/${token}`, `/v1//Share-Tokens/${token}`]);
    for (const path of paths) await setup.engine.call({ method: 'DELETE', path, headers });
    await expect.poll(() => lines.length).toBe(paths.length);
    const leaks = paths.filter((_path, i) => /xyz|%78%79%7a/.test(JSON.stringify(lines[i])));
    expect(leaks).toEqual([]);
    const routes = lines.map(({ route }) => route);
    expect(new Set(routes)).toEqual(new Set(['/v1/share-tokens/{token_hash}', null]));
  });
});
