import {
  Client,
  type ClientOptions,
  InMemoryTransport,
  StreamableHTTPClientTransport,
  withInputRequired,
} from '@modelcontextprotocol/client';
import {
  acceptedContent,
  type CallToolResult,
  createMcpHandler,
  inputRequired,
  McpServer,
  Server,
} from '@modelcontextprotocol/server';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { type Gate, openGate } from '#sdk/adapters/index';
import { admitClient, admitServer, NOT_ADMITTED_META } from '#sdk/adapters/mcp';
import { useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();
const info = { name: 'v2', version: '1.0.0' };
const text = (said: string): CallToolResult => ({ content: [{ type: 'text', text: said }] });
const requestedSchema = z.object({ ok: z.boolean() });
const toBook = { name: 'book_table', arguments: { seats: 2 } };
const denied = { isError: true, _meta: { [NOT_ADMITTED_META]: 'policy_denied' } };

/** A server whose tool `book_table` requires input before it books. */
function server(ran: string[], gate?: Gate): McpServer {
  const made = new McpServer(info);
  if (gate !== undefined) admitServer(made, gate);
  const inputSchema = z.object({ seats: z.number() });
  made.registerTool('book_table', { inputSchema }, ({ seats }, { mcpReq }) => {
    const confirmed = acceptedContent(mcpReq.inputResponses, 'confirm', requestedSchema);
    ran.push(`book_table ${String(confirmed?.ok)}`);
    if (confirmed !== undefined) return text(`a table for ${String(seats)}`);
    const confirm = inputRequired.elicit({ message: 'Book it?', requestedSchema });
    return inputRequired({ inputRequests: { confirm } });
  });
  made.registerTool('deleteAuditLog', {}, () => {
    ran.push('deleteAuditLog');
    return text('done');
  });
  made.registerTool('wait', {}, ({ mcpReq: { signal } }) => {
    ran.push('wait');
    return new Promise((resolve) => {
      signal.addEventListener('abort', () => resolve(text('stopped')));
    });
  });
  return made;
}

function client(options: ClientOptions = {}): Client {
  const made = new Client(info, { capabilities: { elicitation: {} }, ...options });
  made.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { ok: true } }));
  return made;
}

/** Connects with the MCP protocol of 2025. */
async function joined(one: McpServer | Server, other: Client): Promise<void> {
  const [near, far] = InMemoryTransport.createLinkedPair();
  await Promise.all([one.connect(near), other.connect(far)]);
}

/** Connects with the protocol 2026-07-28 to a handler that makes a server for each request. */
async function joinedModern(factory: () => McpServer, other: Client): Promise<void> {
  const handler = createMcpHandler(factory);
  await other.connect(
    new StreamableHTTPClientTransport(new URL('http://127.0.0.1/mcp'), {
      fetch: (url, init) => handler.fetch(new Request(url, init)),
    }),
  );
}
const modern: ClientOptions = { versionNegotiation: { mode: { pin: '2026-07-28' } } };

const outcomes = async () =>
  (await Promise.all(world.admitted.map((proofId) => world.outcomesOf(proofId)))).flat();

