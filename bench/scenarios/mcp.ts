import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { packageRoot } from '#runtime/process/files';
import type { Cleanup } from '../harness/cleanup.js';
import { print } from '../harness/command.js';
import { resultOf, type Result, type RunContext, type Scenario } from '../harness/scenario.js';
import { startStack } from '../harness/stack.js';
import { percentile } from '../harness/statistics.js';

/** Tool calls of an MCP server behind `svc mcp`, against the bare server. */
export const mcp: Scenario = { name: 'mcp', run };

const QUICK = { rounds: 2, calls: 100 };
const FULL = { rounds: 6, calls: 500 };
const WARM_UP = 20;

const SERVER = [
  join(packageRoot, 'node_modules/@modelcontextprotocol/server-everything/dist/index.js'),
];
const PROXY = [join(packageRoot, 'sdk/dist/cli/svc.js'), 'mcp', '--', process.execPath, ...SERVER];

async function run({ dir, redis, quick, cleanup }: RunContext): Promise<Result[]> {
  const { rounds, calls } = quick ? QUICK : FULL;
  const { engineUrl, registry } = await startStack(dir, { redis }, cleanup);
  const env = {
    SVC_ENGINE_URL: engineUrl,
    SVC_TENANT_ID: registry.tenantId,
    SVC_API_KEY: registry.apiKey,
  };
  const bareServer = await connect(SERVER, {}, cleanup);
  const gatedServer = await connect(PROXY, env, cleanup);
  const ms = { bare: [] as number[], gated: [] as number[] };
  for (let round = 0; round < rounds; round += 1) {
    ms.bare.push(...(await timeCalls(bareServer, calls)));
    ms.gated.push(...(await timeCalls(gatedServer, calls)));
    print(`      p50 ${percentile(ms.gated, 50).toFixed(1)} ms behind svc mcp`);
  }
  return [50, 99].map((percent) => {
    const [bare, gated] = [percentile(ms.bare, percent), percentile(ms.gated, percent)];
    return resultOf({
      name: `svc mcp: tool call, p${String(percent)}`,
      unit: 'ms',
      value: gated,
      against: { what: 'the bare server', value: bare },
      note: `the gate adds ${(gated - bare).toFixed(1)} ms; ${String(rounds * calls)} calls of echo one by one, in ${String(rounds)} interleaved rounds`,
    });
  });
}

async function connect(
  args: string[],
  env: Record<string, string>,
  cleanup: Cleanup,
): Promise<Client> {
  const client = new Client({ name: 'bench', version: '1.0.0' });
  cleanup.push(() => client.close());
  const command = process.execPath;
  await client.connect(new StdioClientTransport({ command, args, env, stderr: 'ignore' }));
  await timeCalls(client, WARM_UP);
  return client;
}

async function timeCalls(client: Client, count: number): Promise<number[]> {
  const ms: number[] = [];
  for (let n = 0; n < count; n += 1) {
    const since = performance.now();
    const result = await client.callTool({ name: 'echo', arguments: { message: 'hello' } });
    ms.push(performance.now() - since);
    if (result.isError === true) throw new Error('the tool echo failed');
  }
  return ms;
}
