import { lstatSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished } from 'vitest';
import { treeSize } from '#sql/log/log';
import { canonicalHash, executeIntentHttp, readProofHttp } from '#sdk/index';
import { breakNetwork, type Fault } from '../fixtures/broken-network.js';
import { failSync } from '../fixtures/failing-sync.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, sdkTest } from '../fixtures/sdk-world.js';
import { openFolder, svc } from '../fixtures/svc.js';

const it = sdkTest();

const answering = (status: number, headers?: Record<string, string>): Fault => ({
  kind: 'answer',
  status,
  ...(headers && { headers }),
});
const json = (status: number, body: string, type = 'application/json'): Fault => ({
  kind: 'answer',
  status,
  headers: { 'Content-Type': type },
  body,
});

const faults: [string, Fault][] = [
  ['a lost request', { kind: 'lost' }],
  ['a lost response', { kind: 'unanswered' }],
  ['a cut response', { kind: 'cut' }],
  ...[408, 429, 502, 503, 504].map((status): [string, Fault] => [
    String(status),
    answering(status),
  ]),
];
it.for(faults)(
  'executeIntentHttp, on a transient fault > sends an identical admission again after %s',
  async ([, fault], { world }) => {
    const before = await treeSize(world.db.sql);
    world.network.faults.push(fault);
    const input = intent();
    const receipt = await executeIntentHttp(world.shaky, input);
    const [first, second] = world.network.seen;
    expect(world.network.seen).toHaveLength(2);
    expect(second?.body).toBe(first?.body);
    expect(second?.headers['x-svc-idempotency-key']).toBe(receipt.request_hash);
    expect(await treeSize(world.db.sql)).toBe(before + 1);
    expect(await executeIntentHttp(world.options, input)).toEqual(receipt);
  },
);

describe('executeIntentHttp, on an error response', () => {
  it.for([
    [400, 'unexpected_response'],
    [403, 'unexpected_response'],
    [500, 'engine_failed'],
  ] as const)('does not retry %i', async ([status, code], { world }) => {
    world.network.faults.push(answering(status));
    const error = await sdkError(executeIntentHttp(world.shaky, intent()), code);
    expect(error.status).toBe(status);
    expect(world.network.seen).toHaveLength(1);
  });

  it("accepts a problem document only when its status equals the response's", async ({ world }) => {
    const problem = { type: 'urn:svc:problem:a', title: 'a', detail: 'b', code: 'lane_locked' };
    const problemWith = (body: object) =>
      json(423, JSON.stringify(body), 'application/problem+json');
    world.network.faults.push(problemWith({ ...problem, status: 423, request_id: 'r-1' }));
    const error = await sdkError(executeIntentHttp(world.shaky, intent()), 'lane_locked');
    expect(error.problem).toMatchObject({ code: 'lane_locked', request_id: 'r-1' });
    for (const body of [{ ...problem, status: 403 }, { status: 423 }]) {
      world.network.faults.push(problemWith(body));
      await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
    }
  });

  it('throws unexpected_response for a denial without its receipt', async ({ world }) => {
    world.network.faults.push({
      kind: 'changed',
      change: (body) => body.replace('"status":"DENIED"', '"status":"ADMITTED"'),
    });
    const input = intent({ action: 'DELETE_AUDIT_LOG' });
    const error = await sdkError(executeIntentHttp(world.shaky, input), 'unexpected_response');
    expect(error.denial).toBeUndefined();
  });
});

it('Retry-After > makes the call fail when the delay exceeds the remaining time', async ({
  world,
}) => {
  world.network.faults.push(answering(429, { 'Retry-After': '3600' }));
  const error = await sdkError(executeIntentHttp(world.shaky, intent()), 'rate_limited');
  expect(error.retryAfterMs).toBe(3_600_000);
  expect(world.network.seen).toHaveLength(1);
});

it.for([
  ['a pending request', { kind: 'silent' }],
  ['the delay before a retry', answering(503, { 'Retry-After': '20' })],
] as [string, Fault][])('AbortSignal of a call > aborts %s', async ([, fault], { world }) => {
  world.network.faults.push(fault);
  const stopping = new AbortController();
  const call = executeIntentHttp({ ...world.shaky, signal: stopping.signal }, intent());
  call.catch(() => undefined);
  await expect.poll(() => world.network.seen.length).toBe(1);
  const reason = new Error('enough');
  stopping.abort(reason);
  const error = await sdkError(call, 'aborted');
  expect(error).toMatchObject({ cause: reason, retryable: false });
  expect(world.network.seen).toHaveLength(1);
});

