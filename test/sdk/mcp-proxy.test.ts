import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema, ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it } from 'vitest';
import { NOT_ADMITTED_META } from '#sdk/adapters/mcp';
import { canonicalHash } from '#sdk/index';
import { useAdapterWorld } from '../fixtures/adapter-world.js';
import {
  answerSampling,
  metaOf,
  ownServer,
  proofOf,
  published,
  textOf,
  toolCall,
  useProxies,
} from '../fixtures/mcp-proxy.js';

const world = useAdapterWorld();
const proxies = useProxies(world);

describe('svc mcp over stdio', () => {
  it.each([
    ['v1', proxies.v1],
    ['v2', proxies.v2],
  ])('admits and records the calls of a client of SDK %s', async (_version, connect) => {
    const { client } = await connect({ target: published('everything') });
    const echoed = await client.callTool({ name: 'echo', arguments: { message: 'hello' } });
    expect(textOf(echoed)).toBe('Echo: hello');
    const proof = proofOf(echoed);
    expect(await world.verdict(proof)).toEqual({ status: 'VALID', effect: 'ADMIT' });
    await expect
      .poll(() => world.outcomesOf(proof))
      .toMatchObject([
        {
          result: 'succeeded',
          result_hash: canonicalHash({ content: [{ type: 'text', text: 'Echo: hello' }] }),
        },
      ]);
    const failed = await client.callTool({ name: 'get-sum', arguments: { a: 'x' } });
    expect(failed.isError).toBe(true);
    await expect
      .poll(() => world.outcomesOf(proofOf(failed)))
      .toMatchObject([{ result: 'failed' }]);
  });

  it('passes capabilities, prompts, resources, sampling, elicitation and roots through', async () => {
    const capabilities = { sampling: {}, elicitation: {}, roots: { listChanged: true } };
    const [bare, gated] = await Promise.all([
      hostV1ofServer(),
      proxies.v1({ target: published('everything') }, { capabilities }),
    ]);
    const { client } = gated;
    expect(client.getServerCapabilities()).toEqual(bare.capabilities);
    expect(await client.listPrompts()).toEqual(bare.prompts);
    expect(await client.listResources()).toEqual(bare.resources);
    answerSampling(client);
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'decline' as const }));
    client.setRequestHandler(ListRootsRequestSchema, () => ({
      roots: [{ uri: 'file:///srv/one', name: 'one' }],
    }));
    await client.sendRootsListChanged();
    const listed = await client.listTools();
    expect(listed.tools.length).toBeGreaterThan(10);
    const call = (name: string, args = {}) => client.callTool({ name, arguments: args });
    expect(textOf(await call('trigger-sampling-request', { prompt: 'p' }))).toContain(
      'from the model',
    );
    expect(textOf(await call('trigger-elicitation-request'))).toContain('declined');
    expect(JSON.stringify(await call('get-roots-list'))).toContain('file:///srv/one');
  });

  it('numbers a session as a run with --run, and sends the traceparent of the host', async () => {
    const { client } = await proxies.v1({
      target: ownServer('deploy.mjs'),
      options: ['--run'],
    });
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const refund = { name: 'refund', arguments: { amount: '1.00' } };
    await client.callTool({ ...refund, _meta: { traceparent } });
    await expect.poll(proxies.sent).toHaveLength(2);
    await client.callTool({ ...refund, _meta: { traceparent: 'malformed' } });
    await client.close();
    await expect
      .poll(proxies.sent)
      .toEqual(['admission', 'outcome', 'admission', 'outcome', 'close']);
    const bodies = world.network.seen.flatMap(({ body, method }) =>
      method === 'POST' ? [JSON.parse(body) as { run: { id: string; seq: number } }] : [],
    );
    const { id } = bodies[0]!.run;
    expect(bodies.map(({ run }) => run)).toEqual([0, 1, 2, 3, 4].map((seq) => ({ id, seq })));
    expect(bodies[0]).toMatchObject({ traceparent });
    expect(bodies[2]).not.toHaveProperty('traceparent');
  });

  it('reports a run as possibly open when the response to its close is lost', async () => {
    const { client, stderr } = await proxies.v1({
      target: ownServer('deploy.mjs'),
      options: ['--run'],
    });
    await client.callTool({ name: 'refund', arguments: { amount: '1.00' } });
    await expect.poll(proxies.sent).toHaveLength(2);
    world.network.faults.push({ kind: 'unanswered' }, { kind: 'answer', status: 418 });
    await client.close();
    await expect.poll(stderr, { timeout: 10_000 }).toMatch(/run [0-9a-f]{32} may be open: /);
  });

  it('rejects unknown tools without an admission once the list of tools is known', async () => {
    const { client } = await proxies.v1({ target: published('everything') });
    await client.listTools();
    await expect(client.callTool({ name: 'no_such_tool' })).rejects.toThrow(/Unknown tool/);
    expect(proxies.sent()).toEqual([]);
  });

  it('passes calls of a tool that the server adds after it has listed its tools', async () => {
    const { client } = await proxies.v1({ target: ownServer('deploy.mjs') });
    await client.listTools();
    await client.callTool({ name: 'install' });
    expect(textOf(await client.callTool({ name: 'installed' }))).toBe('runs');
  });
});

