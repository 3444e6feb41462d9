import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();
const run = promisify(execFile);

/** Writes the file that `npm start` writes for clients, and returns its path. */
async function writeReadyFile(): Promise<string> {
  const { engineUrl, tenantId, apiKey } = world.options;
  const ready = join(await mkdtemp(join(tmpdir(), 'svc-ready-')), 'ready.json');
  const settings = {
    engine_url: engineUrl,
    public_url: '',
    tenant_id: tenantId,
    api_key: apiKey,
  };
  await writeFile(ready, JSON.stringify(settings), { mode: 0o600 });
  return ready;
}

describe('examples/adapters', () => {
  const PROOF = '[0-9a-f]{32}';
  const DENIED = `did not run: denied by policy: .+ \\(proof ${PROOF}\\)`;
  const outputs: Record<string, RegExp> = {
    'function.mjs': RegExp(
      `^reservations\\.create admitted: ${PROOF}\na table for 2\npolicy_denied: deleteAuditLog ${DENIED}\n$`,
    ),
    'gate.mjs': RegExp(`^book_table admitted: ${PROOF}\na table for 2\n$`),
    'mcp-client.mjs': RegExp(
      `^book_table: admitted, proof ${PROOF}: a table for 2\n` +
        `delete_audit_log: policy_denied, proof ${PROOF}: delete_audit_log ${DENIED}\n$`,
    ),
    'ai.mjs': RegExp(
      `^bookTable admitted: ${PROOF}\nbookTable: a table for 2\n` +
        `deleteAuditLog: deleteAuditLog ${DENIED}\nA table is booked\\.\n$`,
    ),
    'openai.mjs': RegExp(
      `^book_table admitted: ${PROOF}\nbook_table: a table for 2\n` +
        `deleteAuditLog: deleteAuditLog ${DENIED}\n$`,
    ),
    'langchain.mjs': RegExp(
      `^book_table admitted: ${PROOF}\nbook_table: a table for 2\n` +
        `delete_audit_log: delete_audit_log ${DENIED}\n$`,
    ),
  };

  it('contain the code that docs/integrate.md shows', async () => {
    const documented = await readFile(join(packageRoot, 'docs/integrate.md'), 'utf8');
    const shown = [...documented.matchAll(/```mjs\n([\s\S]*?)```/g)].map(([, code]) => code!);
    const files = await readdir(join(packageRoot, 'examples/adapters'));
    const texts = await Promise.all(
      files.map((file) => readFile(join(packageRoot, 'examples/adapters', file), 'utf8')),
    );
    expect(files.sort()).toEqual([...Object.keys(outputs), 'connect.mjs', 'mcp-server.mjs'].sort());
    expect(shown.length).toBeGreaterThan(0);
    for (const code of shown) expect(texts.filter((text) => text.includes(code))).toHaveLength(1);
  });

  it.each(Object.entries(outputs))('print the expected output: %s', async (file, expected) => {
    const args = [join('examples/adapters', file), await writeReadyFile()];
    const { stdout, stderr } = await run(process.execPath, args, { cwd: packageRoot });
    expect(stdout).toMatch(expected);
    expect(stderr).toBe(file === 'mcp-client.mjs' ? 'booking for 2\n' : '');
  });
});

it('README.md > guards a tool', async () => {
  const readme = await readFile(join(packageRoot, 'README.md'), 'utf8');
  const [, section = ''] = readme.split('\n## Guard a tool\n');
  const [, shown = ''] = /```js\n([\s\S]*?)```/.exec(section) ?? [];
  const code = `import { options } from './examples/adapters/connect.mjs';
    const { engine } = options;
    const issueRefund = ({ order }) => console.log('refunded', order);
    ${shown}`;
  const args = ['--input-type=module', '--eval', code, 'readme.js', await writeReadyFile()];
  const { stdout } = await run(process.execPath, args, { cwd: packageRoot });
  expect(stdout).toBe('refunded 4821\n');
});