describe('200 response without the receipt of the request', () => {
  const changed = (change: (receipt: Record<string, string>) => unknown): Fault => ({
    kind: 'changed',
    change: (body) => JSON.stringify(change(JSON.parse(body) as Record<string, string>)),
  });
  const flipped = (text = ''): string => text.replace(/.$/, (last) => (last === '0' ? '1' : '0'));

  const cases: [string, Fault][] = [
    ['an HTML page', answering(200)],
    ['an empty document', json(200, '{}')],
    [
      'a repeated member',
      { kind: 'changed', change: (body) => body.replace('{', '{"status":"X",') },
    ],
    ['an additional member', changed((receipt) => ({ ...receipt, more: 1 }))],
    ['a denial with a correct hash', changed(denial)],
    [
      'another proof',
      changed((receipt) => ({
        ...receipt,
        registry_proof_id: flipped(receipt['registry_proof_id']),
      })),
    ],
    ['17 MiB', json(200, ' '.repeat(17 * 1024 * 1024))],
  ];
  it.for(cases)('is an unexpected_response: %s', async ([, fault], { world }) => {
    world.network.faults.push(fault);
    const error = await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
    expect(error).toMatchObject({ status: 200, retryable: false });
    expect(world.network.seen).toHaveLength(1);
  });

  it('is an unexpected_response with the receipt or proof of another request', async ({
    world,
  }) => {
    const one = await executeIntentHttp(world.options, intent());
    const two = await executeIntentHttp(world.options, intent());
    world.network.faults.push(json(200, JSON.stringify(one)));
    await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
    const view = await readProofHttp(world.options, { proof_id: one.registry_proof_id });
    world.network.faults.push(json(200, JSON.stringify(view.response)));
    const call = readProofHttp(world.shaky, { proof_id: two.registry_proof_id });
    await sdkError(call, 'unexpected_response');
  });
});

describe('SDK calls with an API key', () => {
  it('do not send the key to the target of a redirect', async ({ world }) => {
    const elsewhere = await breakNetwork(world.engine.url);
    onTestFinished(elsewhere.close);
    const location = { Location: `${elsewhere.url}/v1/intents/execute` };
    world.network.faults.push(answering(307, location));
    await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
    expect(elsewhere.seen).toEqual([]);
  });

  it('do not send the key to another origin in the Location of a 202', async ({ world }) => {
    const elsewhere = await breakNetwork(world.engine.url);
    onTestFinished(elsewhere.close);
    const proof_id = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
    const schema_version = 'svc.runtime.admission_status/1.0';
    const accepted = (path: string): Fault => ({
      kind: 'answer',
      status: 202,
      headers: { 'Content-Type': 'application/json', Location: `${elsewhere.url}${path}` },
      body: JSON.stringify({ schema_version, state: 'pending', proof_id }),
    });
    world.network.faults.push(accepted('/v1/elsewhere'));
    await sdkError(executeIntentHttp(world.shaky, intent()), 'unexpected_response');
    world.network.faults.push(accepted(`/v1/admissions/${proof_id}`));
    await sdkError(executeIntentHttp(world.shaky, intent()), 'not_found');
    expect(elsewhere.seen).toEqual([]);
  });
});

it.for<[code: string, fault: string, spoil: (file: string) => void]>([
  [
    'ENOENT',
    'its file became a link to a missing file',
    (file) => {
      rmSync(file);
      symlinkSync('missing/lost.key', file);
    },
  ],
  ['EIO', 'the disk does not sync', failSync],
])(
  'svc create-key > names a key that it created but could not store (%s: %s), and leaves no file',
  async ([code, , spoil], { world }) => {
    const { apiKey, engineUrl, tenantId } = world.options;
    const file = join((await openFolder()).path, 'lost.key');
    const network = await breakNetwork(engineUrl);
    onTestFinished(network.close);
    let id = '';
    const change = (body: string): string => {
      id = (JSON.parse(body) as { key_id: string }).key_id;
      spoil(file);
      return body;
    };
    network.faults.push({ kind: 'changed', change });
    const ran = await svc(['create-key', '--scope', 'read', '--out', file], {
      env: { SVC_ENGINE_URL: network.url, SVC_API_KEY: apiKey, SVC_TENANT_ID: tenantId },
    });
    const stderr = `svc: the API key ${id} was created but not stored, because ${file} cannot be written (${code}): run svc revoke ${id}\n`;
    expect(ran).toMatchObject({ code: 3, stderr });
    expect(() => lstatSync(file)).toThrow('ENOENT');
  },
);

/** A receipt of an engine that sends a denial with the status 200. */
function denial(receipt: Record<string, string>): unknown {
  const denied: Record<string, string> = { ...receipt, status: 'DENIED' };
  delete denied['response_hash'];
  return { ...denied, response_hash: canonicalHash(denied) };
}
