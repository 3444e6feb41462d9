import { pino } from 'pino';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { batchCall } from '../../fixtures/batches.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { executeBody, headersFor, issueKey, startEngine } from '../../fixtures/engine.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterAll(() => db.drop());

it('access log > writes one line per request with caller and outcome, without secrets and payload', async () => {
  const lines: Record<string, unknown>[] = [];
  const log = pino(
    { level: 'trace' },
    { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
  );
  const engine = await startEngine(registry, { log });
  const key = await issueKey(registry);
  const body = executeBody({
    intent_id: 'payload-nobody-else-may-read',
    idempotency_key: 'opaque',
  });
  const headers = { ...headersFor(key), 'X-Request-Id': 'trace-1' };
  const reply = await engine.call({
    path: '/v1/intents/execute?token=in-the-query',
    headers,
    body: JSON.stringify(body),
  });
  expect(reply.status).toBe(200);
  expect((await engine.call({ headers, body: '{"x":"payload-nobody-else-may-read"' })).status).toBe(
    400,
  );
  await expect.poll(() => lines.length).toBe(2);
  expect(lines[0]).toMatchObject({
    msg: 'request',
    request_id: 'trace-1',
    method: 'POST',
    route: '/v1/intents/execute',
    status: 200,
    key_id: key.slice(7, 19),
    tenant_id: TENANT,
    proof_id: reply.json['registry_proof_id'],
  });
  expect(typeof lines[0]!['ms']).toBe('number');
  const text = JSON.stringify(lines);
  for (const secret of [key.slice(20), 'payload-nobody', 'opaque', 'in-the-query']) {
    expect(text).not.toContain(secret);
  }
  await engine.close();
});

it('access log > writes one line and no error when a batch gets too_many_batches', async () => {
  const lines: string[] = [];
  const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
  const engine = await startEngine(registry, { log, batchesOfOneTenant: 0 });
  const reply = await engine.call(batchCall(await issueKey(registry), [executeBody()]));
  expect(reply.json['code']).toBe('too_many_batches');
  await expect.poll(() => lines.length).toBeGreaterThan(0);
  await engine.close();
  const written = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(written).toMatchObject([
    { level: pino.levels.values['info'], msg: 'request', status: 503 },
  ]);
});

it('access log > omits share tokens in any spelling of the path', async () => {
  const lines: string[] = [];
  const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
  const engine = await startEngine(registry, { log });
  const headers = headersFor(await issueKey(registry));
  const random = 'aB3-'.repeat(10) + 'xyz';
  const encoded = [...`share_${random}`].map((c) => `%${c.charCodeAt(0).toString(16)}`).join('');
  const paths = [
    `share_${random}`,
    `SHARE_${random}`,
    `%73hare_${random}`,
    `share%5F${random}`,
    `share%255f${random}`,
    `share_${random.slice(0, 9)}%${random.charCodeAt(9).toString(16)}${random.slice(10)}`,
    `share_/${random}`,
    `share_${random}/`,
    `share_${random}%`,
    random,
    encoded,
  ].flatMap((token) => [`/v1/share-tokens/${token}`, `/v1//Share-Tokens/${token}`]);
  for (const path of paths) await engine.call({ method: 'DELETE', path, headers });
  await expect.poll(() => lines.length).toBe(paths.length);
  const leaks = paths.filter((_path, i) => /xyz|%78%79%7a/.test(lines[i]!));
  expect(leaks).toEqual([]);
  const routes = lines.map((line) => (JSON.parse(line) as { route: string | null }).route);
  expect(new Set(routes)).toEqual(new Set(['/v1/share-tokens/{token_hash}', null]));
  await engine.close();
});
