import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { canonicalHash } from '#sdk/index';
import { useAdapterWorld } from '../fixtures/adapter-world.js';
import { activateSet } from '../fixtures/approval-world.js';
import { packSdk, type PackedSdk } from '../fixtures/packed-sdk.js';

const world = useAdapterWorld();
const run = promisify(execFile);
let sdk: PackedSdk;
beforeAll(async () => {
  sdk = await packSdk();
  const files = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
  const schema = files.schema.replace('facts: {}', 'facts: { currency?: String }');
  await activateSet(world.registry.admin, { ...files, schema });
});

const MASTRA = '@mastra/core@1.71.0';

/** A project with the packed SDK and packages from the registry, which later calls use again. */
async function project(...packages: string[]) {
  const directory = join(sdk.directory, packages.join('_').replaceAll(/[^a-z0-9.]+/g, '-'));
  if (!existsSync(directory)) {
    await mkdir(directory);
    await cp(join(packageRoot, 'test', 'frameworks'), directory, { recursive: true });
    await writeFile(join(directory, 'package.json'), '{"type":"module","private":true}\n');
    const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error'];
    const tarball = join(sdk.directory, 'svc-proofs-sdk-0.1.0.tgz');
    await run('npm', ['install', ...quiet, tarball, 'zod@4.6.7', ...packages], { cwd: directory });
  }
  return async (program: string, ...args: string[]) => {
    const engine = JSON.stringify(world.options);
    const { stdout } = await run('node', [program, engine, ...args], { cwd: directory });
    return JSON.parse(stdout) as { ran: string[]; read: Record<string, string> };
  };
}

const sent = () =>
  world.network.seen
    .splice(0)
    .filter(({ method }) => method === 'POST')
    .map(({ body }) => JSON.parse(body) as { kind: string; parent_proof_id: string });
const kinds = () => sent().map(({ kind }) => kind);

/** Expects an admitted call and a denied one, with the details that `options.js` adds. */
function expectDetails(): void {
  const bodies = sent();
  const details = {
    kind: 'admission',
    arguments_hash: canonicalHash('bound'),
    facts: { currency: 'EUR' },
    tool_call_id: 'call-7',
  };
  const { parent_proof_id } = bodies[1]!;
  expect(bodies).toMatchObject([
    { ...details, run: { seq: 0 } },
    { kind: 'outcome', run: { seq: 1 } },
    { ...details, run: { seq: 2 }, parent_proof_id },
  ]);
}

const stopped = expect.stringMatching(/ did not run: denied by policy: .+ \(proof /) as string;
const expected = {
  ran: ['book_table'],
  read: {
    book_table: expect.not.stringContaining('did not run') as string,
    deleteAuditLog: stopped,
  },
};

describe('adapters from the registry', { timeout: 600_000 }, () => {
  it.each([
    ['ai.js', 'ai@5.0.0'],
    ['ai.js', 'ai@7.0.173'],
    ['langchain.js', '@langchain/core@0.3.80'],
    ['langchain.js', '@langchain/core@1.4.0'],
    ['mastra.js', '@mastra/core@1.0.4'],
    ['mastra.js', MASTRA],
    ['mcp.js', '@modelcontextprotocol/sdk@1.12.0'],
    ['mcp.js', '@modelcontextprotocol/sdk@1.32.2'],
    ['mcp-v2.js', '@modelcontextprotocol/server@2.0.0', '@modelcontextprotocol/client@2.0.0'],
    ['mcp-v2.js', '@modelcontextprotocol/server@2.4.0', '@modelcontextprotocol/client@2.4.0'],
    ['openai.js', '@openai/agents-core@0.3.0'],
    ['openai.js', '@openai/agents-core@0.8.5'],
    ['openai.js', '@openai/agents-core@0.20.0'],
  ])('guard the tools of %s with %s, and send all details', async (program, ...packages) => {
    const node = await project(...packages);
    expect(await node(program)).toEqual(expected);
    expectDetails();
  });

  it('admit a call only once when Mastra suspends and resumes it', async () => {
    const node = await project(MASTRA);
    expect((await node('mastra-suspend.js')).ran).toEqual(['book_table']);
    expect(kinds()).toEqual(['admission', 'outcome']);
  });

  it('guard Claude Code by hooks of its SDK, and by svc hook', async () => {
    const node = await project('@anthropic-ai/claude-agent-sdk@0.3.332');
    expect(await node('claude.js', 'sdk')).toEqual(expected);
    expectDetails();
    const both = ['book_table', 'deleteAuditLog'];
    expect((await node('claude.js', 'svc hook')).ran).toEqual(both);
    expect(kinds()).toEqual(['admission', 'outcome', 'admission', 'outcome']);
    const { ran, read } = await node('claude.js', 'svc hook --engine-url http://127.0.0.1:9');
    expect(ran).toEqual([]);
    expect(read['book_table']).toContain('Bash did not run: not admitted: no complete response');
    expect((await node('claude.js', 'no-such-program')).ran).toEqual([]);
  });
});