describe('admitServer with MCP SDK v2', () => {
  it('admits a call of several rounds once, and records one outcome', async () => {
    for (const options of [modern, {}]) {
      const ran: string[] = [];
      const gate = openGate(world.common, 'mcp');
      const agent = client(options);
      if (options === modern) await joinedModern(() => server(ran, gate), agent);
      else await joined(server(ran, gate), agent);
      expect(await agent.callTool(toBook)).toMatchObject(text('a table for 2'));
      expect(ran).toEqual(['book_table undefined', 'book_table true']);
      expect(world.admitted).toHaveLength(1);
      expect(await outcomes()).toMatchObject([{ result: 'succeeded' }]);
      expect(await agent.callTool({ name: 'deleteAuditLog' })).toMatchObject(denied);
      expect(ran).toHaveLength(2);
      world.clear();
      await agent.close();
    }
  });

  it('requires a new admission for a round that continues no admitted call with the same arguments', async () => {
    const ran: string[] = [];
    const agent = client({ ...modern, inputRequired: { autoFulfill: false } });
    const gate = openGate(world.common, 'mcp');
    await joinedModern(() => server(ran, gate), agent);
    const schema = withInputRequired(z.looseObject({}));
    const send = (params: Record<string, unknown>) =>
      agent.request({ method: 'tools/call', params }, schema, { allowInputRequired: true });
    const inputResponses = { confirm: { action: 'accept', content: { ok: true } } };
    await send(toBook);
    await send({ ...toBook, arguments: { seats: 200 }, inputResponses });
    expect(world.admitted).toHaveLength(2);
    await send({ ...toBook, inputResponses });
    expect(world.admitted).toHaveLength(2);
    await send({ ...toBook, inputResponses });
    expect(world.admitted).toHaveLength(3);
    expect(await send({ name: 'deleteAuditLog', inputResponses })).toMatchObject(denied);
    await agent.close();
  });

  it('requests no admission for an unknown tool, and ends a cancelled call', async () => {
    const ran: string[] = [];
    const agent = client();
    await joined(server(ran, openGate(world.common)), agent);
    await expect(agent.callTool({ name: 'no_such_tool' })).rejects.toThrow('not found');
    expect(world.network.seen).toEqual([]);
    const controller = new AbortController();
    const waiting = agent.callTool({ name: 'wait' }, { signal: controller.signal });
    waiting.catch(() => undefined);
    await expect.poll(() => ran).toEqual(['wait']);
    controller.abort();
    await expect(waiting).rejects.toThrow();
    await expect.poll(outcomes).toHaveLength(1);
    // Cancelled before the decision: the tool does not run.
    world.network.faults.push({ kind: 'silent' });
    const early = new AbortController();
    const undecided = agent.callTool({ name: 'wait' }, { signal: early.signal });
    undecided.catch(() => undefined);
    await expect.poll(() => world.network.seen).toHaveLength(3);
    early.abort();
    await expect(undecided).rejects.toThrow();
    expect(ran).toEqual(['wait']);
    await agent.close();
  });

  it('requests admission for handlers of every form', async () => {
    for (const form of ['request', 'params', 'fallback'] as const) {
      const ran: unknown[] = [];
      const low = admitServer(new Server(info, { capabilities: { tools: {} } }), world.common);
      const answer = (name: unknown) => {
        ran.push(name);
        return text('done');
      };
      const params = z.looseObject({ name: z.string() });
      if (form === 'request') low.setRequestHandler('tools/call', (r) => answer(r.params.name));
      if (form === 'params') low.setRequestHandler('tools/call', { params }, (p) => answer(p.name));
      if (form === 'fallback') {
        low.fallbackRequestHandler = (r) => Promise.resolve(answer(r.params?.['name']));
      }
      low.setRequestHandler('acme/ping', { params: z.looseObject({}) }, () => ({ pong: true }));
      const agent = client();
      await joined(low, agent);
      expect(await agent.callTool({ name: 'delete-audit-log' })).toMatchObject(denied);
      expect(await agent.callTool({ name: 'other' })).toMatchObject(text('done'));
      expect(ran).toEqual(['other']);
      const pong = z.object({ pong: z.boolean() });
      expect(await agent.request({ method: 'acme/ping', params: {} }, pong)).toEqual({
        pong: true,
      });
      await agent.close();
    }
  });
});

it('admitClient with MCP SDK v2 > admits a call of several rounds once, and sends no call without an admission', async () => {
  const ran: string[] = [];
  const agent = admitClient(client(modern), world.common);
  await joinedModern(() => server(ran), agent);
  expect(await agent.callTool(toBook)).toMatchObject(text('a table for 2'));
  expect(ran).toHaveLength(2);
  expect(await outcomes()).toMatchObject([{ result: 'succeeded' }]);
  expect(await agent.callTool({ name: 'deleteAuditLog' })).toMatchObject(denied);
  const aborted = agent.callTool(toBook, { signal: AbortSignal.abort() });
  await expect(aborted).rejects.toMatchObject({ code: 'aborted' });
  expect(ran).toHaveLength(2);
  await agent.close();
});