describe('svc mcp in front of a server that does not respond', () => {
  const initialize = { jsonrpc: '2.0', id: 'init', method: 'initialize', params: {} };

  it('accepts further requests after 1,000 cancelled ones', async () => {
    const host = proxies.raw({ target: ownServer('hostile.mjs') });
    host.send(initialize);
    for (let id = 1; id <= 1_000; id++) {
      const params = { requestId: id };
      host.send(
        { jsonrpc: '2.0', id, method: 'resources/list' },
        { jsonrpc: '2.0', method: 'notifications/cancelled', params },
      );
    }
    let calls = 0;
    const call = (): string => {
      host.send(toolCall(`call ${String(++calls)}`, 'echo'));
      return host.stdout();
    };
    await expect.poll(call, { interval: 500 }).toContain('the first response');
  });

  it('answers a call with an error when the server exits during the admission of the call', async () => {
    world.network.faults.push({ kind: 'late', ms: 5_000 });
    const host = proxies.raw({ target: ownServer('hostile.mjs') });
    host.send(initialize, toolCall('waits', 'echo'));
    await expect.poll(proxies.sent).toHaveLength(1);
    host.send(toolCall('dies', 'die'));
    const error = { message: 'the MCP server ended' };
    for (const id of ['dies', 'waits']) {
      await expect
        .poll(host.received)
        .toContainEqual(
          expect.objectContaining({ id, error: expect.objectContaining(error) as object }),
        );
    }
  });
});

it('svc mcp in front of a server that ignores the case of names > rejects calls with members in another case', async () => {
  const host = proxies.raw({ target: ownServer('any-case.mjs') });
  const call = JSON.stringify(toolCall(1, 'refund', { amount: '1.00' }));
  const spellings = [
    ['"method":', '"method":"ping","Method":'],
    ['"params":', '"params":{"name":"wait"},"PARAM\u017f":'],
    ['"name":', '"name":"wait","Name":'],
    ['"arguments":', '"Arguments":'],
  ] as const;
  host.send(...spellings.map(([from, to], i) => call.replace(from, to).replace('1', `2${i}`)));
  await expect.poll(() => host.received().length).toBe(spellings.length);
  const errors = host.received() as { error?: { code: number } }[];
  expect(errors.map(({ error }) => error?.code)).toEqual([-32600, -32600, -32602, -32602]);
  expect(await proxies.ran()).toEqual([]);
});

describe('svc mcp with numbers that no double can represent', () => {
  const line = '{"jsonrpc":"2.0", "id":1,"method":"prompts/get","params":{"n":9007199254740993}}';
  const result = '"structuredContent":{"n":12345678901234567890.10}';

  it('passes messages as received', async () => {
    const host = proxies.raw({ target: ownServer('raw.mjs') });
    host.send(line);
    await expect.poll(host.received).toMatchObject([{ result: { got: line } }]);
    expect(host.stdout()).toContain(`{"jsonrpc": "2.0","id":1,"result":{${result}`);
  });

  it('returns the digits of a result, and records no hash of the result', async () => {
    const host = proxies.raw({ target: ownServer('raw.mjs') });
    host.send(toolCall(1, 'any', { exact: 1e21 }));
    await expect.poll(host.stdout).toContain(result);
    const [response] = host.received();
    await expect
      .poll(() => outcomesOf(proofOf(response!['result'])))
      .toEqual([['succeeded', undefined]]);
  });

  it('runs no tool with such an argument', async () => {
    const host = proxies.raw({ target: ownServer('deploy.mjs') });
    const numbers = ['9007199254740993', '1e20', '0.30000000000000001', '1e400'];
    for (const [id, number] of numbers.entries()) {
      host.send(JSON.stringify(toolCall(id, 'refund', { amount: '?' })).replace('"?"', number));
    }
    await expect.poll(host.received).toHaveLength(numbers.length);
    for (const { id, result } of host.received()) {
      expect(metaOf(result, NOT_ADMITTED_META)).toBe('invalid_input');
      expect(textOf(result)).toContain(`the argument ${numbers[id as number]!} is a number that`);
    }
    expect(proxies.sent()).toEqual([]);
    expect(await proxies.ran()).toEqual([]);
  });
});

