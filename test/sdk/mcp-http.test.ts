import {
  Client as ClientV2,
  StreamableHTTPClientTransport as HttpV2,
} from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { describe, expect, it } from 'vitest';
import { readEvents } from '#sdk/cli/mcp/http-server';
import { useAdapterWorld } from '../fixtures/adapter-world.js';
import { serveBreaking, serveV1, serveV2 } from '../fixtures/mcp-http-servers.js';
import {
  answerSampling,
  confirmElicitations,
  ownServer,
  proofOf,
  textOf,
  useProxies,
} from '../fixtures/mcp-proxy.js';
import { send } from '../fixtures/send.js';

const world = useAdapterWorld();
const proxies = useProxies(world);

const TOKEN = 'a-token-of-the-test';
const INFO = { name: 'host', version: '1.0.0' };
const requestInit = { headers: { Authorization: `Bearer ${TOKEN}` } };

/** Starts a proxy that listens; returns its address. */
async function listening(target: readonly string[], env = {}): Promise<URL> {
  const given = { target, options: ['--listen', '0'] };
  const host = proxies.raw({ ...given, env: { SVC_MCP_LISTEN_TOKEN: TOKEN, ...env } });
  const address = /listens on (\S+)/;
  await expect.poll(host.stderr).toMatch(address);
  return new URL(address.exec(host.stderr())![1]!);
}

const post = (url: URL, body: string, headers = {}) =>
  fetch(url, {
    method: 'POST',
    headers: { ...requestInit.headers, 'Content-Type': 'application/json', ...headers },
    body,
  });

async function clientV1(url: URL): Promise<Client> {
  const client = new Client(INFO, { capabilities: { sampling: {} } });
  answerSampling(client);
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit }));
  proxies.closeAfter(() => client.close());
  return client;
}

async function clientV2(url: URL): Promise<ClientV2> {
  const capabilities = { elicitation: { form: {} } };
  const client = new ClientV2(INFO, { capabilities, versionNegotiation: { mode: 'auto' } });
  confirmElicitations(client);
  await client.connect(new HttpV2(url, { requestInit }));
  proxies.closeAfter(() => client.close());
  return client;
}

describe('svc mcp URL', () => {
  it('connects to a server with sessions, and passes requests, progress and cancellation', async () => {
    const server = await serveV1();
    proxies.closeAfter(server.close);
    const { client } = await proxies.v1(
      { target: [server.url] },
      { capabilities: { sampling: {} } },
    );
    answerSampling(client);
    const echoed = await client.callTool({ name: 'echo', arguments: { message: 'hello' } });
    expect(textOf(echoed)).toBe('Echo: hello');
    await expect
      .poll(() => world.outcomesOf(proofOf(echoed)))
      .toMatchObject([{ result: 'succeeded' }]);
    expect(textOf(await client.callTool({ name: 'sample' }))).toContain('from the model');
    const stop = new AbortController();
    const seen: unknown[] = [];
    const options = { signal: stop.signal, onprogress: (one: unknown) => void seen.push(one) };
    const waiting = client.callTool({ name: 'wait' }, undefined, options);
    waiting.catch(() => undefined);
    await expect.poll(() => seen).toEqual([{ progress: 1, message: 'waits' }]);
    stop.abort();
    await expect.poll(server.cancelled).toBe(1);
  });

  it('connects to a stateless server, with mirrored headers and calls of several rounds', async () => {
    const server = await serveV2();
    proxies.closeAfter(server.close);
    const { client } = await proxies.v2(
      { target: [server.url] },
      { capabilities: { elicitation: { form: {} } } },
    );
    confirmElicitations(client);
    await client.listTools();
    const deployed = await client.callTool({ name: 'deploy', arguments: { region: 'Süd' } });
    expect(textOf(deployed)).toBe('deployed to Süd');
    expect(server.seen.at(-1)).toMatchObject({
      'mcp-method': 'tools/call',
      'mcp-name': 'deploy',
      'mcp-param-region': '=?base64?U8O8ZA==?=',
      'mcp-protocol-version': '2026-07-28',
    });
    await expect.poll(proxies.sent).toEqual(['admission', 'outcome']);
  });

  it('reports that a server is unreachable as the error of the request', async () => {
    const connecting = proxies.v1({ target: ['http://127.0.0.1:9/mcp'] });
    await expect(connecting).rejects.toThrow(/MCP server: connect ECONNREFUSED/);
  });

  it('rejects a token over plain http', async () => {
    const env = { SVC_MCP_SERVER_TOKEN: 'secret' };
    const host = proxies.raw({ target: ['http://mcp.example/mcp'], env });
    expect(await host.close()).toBe(2);
    expect(host.stderr()).toContain('TARGET must be https or local');
  });
});

