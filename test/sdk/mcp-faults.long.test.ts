import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { NOT_ADMITTED_META } from '#sdk/adapters/mcp';
import { useAdapterWorld } from '../fixtures/adapter-world.js';
import {
  metaOf,
  ownServer,
  published,
  textOf,
  toolCall,
  useProxies,
} from '../fixtures/mcp-proxy.js';

const world = useAdapterWorld();
const proxies = useProxies(world);
const deploy = ownServer('deploy.mjs');
const refund = (amount = '1.00') => ({ name: 'refund', arguments: { amount } });

const initialize = {
  jsonrpc: '2.0',
  id: 'init',
  method: 'initialize',
  params: {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'host', version: '1' },
  },
};

describe('svc mcp without a decision', () => {
  const faults: Record<string, () => object> = {
    'an engine that is unreachable': () => ({
      engine: { ...world.options, engineUrl: 'http://127.0.0.1:9' },
      options: ['--timeout', '1'],
    }),
    'a receipt of another call': () => {
      const change = (body: string) => body.replace(/"request_hash":"../, '"request_hash":"00');
      // A busy engine first sends other responses, so every response of the call is changed.
      const faults = Array.from({ length: 50 }, () => ({ kind: 'changed', change }) as const);
      world.network.faults.push(...faults);
      return {};
    },
  };

  it.each(Object.entries(faults))(
    'runs no tool with %s, and reports why',
    async (_name, prepare) => {
      const { client } = await proxies.v2({ target: deploy, ...prepare() });
      const result = await client.callTool(refund());
      expect(result.isError).toBe(true);
      const code = /^(network|unexpected_response)$/;
      expect(metaOf(result, NOT_ADMITTED_META)).toMatch(code);
      expect(textOf(result)).toMatch(/^refund did not run: not admitted: .{10,}/);
      expect(await proxies.ran()).toEqual([]);
    },
  );

  it('runs no tool with a wrong key, and takes the corrected key from the key file without a restart', async () => {
    const file = join(proxies.folder(), 'svc.key');
    await writeFile(file, 'svc_sk_wrong');
    const env = { SVC_API_KEY: '', SVC_API_KEY_FILE: file };
    const { client } = await proxies.v2({ target: deploy, env });
    expect(textOf(await client.callTool(refund()))).toMatch(/did not run: not admitted: unauth/);
    await writeFile(file, world.options.apiKey);
    expect(textOf(await client.callTool(refund('2.00')))).toBe('refunded 2.00');
    expect(await proxies.ran()).toEqual(['refund 2.00']);
    await expect.poll(proxies.sent).toEqual(['admission', 'admission', 'outcome']);
  });
});

describe('svc mcp with cancellations', () => {
  it('does not run a tool whose call is cancelled during the admission', async () => {
    const host = proxies.raw({ target: deploy });
    world.network.faults.push({ kind: 'late', ms: 500 });
    host.send(initialize);
    await expect.poll(host.received).toHaveLength(1);
    host.send(toolCall(1, 'refund', { amount: '1.00' }), cancel(1));
    host.send({ jsonrpc: '2.0', id: 2, method: 'ping' });
    await expect.poll(host.received).toMatchObject([{ id: 'init' }, { id: 2 }]);
    // Waits until the response of the engine has arrived.
    await sleep(1_000);
    expect(host.received()).toHaveLength(2);
    expect(await proxies.ran()).toEqual([]);
  });

  it('passes a cancellation on within 0.5 s, and records a failed outcome', async () => {
    const { client } = await proxies.v2({ target: deploy });
    const stop = new AbortController();
    const waiting = client.callTool({ name: 'wait', arguments: {} }, { signal: stop.signal });
    waiting.catch(() => undefined);
    await expect.poll(proxies.ran).toEqual(['wait']);
    const since = performance.now();
    stop.abort();
    await expect.poll(proxies.ran, { interval: 20 }).toEqual(['wait', 'cancelled']);
    expect(performance.now() - since).toBeLessThan(500);
    const admitted = () => world.network.seen.filter(({ method }) => method === 'POST');
    await expect.poll(admitted).toHaveLength(2);
    expect(JSON.parse(admitted()[1]!.body)).toMatchObject({ kind: 'outcome', result: 'failed' });
  });
});

const cancel = (requestId: unknown) => ({
  jsonrpc: '2.0',
  method: 'notifications/cancelled',
  params: { requestId },
});

describe('svc mcp behind a hostile host', () => {
  it('rejects malformed messages, batches and ids in use, and runs nothing', async () => {
    const host = proxies.raw({ target: deploy });
    host.send(initialize);
    await expect.poll(host.received).toHaveLength(1);
    const call = toolCall(7, 'refund', { amount: '1.00' });
    const text = JSON.stringify(call);
    host.send(
      'garbage',
      [call] as never,
      { id: 8, method: 'tools/call', params: {} },
      { jsonrpc: '2.0', id: null, method: 'tools/call' },
      { jsonrpc: '2.0', id: 1.5, method: 'tools/call' },
      {
        jsonrpc: '2.0',
        method: 'tools/call',
        params: { name: 'refund', arguments: { amount: '9' } },
      },
      text.replace('"name":', '"name":"wait","name":'),
      text.replace('"method":', '"method":"ping","method":').replace('7', '9'),
      { jsonrpc: '2.0', id: 10, method: 'tools/call', params: { name: 'refund', arguments: [] } },
      { jsonrpc: '2.0', id: 11, method: 'tools/call', params: { name: 5 } },
    );
    await expect.poll(() => host.received().length).toBe(10);
    const errors = host.received().slice(1) as { error: { code: number } }[];
    expect(errors.map(({ error }) => error?.code)).toEqual([
      -32700, -32700, -32600, -32600, -32600, -32602, -32602, -32602, -32602,
    ]);
    expect(proxies.sent()).toEqual([]);
    expect(await proxies.ran()).toEqual([]);
  });

  it('does not confuse two calls with one id', async () => {
    const host = proxies.raw({ target: deploy });
    world.network.faults.push({ kind: 'late', ms: 300 });
    host.send(initialize, toolCall(1, 'refund', { amount: '1.00' }), toolCall(1, 'wait'));
    await expect.poll(host.received).toHaveLength(3);
    expect(host.received()).toMatchObject([
      { id: null, error: { message: 'the id 1 is in use' } },
      { id: 'init' },
      { id: 1, result: { content: [{ text: 'refunded 1.00' }] } },
    ]);
    expect(await proxies.ran()).toEqual(['refund 1.00']);
  });
});

it('svc mcp behind a host that is killed > records the outcomes of all open calls', async () => {
  const host = proxies.raw({ target: deploy });
  host.send(initialize, toolCall(1, 'wait'), toolCall(2, 'wait'));
  await expect.poll(proxies.ran).toHaveLength(2);
  host.die();
  await expect.poll(proxies.sent).toEqual(['admission', 'admission', 'outcome', 'outcome']);
  expect(await host.close()).toBe(3);
});

describe('svc mcp in front of a hostile server', () => {
  it('passes one response for each request that the server got, and no response before the admission', async () => {
    const host = proxies.raw({ target: ownServer('hostile.mjs') });
    world.network.faults.push({ kind: 'late', ms: 300 });
    host.send(initialize, toolCall(1, 'any'));
    await expect.poll(() => host.received().some(({ id }) => id === 1)).toBe(true);
    await sleep(300);
    const responses = host.received().filter((one) => 'id' in one);
    expect(responses).toMatchObject([
      { id: 'init' },
      { id: 1, result: { content: [{ text: 'the first response' }] } },
    ]);
    expect(host.stderr()).toMatch(/dropped a response of the server: no open request has its id/);
    expect(host.stderr()).toMatch(/dropped output of the server/);
    await expect.poll(proxies.sent).toEqual(['admission', 'outcome']);
  });

  it('answers open requests when the server dies, and records failed outcomes', async () => {
    const host = proxies.raw({ target: ownServer('hostile.mjs') });
    // Waits until the server has sent responses with guessed ids; the call below then uses one of these
    // ids.
    host.send(initialize);
    await expect.poll(host.stderr).toMatch(/(dropped a response[^]*){5}/);
    host.send(toolCall(1, 'die'));
    await expect.poll(host.received).toContainEqual({
      jsonrpc: '2.0',
      id: 1,
      error: { code: -32603, message: 'the MCP server ended' },
    });
    expect(await host.close()).toBe(1);
    expect(proxies.sent()).toEqual(['admission', 'outcome']);
  });

  it('withholds the SVC_ variables, with which the server could admit its own calls', async () => {
    const { client } = await proxies.v1({
      target: published('everything'),
      env: { OTHER: 'kept' },
    });
    const env = textOf(await client.callTool({ name: 'get-env' }));
    expect(env).toContain('kept');
    expect(env).not.toContain('SVC_');
    expect(env).not.toContain(world.options.apiKey);
  });
});