describe('svc mcp with tasks', () => {
  it('records the outcome of a call when its task ends', async () => {
    const { host, request } = requester();
    const start = async (taskId: string, isInline = false): Promise<string> =>
      proofOf(await request('tools/call', { name: 'start', arguments: { taskId, isInline } }));
    const outcomes = (proof: string) => expect.poll(() => outcomesOf(proof));
    const hash = canonicalHash({ content: [{ type: 'text', text: 'done' }] });

    const [read, failed, cancelled, inline, unread, working] = [
      await start('completed 1'),
      await start('failed'),
      await start('cancelled'),
      await start('completed 2', true),
      await start('completed 3'),
      await start('working'),
    ];
    for (const taskId of ['completed 1', 'failed', 'completed 3', 'working']) {
      await request('tasks/get', { taskId });
    }
    await outcomes(failed).toEqual([['failed', undefined]]);
    await request('tasks/result', { taskId: 'completed 1' });
    await outcomes(read).toEqual([['succeeded', hash]]);
    await request('tasks/get', { taskId: 'completed 2', isInline: true });
    await outcomes(inline).toEqual([['succeeded', hash]]);
    host.send({ jsonrpc: '2.0', id: 'c', method: 'tasks/cancel', params: { taskId: 'cancelled' } });
    await outcomes(cancelled).toEqual([['failed', undefined]]);
    expect(await outcomesOf(unread)).toEqual([]);
    await host.close();
    await outcomes(unread).toEqual([['succeeded', undefined]]);
    expect(await outcomesOf(working)).toEqual([]);
  });

  it('records the outcome with --observe, too, and runs a denied tool', async () => {
    const { host, request } = requester(['--observe']);
    expect(await request('tools/call', { name: 'delete-audit-log' })).toHaveProperty('got');
    for (const taskId of ['completed 1', 'completed 2', 'failed']) {
      await request('tools/call', { name: 'start', arguments: { taskId } });
      await request('tasks/get', { taskId });
    }
    await request('tasks/result', { taskId: 'completed 1' });
    await host.close();
    const posted = world.network.seen.filter(({ method }) => method === 'POST');
    const sent = posted.map(({ body }) => JSON.parse(body) as Record<string, string>);
    const outcomes = sent.filter(({ kind }) => kind === 'outcome');
    expect(outcomes.map(({ result, result_hash }) => [result, result_hash]).sort()).toEqual([
      ['failed', undefined],
      ['succeeded', undefined],
      ['succeeded', canonicalHash({ content: [{ type: 'text', text: 'done' }] })],
    ]);
  });
});

/** A host of a server with tasks. `request` returns the result of a request. */
function requester(options: string[] = []) {
  const host = proxies.raw({ target: ownServer('raw.mjs'), options });
  let id = 0;
  const request = async (method: string, params: object): Promise<unknown> => {
    host.send({ jsonrpc: '2.0', id: ++id, method, params });
    const response = () => host.received().find((one) => one['id'] === id);
    await expect.poll(response).toBeDefined();
    return response()!['result'];
  };
  return { host, request };
}

/** The results of a call, with their hashes. */
async function outcomesOf(proof: string): Promise<(string | undefined)[][]> {
  const outcomes = (await world.outcomesOf(proof)) as Record<string, string>[];
  return outcomes.map(({ result, result_hash }) => [result, result_hash]);
}

/** A host that is connected to the server without a proxy. */
async function hostV1ofServer() {
  const [program = '', ...args] = published('everything');
  const client = new Client({ name: 'host', version: '1.0.0' });
  await client.connect(new StdioClientTransport({ command: program, args, stderr: 'ignore' }));
  proxies.closeAfter(() => client.close());
  return {
    capabilities: client.getServerCapabilities(),
    prompts: await client.listPrompts(),
    resources: await client.listResources(),
  };
}