describe('svc mcp --listen', () => {
  it('separates stateless clients with equal ids, and cancels a call when its stream closes', async () => {
    const url = await listening(ownServer('deploy.mjs'));
    const [one, other] = await Promise.all([clientV2(url), clientV2(url)]);
    expect(one.getNegotiatedProtocolVersion()).toBe('2026-07-28');
    const deploy = (client: ClientV2, env: string) =>
      client.callTool({ name: 'deploy', arguments: { env } });
    const results = await Promise.all([deploy(one, 'a'), deploy(other, 'b')]);
    expect(results.map(textOf)).toEqual(['deployed to a', 'deployed to b']);
    await expect
      .poll(() => proxies.sent().sort())
      .toEqual(['admission', 'admission', 'outcome', 'outcome']);
    const stop = new AbortController();
    const waiting = one.callTool({ name: 'wait', arguments: {} }, { signal: stop.signal });
    waiting.catch(() => undefined);
    await expect.poll(proxies.ran).toContain('wait');
    // A second host cancels every id that the proxy can have given to a request.
    const _meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' };
    for (let requestId = 1; requestId < 20; requestId++) {
      const params = { requestId, _meta };
      const method = 'notifications/cancelled';
      const body = JSON.stringify({ jsonrpc: '2.0', method, params });
      const headers = { 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': method };
      expect((await post(url, body, headers)).status).toBe(202);
    }
    expect(textOf(await deploy(other, 'c'))).toBe('deployed to c');
    expect(await proxies.ran()).not.toContain('cancelled');
    stop.abort();
    await expect.poll(proxies.ran).toContain('cancelled');
  });

  it('stops reading when a server sends an event without end', async () => {
    let sent = 0;
    const line = Buffer.from(`data: ${'x'.repeat(2 ** 20)}\n`);
    async function* stream(): AsyncGenerator<Uint8Array> {
      await Promise.resolve();
      for (; sent < 100; sent++) yield line;
    }
    for await (const event of readEvents(stream())) expect(event).toBe(null);
    expect(sent).toBeLessThan(70);
  });

  it('serves hosts over HTTP in front of a server over HTTP, and ends a session on both sides', async () => {
    const server = await serveV1();
    proxies.closeAfter(server.close);
    const url = await listening([server.url]);
    const [one, other] = await Promise.all([clientV1(url), clientV1(url)]);
    const echoed = await one.callTool({ name: 'echo', arguments: { message: 'hello' } });
    expect(textOf(echoed)).toBe('Echo: hello');
    expect(textOf(await other.callTool({ name: 'sample' }))).toContain('from the model');
    expect(server.sessions()).toBe(2);
    await (one.transport as StreamableHTTPClientTransport).terminateSession();
    await expect(one.ping()).rejects.toThrow(/404|session/);
    await expect.poll(server.sessions).toBe(1);
    await other.ping();
  });

  it('ends the session that has been unused for longest when there are too many sessions', async () => {
    const server = await serveV1();
    proxies.closeAfter(server.close);
    const url = await listening([server.url]);
    const request = (body: object, session?: string) =>
      post(url, JSON.stringify({ jsonrpc: '2.0', id: 1, ...body }), {
        Accept: 'application/json, text/event-stream',
        ...(session !== undefined && { 'Mcp-Session-Id': session }),
      });
    const open = async (): Promise<string> => {
      const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: INFO };
      const response = await request({ method: 'initialize', params });
      await response.text();
      return response.headers.get('mcp-session-id')!;
    };
    const ping = async (session: string) => (await request({ method: 'ping' }, session)).status;
    const [first, second] = [await open(), await open()];
    for (let n = 2; n < 32; n++) await open();
    expect(await ping(first)).toBe(200);
    await open();
    expect(await ping(second)).toBe(404);
    expect(await ping(first)).toBe(200);
    await expect.poll(server.sessions).toBe(32);
  });

  it('resumes a broken stream of the server, and rejects resumption by a host', async () => {
    const server = await serveBreaking();
    proxies.closeAfter(server.close);
    const url = await listening([server.url]);
    const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params: {} };
    const response = await post(url, JSON.stringify(initialize));
    expect(await response.text()).toContain('after the break');
    const session = { 'Mcp-Session-Id': response.headers.get('mcp-session-id')! };
    const headers = { ...requestInit.headers, ...session, 'Last-Event-ID': '1' };
    const resumed = await fetch(url, { headers });
    expect(resumed.status).toBe(400);
    expect(await resumed.text()).toContain('streams cannot be resumed');
  });

  it('keeps numbers that no double can represent in requests that it renumbers', async () => {
    const url = await listening(ownServer('raw.mjs'));
    const _meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', progressToken: 1 };
    const params = { name: 'any', n: '?', _meta };
    const call = { jsonrpc: '2.0', id: 'own', method: 'prompts/get', params };
    const sent = JSON.stringify(call, undefined, 2).replace('"?"', '9007199254740993');
    const response = await post(url, sent, {
      'Mcp-Method': 'prompts/get',
      'Mcp-Name': 'any',
      'Mcp-Protocol-Version': '2026-07-28',
    });
    const text = await response.text();
    expect(text).toContain('"n":12345678901234567890.10');
    const { id, result } = JSON.parse(text) as { id: string; result: { got: string } };
    expect(id).toBe('own');
    expect(result.got).toContain('"n":9007199254740993');
  });

  it('rejects a call of a stateless client that two JSON parsers could read differently', async () => {
    const url = await listening(ownServer('deploy.mjs'));
    for (const progressToken of [undefined, 1]) {
      const _meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', progressToken };
      const params = { name: 'refund', arguments: { amount: '1' }, _meta };
      const call = { jsonrpc: '2.0', id: 'own', method: 'tools/call', params };
      const sent = JSON.stringify(call).replace('"amount":"1"', '"amount":"9","amount":"1"');
      const answer = await post(url, sent, {
        'Mcp-Method': 'tools/call',
        'Mcp-Name': 'refund',
        'Mcp-Protocol-Version': '2026-07-28',
      });
      expect(await answer.json()).toMatchObject({ id: 'own', error: { code: -32602 } });
    }
    expect(proxies.sent()).toEqual([]);
    expect(await proxies.ran()).toEqual([]);
  });

  it('rejects requests without the token, from web pages, and with an invalid form', async () => {
    const url = await listening(ownServer('deploy.mjs'));
    const json = { 'Content-Type': 'application/json' };
    const good = { ...json, Authorization: `Bearer ${TOKEN}` };
    const call = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name: 'refund',
        arguments: { amount: '1' },
        _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' },
      },
    };
    const mirrored = { 'Mcp-Method': 'tools/call', 'Mcp-Protocol-Version': '2026-07-28' };
    const requests: [number, Record<string, string>, unknown, string?][] = [
      [401, json, call],
      [401, { ...json, Authorization: 'Bearer wrong' }, call],
      [403, { ...good, Origin: 'https://evil.example' }, call],
      [403, { ...good, Host: 'evil.example' }, call],
      [415, { ...good, 'Content-Type': 'text/plain' }, call],
      [400, good, 'garbage'],
      [400, good, [call]],
      [400, good, call],
      [400, { ...good, ...mirrored, 'Mcp-Name': 'wait' }, call],
      [400, good, { ...call, params: { name: 'refund' } }],
      [404, { ...good, 'Mcp-Session-Id': 'unknown' }, call],
      [405, good, '', 'GET'],
    ];
    for (const [status, headers, body, method = 'POST'] of requests) {
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      const request = { method, path: '/mcp', headers, body: method === 'GET' ? undefined : text };
      const answer = await send(url.origin, request as never);
      expect([answer.status, JSON.stringify(headers)]).toEqual([status, JSON.stringify(headers)]);
    }
    expect(proxies.sent()).toEqual([]);
    expect(await proxies.ran()).toEqual([]);
  });
});
