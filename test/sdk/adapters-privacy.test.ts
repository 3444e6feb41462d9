import { tool as langChainTool } from '@langchain/core/tools';
import { tool } from 'ai';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { admitTools } from '#sdk/adapters/ai';
import { admitted } from '#sdk/adapters/index';
import { admitTool } from '#sdk/adapters/langchain';
import { admitClient, admitServer } from '#sdk/adapters/mcp';
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
  'the AI SDK': (common) => {
    const tools = admitTools(
      {
        good: tool({ inputSchema: input, execute: () => result }),
        bad: tool({ inputSchema: input, execute: (): Promise<string> => Promise.reject(broken) }),
      },
      common,
    );
    const options = {
      toolCallId: 'call-1',
      messages: [{ role: 'user' as const, content: MARKER }],
    };
    return [tools.good, tools.bad].map((one) => Promise.resolve(one.execute!(argument, options)));
  },
  LangChain: (common) =>
    [() => Promise.resolve(result), (): Promise<object> => Promise.reject(broken)].map(
      (run, at) => {
        const fields = { name: `tool-${String(at)}`, description: MARKER, schema: input };
        return admitTool(langChainTool(run, fields), common).invoke(argument);
      },
    ),
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
  'an MCP client': (common) => {
    const { server, client, connect } = mcpPair();
    server.registerTool('good', { inputSchema: input.shape }, () => text);
    server.registerTool('bad', { inputSchema: input.shape }, () => Promise.reject(broken));
    admitClient(client, common);
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
