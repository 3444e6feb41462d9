import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { useAdapterWorld } from '../fixtures/adapter-world.js';
import { proofOf, textOf } from '../fixtures/mcp-proxy.js';
import { packSdk, type PackedSdk } from '../fixtures/packed-sdk.js';

const world = useAdapterWorld();
const run = promisify(execFile);
const INSPECTOR = '@modelcontextprotocol/inspector@2.12.0';
const SERVERS = ['filesystem', 'everything'];

let sdk: PackedSdk;
let directory: string;
beforeAll(async () => {
  sdk = await packSdk();
  directory = join(sdk.directory, 'empty');
  await mkdir(directory);
  await writeFile(join(directory, 'package.json'), '{"private":true}\n');
  const { devDependencies } = JSON.parse(
    await readFile(join(packageRoot, 'package.json'), 'utf8'),
  ) as { devDependencies: Record<string, string> };
  const servers = SERVERS.map((name) => `@modelcontextprotocol/server-${name}`);
  const packages = servers.map((name) => `${name}@${devDependencies[name]!}`);
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error'];
  const tarball = join(sdk.directory, sdk.tarball);
  await run('npm', ['install', ...quiet, tarball, INSPECTOR, ...packages], { cwd: directory });
}, 600_000);

const bin = (name: string, args: string[], env = {}): Promise<string> =>
  run(join(directory, 'node_modules', '.bin', name), args, {
    cwd: directory,
    env: { PATH: process.env['PATH'], HOME: directory, ...env },
  }).then(({ stdout }) => stdout);

describe('svc mcp install, in an empty folder', { timeout: 120_000 }, () => {
  it('gates published servers for the CLI of the inspector', async () => {
    await writeFile(join(directory, 'key'), world.options.apiKey);
    const env = {
      SVC_ENGINE_URL: world.options.engineUrl,
      SVC_TENANT_ID: world.options.tenantId,
      SVC_API_KEY_FILE: 'key',
    };
    for (const name of SERVERS) {
      const server = join(directory, 'node_modules', '.bin', `mcp-server-${name}`);
      const target = ['--', server, ...(name === 'filesystem' ? [directory] : [])];
      await bin('svc', ['mcp', 'install', 'claude-code', '--name', name, ...target], env);
    }
    const call = async (server: string, tool: string, ...args: string[]) => {
      const config = ['--cli', '--config', '.mcp.json', '--server', server];
      const given = args.flatMap((one) => ['--tool-arg', one]);
      const method = ['--method', 'tools/call', '--tool-name', tool, ...given];
      return JSON.parse(await bin('mcp-inspector', [...config, ...method])) as object;
    };
    const echoed = await call('everything', 'echo', 'message=hello');
    expect(textOf(echoed)).toBe('Echo: hello');
    const read = await call('filesystem', 'read_text_file', `path=${join(directory, 'key')}`);
    expect(textOf(read)).toBe(world.options.apiKey);
    for (const result of [echoed, read]) {
      expect(await world.verdict(proofOf(result))).toEqual({ status: 'VALID', effect: 'ADMIT' });
      expect(await world.outcomesOf(proofOf(result))).toMatchObject([{ result: 'succeeded' }]);
    }
  });
});
