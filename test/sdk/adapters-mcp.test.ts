import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  CallToolRequestSchema,
  type CallToolResult,
  CallToolResultSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { admitted } from '#sdk/adapters/function';
import { admitClient, admitServer, NOT_ADMITTED_META, PROOF_ID_META } from '#sdk/adapters/mcp';
import { canonicalHash } from '#sdk/index';
import { useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();

const called = (client: Client, name: string, args?: Record<string, unknown>) =>
  client.callTool({
    name,
    ...(args !== undefined && { arguments: args }),
  }) as Promise<CallToolResult>;

const textOf = ({ content: [part] }: CallToolResult): string =>
  part?.type === 'text' ? part.text : '';
const proofOf = ({ _meta }: CallToolResult): string => String(_meta?.[PROOF_ID_META]);

/** A client, and a server that has no tools yet. `connect` connects the two within this process. */
function mcpPair(): { server: McpServer; client: Client; connect(): Promise<void> } {
  const server = new McpServer({ name: 'tools', version: '1.0.0' });
  const client = new Client({ name: 'agent', version: '1.0.0' });
  return { server, client, connect: () => joined(server, client) };
}

interface Connects {
  connect(transport: Transport): Promise<void>;
}

async function joined(server: Connects, client: Connects): Promise<void> {
  const [one, other] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(one), client.connect(other)]);
}

/** Tools that add their name to `ran`. */
function registerTools(server: McpServer, ran: string[]): void {
  const text = (said: string) => ({ content: [{ type: 'text' as const, text: said }] });
  server.registerTool('book_table', { inputSchema: { seats: z.number() } }, ({ seats }) => {
    ran.push('book_table');
    return { ...text(`a table for ${String(seats)}`), _meta: { kitchen: 'open' } };
  });
  server.registerTool('deleteAuditLog', {}, () => {
    ran.push('deleteAuditLog');
    return text('done');
  });
  server.registerTool('fail', {}, () => {
    ran.push('fail');
    throw new Error('no table is free');
  });
  server.registerTool('wait', {}, ({ signal }) => {
    ran.push('wait');
    return new Promise((resolve) => {
      signal.addEventListener('abort', () => resolve(text('stopped')));
    });
  });
}

/** A client of a server with tools, which add their names to `ran`. */
async function clientOfTools(ran: string[], prepare: (server: McpServer) => unknown = () => null) {
  const { server, client, connect } = mcpPair();
  prepare(server);
  registerTools(server, ran);
  await connect();
  return client;
}

