import { Agent, request, type ServerResponse } from 'node:http';
import express from 'express';
import { afterEach, describe, expect, it } from 'vitest';
import { type HttpServer, listen, ListenError } from '#runtime/http/server';

const running: HttpServer[] = [];

async function serve(
  handler: (response: ServerResponse, path: string) => void,
): Promise<HttpServer> {
  const server = await listen((req, res) => handler(res, req.url ?? ''), {
    host: '127.0.0.1',
    port: 0,
  });
  running.push(server);
  return server;
}

afterEach(async () => {
  for (const server of running.splice(0)) await server.close(0);
});

interface Reply {
  status: number;
  body: string;
  connection: string | undefined;
}

function get(url: string, agent: Agent): Promise<Reply> {
  return new Promise((resolve, reject) => {
    request(url, { agent }, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (text: string) => (body += text));
      response.on('error', reject);
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          body,
          connection: response.headers.connection,
        }),
      );
    })
      .on('error', reject)
      .end();
  });
}

describe('listen', () => {
  it('names the setting when the port is in use', async () => {
    const { port } = await serve((response) => response.end());
    const second = listen(() => undefined, {
      host: '127.0.0.1',
      port,
      portVariable: 'PUBLIC_PORT',
    });
    await expect(second).rejects.toBeInstanceOf(ListenError);
    await expect(second).rejects.toThrow(`Port ${port} is in use: set PUBLIC_PORT`);
  });

  it('names the setting when the address is not local', async () => {
    const elsewhere = listen(() => undefined, { host: '192.0.2.1', port: 0 });
    await expect(elsewhere).rejects.toThrow('set LISTEN_ADDRESS');
  });

  it('finishes requests in flight on close and accepts no new ones', async () => {
    const waiting: ServerResponse[] = [];
    const server = await serve((response) => waiting.push(response));
    const agent = new Agent({ keepAlive: true });
    const inFlight = get(`${server.url}/slow`, agent);
    while (waiting.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));

    const closed = server.close();
    await expect(get(server.url, new Agent())).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    waiting[0]?.end('done');
    expect(await inFlight).toMatchObject({ status: 200, body: 'done' });
    await closed;
    agent.destroy();
  });

  it('does not wait for idle connections on close', async () => {
    const server = await serve((response) => response.end('ok'));
    const agent = new Agent({ keepAlive: true });
    expect(await get(server.url, agent)).toMatchObject({ body: 'ok', connection: 'keep-alive' });
    const began = performance.now();
    await server.close();
    expect(performance.now() - began).toBeLessThan(5_000);
    agent.destroy();
  });

  it('cuts requests that exceed the grace period', async () => {
    const waiting: ServerResponse[] = [];
    const server = await serve((response) => waiting.push(response));
    const hanging = expect(get(server.url, new Agent())).rejects.toMatchObject({
      code: 'ECONNRESET',
    });
    while (waiting.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    await server.close(50);
    await hanging;
  });
});

describe('listen with framework prototypes', () => {
  it('creates requests and responses with these prototypes on Node versions that benefit', async () => {
    const app = express();
    const made: boolean[] = [];
    app.use(express.json());
    app.post('/echo/:name', (req, res) => {
      res.status(201).json({ name: req.params.name, body: req.body as unknown });
    });
    const server = await listen(
      (req, res) => {
        // Before Express sees them: changing a prototype later slows every property access.
        made.push(Object.getPrototypeOf(req) === app.request);
        made.push(Object.getPrototypeOf(res) === app.response);
        app(req, res);
      },
      { host: '127.0.0.1', port: 0, messages: app },
    );
    running.push(server);
    const send = (): Promise<Response> =>
      fetch(`${server.url}/echo/a`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: '{"b":1}',
      });
    for (const response of [await send(), await send()]) {
      expect(response.status).toBe(201);
      expect(await response.json()).toEqual({ name: 'a', body: { b: 1 } });
    }
    expect(made).toEqual(Array(4).fill(Number.parseInt(process.versions.node) < 24));
  });
});
