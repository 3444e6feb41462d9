import { Agent, request as httpRequest } from 'node:http';
import { describe, expect } from 'vitest';
import { executeBody, headersFor, type Reply } from '../../fixtures/engine.js';
import { engineTest } from './setup.js';

const it = engineTest().extend<{
  /** One connection, so that leftover bytes of a bad body would break the next request. */
  agent: Agent;
  send: (body: string | Uint8Array, headers?: Record<string, string>) => Promise<Reply>;
  /** Sends a valid body. */
  good: () => Promise<Reply>;
}>({
  agent: async ({}, use) => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    await use(agent);
    agent.destroy();
  },
  send: async ({ agent, setup: { engine, key } }, use) =>
    use((body, headers) => {
      return engine.call({ headers: { ...headersFor(key), ...headers }, agent, body });
    }),
  good: async ({ send }, use) => use(() => send(JSON.stringify(executeBody()))),
});

it('request body > gets a problem of bounded size when it has very many faults', async ({
  send,
}) => {
  const many = Object.fromEntries(Array.from({ length: 2_000 }, (_, i) => [`f${i}`, 0]));
  const long = { ['x'.repeat(20_000)]: 0 };
  for (const extra of [many, long]) {
    const body = JSON.stringify(executeBody(extra));
    const reply = await send(body);
    expect(reply.json['code']).toBe('unknown_field');
    expect(reply.bytes.length).toBeLessThan(10_000);
  }
});

it('request body > may have an empty Content-Encoding', async ({ send }) => {
  const body = JSON.stringify(executeBody());
  for (const coding of ['', ' , ', 'identity,']) {
    expect((await send(body, { 'Content-Encoding': coding })).status).toBe(200);
  }
  expect((await send(body, { 'Content-Encoding': ', gzip' })).status).toBe(415);
});

describe('oversized request body', () => {
  const tooLarge = 'x'.repeat(2 * 1024 * 1024);

  it('gets 413 and a closed connection when Content-Length exceeds the limit', async ({
    good,
    send,
  }) => {
    const reply = await send(tooLarge);
    expect(reply.status).toBe(413);
    expect(reply.json).toMatchObject({ code: 'body_too_large' });
    expect(reply.headers.connection).toBe('close');
    expect((await good()).status).toBe(200);
  });

  it('gets 413 while it streams', async ({ agent, setup: { engine, key } }) => {
    let sent = 0;
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const request = httpRequest(
        new URL('/v1/intents/execute', engine.url),
        { method: 'POST', headers: headersFor(key), agent },
        (response) => {
          clearInterval(pump);
          response.resume();
          resolve(response.statusCode);
          request.destroy();
        },
      );
      request.on('error', reject);
      // Streams a chunked body that never ends.
      const pump = setInterval(() => {
        sent += 64 * 1024;
        request.write(Buffer.alloc(64 * 1024, ' '));
      }, 1);
    });
    expect(status).toBe(413);
    expect(sent).toBeGreaterThan(64 * 1024);
    expect(sent).toBeLessThan(8 * 1024 * 1024);
  });

  it('is accepted when its size equals the limit', async ({ send }) => {
    const body = JSON.stringify(executeBody());
    const padded = body + ' '.repeat(64 * 1024 - body.length);
    expect((await send(padded)).status).toBe(200);
    expect((await send(`${padded} `)).status).toBe(413);
  });
});