it('admitServer > runs an admitted call but not a denied call, and both have a proof', async () => {
  const ran: string[] = [];
  const client = await clientOfTools(ran, (server) => {
    expect(admitServer(server, world.common)).toBe(server);
  });
  const booked = await called(client, 'book_table', { seats: 2 });
  expect(textOf(booked)).toBe('a table for 2');
  expect(booked.isError).toBeUndefined();
  await world.expectProof(proofOf(booked), {
    agent: { id: 'agent-7', framework: 'mcp' },
    action: 'BOOK_TABLE',
    tool: 'book_table',
    args: { seats: 2 },
    result: { content: [{ type: 'text', text: 'a table for 2' }] },
  });

  const denied = await called(client, 'deleteAuditLog', {});
  expect(denied).toMatchObject({ isError: true, _meta: { [NOT_ADMITTED_META]: 'policy_denied' } });
  expect(textOf(denied)).toMatch(/^deleteAuditLog did not run: denied by policy: .+ \(proof /);
  expect(await world.verdict(proofOf(denied))).toEqual({ status: 'VALID', effect: 'DENY' });
  expect(await world.outcomesOf(proofOf(denied))).toEqual([]);
  expect(ran).toEqual(['book_table']);
  await client.close();
});

it('admitClient > requests admission for every client method that calls a tool', async () => {
  const ran: string[] = [];
  const client = await clientOfTools(ran);
  expect(admitClient(client, world.common)).toBe(client);
  const booked = await called(client, 'book_table', { seats: 2 });
  expect(textOf(booked)).toBe('a table for 2');
  expect(booked._meta).toMatchObject({ [PROOF_ID_META]: world.admitted[0] });
  expect(await world.verdict(proofOf(booked))).toEqual({ status: 'VALID', effect: 'ADMIT' });
  world.network.faults.push(...Array.from({ length: 5 }, () => ({ kind: 'lost' }) as const));
  expect(await called(client, 'book_table', { seats: 3 })).toMatchObject({
    isError: true,
    _meta: { [NOT_ADMITTED_META]: 'network' },
  });
  expect(ran.splice(0)).toEqual(['book_table']);
  const params = { name: 'deleteAuditLog' };
  const result = await client.request({ method: 'tools/call', params }, CallToolResultSchema);
  expect(result.isError).toBe(true);
  const streamed = client.experimental.tasks.callToolStream(params);
  for await (const message of streamed) {
    expect(message).toMatchObject({ type: 'result', result: { isError: true } });
  }
  const task = client.experimental.tasks.callToolStream(params, undefined, { task: { ttl: 1 } });
  for await (const message of task) {
    expect(message).toMatchObject({ type: 'error' });
    expect(message.type === 'error' && message.error.message).toContain('did not run');
  }
  expect(ran).toEqual([]);
  await client.close();
});

it('admitClient > sends only the admitted tool and arguments, whatever the caller changes during the call', async () => {
  const ran: string[] = [];
  const client = await clientOfTools(ran);
  const params = { name: 'book_table', arguments: { seats: 2 } };
  const onAdmitted = () => (params.name = 'deleteAuditLog');
  const renaming = admitClient(client, { ...world.common, onAdmitted });
  expect(await renaming.callTool(params)).toMatchObject({
    _meta: { [NOT_ADMITTED_META]: 'arguments_changed' },
  });
  expect(ran).toEqual([]);
  await client.close();

  const late = await clientOfTools(ran);
  const { transport } = late;
  const send = transport!.send.bind(transport);
  params.name = 'book_table';
  transport!.send = (message, options) => {
    params.arguments.seats = 200;
    return send(message, options);
  };
  const booked = await admitClient(late, world.common).callTool(params);
  expect(textOf(booked as CallToolResult)).toBe('a table for 2');
  await late.close();
});

describe('admitServer', () => {
  it('records outcomes, and passes errors and abort signals through', async () => {
    const ran: string[] = [];
    const client = await clientOfTools(ran, (server) => admitServer(server, world.common));
    const failed = await called(client, 'fail');
    expect(failed).toMatchObject({ isError: true });
    expect(textOf(failed)).toBe('no table is free');
    expect(await world.outcomesOf(proofOf(failed))).toMatchObject([
      {
        result: 'failed',
        result_hash: canonicalHash({ content: failed.content, isError: true }),
      },
    ]);
    const sent = world.network.seen.length;
    expect(await called(client, 'no_such_tool')).toMatchObject({ isError: true });
    expect(world.network.seen).toHaveLength(sent);

    const controller = new AbortController();
    const options = { signal: controller.signal };
    const waiting = client.callTool({ name: 'wait' }, undefined, options);
    waiting.catch(() => undefined);
    await expect.poll(() => ran).toContain('wait');
    controller.abort();
    await expect(waiting).rejects.toThrow();
    const waited = world.admitted.at(-1)!;
    await expect.poll(() => world.outcomesOf(waited)).toMatchObject([{ result: 'succeeded' }]);
    await client.close();
  });

  it('requests admission for calls of custom and fallback handlers', async () => {
    const info = { name: 'low', version: '1.0.0' };
    const cases = (['handler', 'fallback', 'earlier fallback'] as const).flatMap((how) => [
      { how, given: new Server(info), hasTools: false },
      { how, given: new McpServer(info), hasTools: how === 'handler' },
    ]);
    for (const { how, given, hasTools } of cases) {
      const ran: string[] = [];
      const server = 'server' in given ? given.server : given;
      server.registerCapabilities({ tools: {} });
      const answer = (request: { params?: Record<string, unknown> | undefined }) => {
        ran.push(String(request.params?.['name']));
        return Promise.resolve({ content: [] });
      };
      if (how === 'earlier fallback') server.fallbackRequestHandler = answer;
      admitServer(given, world.common);
      // The handler that is set below replaces the handler that registerTools sets.
      if (hasTools && given instanceof McpServer) registerTools(given, []);
      if (how === 'handler') server.setRequestHandler(CallToolRequestSchema, answer);
      if (how === 'fallback') server.fallbackRequestHandler = answer;
      const client = new Client({ name: 'agent', version: '1.0.0' });
      await joined(server, client);
      expect(await called(client, 'DELETE AUDIT LOG')).toMatchObject({ isError: true });
      expect(await called(client, 'other')).toMatchObject({ content: [] });
      expect(ran).toEqual(['other']);
      await client.ping();
      await client.close();
    }
  });

  it('reports a tool that ran as failed, not as denied, when a guarded function that it called was denied', async () => {
    const server = new Server({ name: 'low', version: '1.0.0' }, { capabilities: { tools: {} } });
    admitServer(server, world.common);
    const remove = admitted(() => 'done', { ...world.common, tool: 'deleteAuditLog' });
    server.setRequestHandler(CallToolRequestSchema, async () => {
      await remove();
      return { content: [] };
    });
    const client = new Client({ name: 'agent', version: '1.0.0' });
    await joined(server, client);
    await expect(called(client, 'clean_up')).rejects.toThrow('deleteAuditLog did not run');
    expect(world.admitted).toHaveLength(1);
    expect(await world.outcomesOf(world.admitted[0]!)).toMatchObject([{ result: 'failed' }]);
    await client.close();
  });

  it('throws for a server whose tools were registered before, because they would run without admission', () => {
    const { server } = mcpPair();
    registerTools(server, []);
    expect(() => admitServer(server, world.common)).toThrow(
      expect.objectContaining({ code: 'invalid_input' }),
    );
  });
});

it('MCP adapters > reject objects of other libraries with an error that names the supported versions', () => {
  const foreign = { setRequestHandler: () => {}, assertCanSetRequestHandler: () => {} };
  const supported = expect.objectContaining({
    code: 'invalid_input',
    message: expect.stringMatching(/@modelcontextprotocol\/sdk, 1\.12 .*client 2\.x/) as string,
  }) as Error;
  expect(() => admitServer(foreign as never, world.common)).toThrow(supported);
  const client = { request: () => Promise.resolve() };
  expect(() => admitClient(client as never, world.common)).toThrow(supported);
});
