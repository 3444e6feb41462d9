import { execFile } from 'node:child_process';
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
  await Promise.all((['oldest', 'later'] as const).map(install));
  const files = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
  const schema = files.schema.replace('facts: {}', 'facts: { currency?: String }');
  await activateSet(world.registry.admin, { ...files, schema });
}, 600_000);

/** The oldest supported versions, and later versions of some frameworks. */
const VERSIONS = {
  oldest: [
    'ai@5.0.0',
    '@langchain/core@0.3.80',
    '@mastra/core@1.0.4',
    '@modelcontextprotocol/sdk@1.12.0',
    '@modelcontextprotocol/server@2.0.0',
    '@modelcontextprotocol/client@2.0.0',
    '@openai/agents-core@0.3.0',
  ],
  later: [
    'ai@7.0.173',
    '@mastra/core@1.71.0',
    '@openai/agents-core@0.20.0',
    '@anthropic-ai/claude-agent-sdk@0.3.332',
  ],
};

type Versions = keyof typeof VERSIONS;

/** Creates a project with the packed SDK and packages from the registry. */
async function install(versions: Versions): Promise<void> {
  const directory = join(sdk.directory, versions);
  await mkdir(directory);
  await cp(join(packageRoot, 'test', 'frameworks'), directory, { recursive: true });
  await writeFile(join(directory, 'package.json'), '{"type":"module","private":true}\n');
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error'];
  const packages = [join(sdk.directory, sdk.tarball), 'zod@4.6.7', ...VERSIONS[versions]];
  await run('npm', ['install', ...quiet, ...packages], { cwd: directory });
}

async function node(versions: Versions, program: string, ...args: string[]) {
  const cwd = join(sdk.directory, versions);
  const { stdout } = await run('node', [program, JSON.stringify(world.options), ...args], { cwd });
  return JSON.parse(stdout) as { ran: string[]; read: Record<string, string> };
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

describe('adapters from the registry', { timeout: 120_000 }, () => {
  it.each([
    ['ai.js', 'oldest'],
    ['ai.js', 'later'],
    ['langchain.js', 'oldest'],
    ['mastra.js', 'oldest'],
    ['mastra.js', 'later'],
    ['mcp.js', 'oldest'],
    ['mcp-v2.js', 'oldest'],
    ['openai.js', 'oldest'],
    ['openai.js', 'later'],
  ] as const)(
    'guard the tools of %s with the %s versions, and send all details',
    async (program, versions) => {
      expect(await node(versions, program)).toEqual(expected);
      expectDetails();
    },
  );

  it('admit a call only once when Mastra suspends and resumes it', async () => {
    expect((await node('later', 'mastra-suspend.js')).ran).toEqual(['book_table']);
    expect(kinds()).toEqual(['admission', 'outcome']);
  });

  it('guard Claude Code by hooks of its SDK, and by svc hook', async () => {
    const claude = (...args: string[]) => node('later', 'claude.js', ...args);
    expect(await claude('sdk')).toEqual(expected);
    expectDetails();
    const both = ['book_table', 'deleteAuditLog'];
    expect((await claude('svc hook')).ran).toEqual(both);
    expect(kinds()).toEqual(['admission', 'outcome', 'admission', 'outcome']);
    const { ran, read } = await claude('svc hook --engine-url http://127.0.0.1:9');
    expect(ran).toEqual([]);
    expect(read['book_table']).toContain('Bash did not run: not admitted: no complete response');
    expect((await claude('no-such-program')).ran).toEqual([]);
  });
});
