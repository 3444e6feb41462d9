import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { admitted } from '#sdk/adapters/index';
import { admitServer } from '#sdk/adapters/mcp';
import { agentEnvelopeSchema } from '#protocol/schemas/admission';
import { useAdapterWorld } from '../fixtures/adapter-world.js';
import { mcpPair } from '../fixtures/mcp-tools.js';

const MARKER = 'never-send-this';

const world = useAdapterWorld();

/** Options with a `fetch` that records every request as text. */
function recording() {
  const sent: { url: string; headers: string; body: string }[] = [];
  const fetcher: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const headers = JSON.stringify([...request.headers]);
    sent.push({ url: request.url, headers, body: await request.clone().text() });
    return fetch(request);
  };
  const common = { ...world.common, engine: { ...world.options, fetch: fetcher } };
  return { sent, common };
}

const input = z.object({ [MARKER]: z.string() });
const argument = { [MARKER]: MARKER };
const result = { [MARKER]: [MARKER] };
const broken = new Error(MARKER);
const text = { content: [{ type: 'text' as const, text: MARKER }] };

type Common = ReturnType<typeof recording>['common'];

/** Calls a tool that returns and a tool that throws. */
const calls: Record<string, (common: Common) => Promise<unknown>[]> = {
  'a function': (common) => [
    admitted((_given: unknown) => result, { ...common, tool: 'good' })(argument),
    admitted((_given: unknown) => Promise.reject(broken), { ...common, tool: 'bad' })(argument),
  ],
  'an MCP server': (common) => {
    const { server, client, connect } = mcpPair();
    admitServer(server, common);
    server.registerTool('good', { inputSchema: input.shape }, () => text);
    server.registerTool('bad', { inputSchema: input.shape }, () => Promise.reject(broken));
    const ready = connect();
    return ['good', 'bad'].map((name) =>
      ready.then(() => client.callTool({ name, arguments: argument })),
    );
  },
};

describe('adapter requests to the engine', () => {
  it.each(Object.keys(calls))('contain no arguments, results or errors: %s', async (name) => {
    const { sent, common } = recording();
    await Promise.allSettled(calls[name]!(common));
    expect(sent.map(({ url }) => new URL(url).pathname)).toEqual(
      Array.from({ length: 4 }, () => '/v1/agent/admissions'),
    );
    expect(JSON.stringify(sent)).not.toContain(MARKER);
    const envelopes = sent.map(({ body }) => agentEnvelopeSchema.parse(JSON.parse(body)));
    expect(envelopes.map((one) => one.kind).sort()).toEqual([
      'admission',
      'admission',
      'outcome',
      'outcome',
    ]);
    for (const one of envelopes) {
      if (one.kind === 'admission') expect(one.arguments_hash).toMatch(/^[0-9a-f]{64}$/);
    }
  });
});
