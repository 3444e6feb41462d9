import { copyFile, readFile } from 'node:fs/promises';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import ts from 'typescript';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { type EngineOptions, listProofPageHttp } from '#sdk/index';
import { activateApprovalSet } from '../fixtures/approval-world.js';
import { issueKey } from '../fixtures/engine.js';
import { packSdk, type PackedSdk } from '../fixtures/packed-sdk.js';
import { startStack, type RunningStack } from '../fixtures/stack.js';

/** Runs every example of docs/quickstart.md and docs/integrate.md against a real service. */
let stack: RunningStack;
let project: PackedSdk;
let guide: string;

beforeAll(async () => {
  [stack, project] = await Promise.all([startStack(), packSdk()]);
  const pages = ['quickstart.md', 'integrate.md'].map((page) =>
    readFile(join(packageRoot, 'docs', page), 'utf8'),
  );
  guide = (await Promise.all(pages)).join('\n');
  await copyFile(join(stack.dataDir, 'ready.json'), join(project.directory, 'ready.json'));
  for (const [, name = '', text = ''] of guide.matchAll(/```js\n\/\/ (\S+)\n([\s\S]*?)```/g)) {
    await project.write(name, text);
    examples.push(join(project.directory, name));
  }
}, 120_000);
afterAll(async () => {
  await stack.destroy();
});

const examples: string[] = [];
const ran = new Set<string>();

function node(file: string): Promise<string> {
  ran.add(file);
  return project.run('node', [file]);
}

describe('documented examples of the SDK', () => {
  it('compile in the strict mode of TypeScript', () => {
    expect(examples).not.toEqual([]);
    const program = ts.createProgram(examples, {
      ...{ strict: true, allowJs: true, checkJs: true, noEmit: true, skipLibCheck: true },
      ...{ target: ts.ScriptTarget.ES2023, module: ts.ModuleKind.NodeNext },
      ...{ types: ['node'], typeRoots: [join(packageRoot, 'node_modules', '@types')] },
    });
    const faults = ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => {
      return `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
    });
    expect(faults).toEqual([]);
  }, 60_000);

  it('admit an action, and return the first receipt when the input repeats', async () => {
    const first = await node('execute.js');
    expect(first).toMatch(/^ADMITTED [0-9a-f]{32}\n$/);
    expect(await node('execute.js')).toBe(first);
  });

  it('show a denial with its proof', async () => {
    expect(await node('denied.js')).toMatch(/^DENIED \[ '\S+' \] \S.+\n$/);
  });

  it('export a proof, and verify the export offline', async () => {
    expect(await node('keep.js')).toBe('VALID true\n');
    expect(await node('offline.js')).toMatch(/^true true unknown since checkpoint [0-9]+\n$/);
  });

  it('include command-line examples that run as printed', async () => {
    const [, block = ''] =
      /From the command line\n\n[^`]*`npm start`[^\n]*\n\n```sh\n([\s\S]*?)```/.exec(guide) ?? [];
    const lines = block
      .replace('http://127.0.0.1:8080', stack.engineUrl)
      .replace('http://127.0.0.1:8081', stack.publicUrl)
      // The file that npx would run in this project.
      .replaceAll('npx --no -- svcp', 'node node_modules/@svc-proofs/sdk/dist/cli/svc.js');
    const { stdout } = await promisify(execFile)('bash', ['-euo', 'pipefail', '-c', lines], {
      cwd: project.directory,
    });
    expect(stdout).toMatch(/^1 admitted\nbatch .*\nrate .*\nVALID\n[\s\S]*\nauthentic, included\n/);
  }, 60_000);

  it("admit an agent's action and a batch, and read their proofs", async () => {
    expect(await node('client.js')).toMatch(/^ADMITTED [0-9a-f]{32} ADMIT\n$/);
    expect(await node('fake.js')).toBe('policy_denied 1\n');
    expect(await node('agent.js')).toBe('ADMITTED ADMITTED\n');
    expect(await node('agent-key.js')).toBe('key_restricted\n');
    expect(await node('run.js')).toBe('closed 2\n');
    expect(await node('many.js')).toBe('');
    expect(await node('proofs.js')).toMatch(/^[0-9a-f]{32} .*ADMIT .+\n$/);
    expect(await node('lookup.js')).toMatch(/^NOT_FOUND false [0-9]+\n$/);
  }, 60_000);

  // Must run last: this test replaces the policy set.
  it('wait for an approval by the command line', async () => {
    const read = (file: string): Promise<string> => readFile(join(project.directory, file), 'utf8');
    const sql = stack.superuser();
    await activateApprovalSet({ admin: sql });
    const ready = JSON.parse(await read('ready.json')) as Record<string, string>;
    const engine: EngineOptions = {
      engineUrl: stack.engineUrl,
      apiKey: ready['api_key']!,
      tenantId: ready['tenant_id']!,
    };
    const apiKey = await issueKey({ admin: sql }, { ...engine, scopes: ['approve', 'approvers'] });
    const svc = (...args: string[]): Promise<string> =>
      project.run('env', [
        `SVC_TENANT_ID=${engine.tenantId}`,
        `SVC_ENGINE_URL=${engine.engineUrl}`,
        `SVC_API_KEY=${apiKey}`,
        ...['node', 'node_modules/@svc-proofs/sdk/dist/cli/svc.js', ...args],
      ]);
    await svc('approver', 'ops-lead', '--key', 'ops-lead.pem');
    await svc('register-approver', 'registration.json');
    const waiting = node('approval.js');
    const pending = async () =>
      (await listProofPageHttp(engine, { effect: 'REQUIRE_APPROVAL' })).proofs[0]?.proof_id ?? '';
    await expect.poll(pending, { timeout: 30_000 }).not.toBe('');
    const approved = await svc('approve', await pending(), '--key', 'ops-lead.pem', '--yes');
    expect(approved).toContain('ADMITTED');
    expect(await waiting).toBe('ADMITTED\n');
  }, 60_000);

  it('are all executed by these tests', () => {
    const named = [...guide.matchAll(/```js\n\/\/ (\S+)\n/g)].map(([, name]) => name);
    expect(guide.match(/```js\n/g)).toHaveLength(named.length);
    expect(new Set(named)).toEqual(new Set([...ran, 'connect.js']));
  });
});
