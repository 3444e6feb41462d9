import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();

describe('examples/adapters', () => {
  const run = promisify(execFile);
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
    const { engineUrl, tenantId, apiKey } = world.options;
    const ready = join(await mkdtemp(join(tmpdir(), 'svc-ready-')), 'ready.json');
    // As `npm start` writes the file for clients.
    const settings = {
      engine_url: engineUrl,
      public_url: '',
      tenant_id: tenantId,
      api_key: apiKey,
    };
    await writeFile(ready, JSON.stringify(settings), { mode: 0o600 });
    const args = [join('examples/adapters', file), ready];
    const { stdout, stderr } = await run(process.execPath, args, { cwd: packageRoot });
    expect(stdout).toMatch(expected);
    expect(stderr).toBe(file === 'mcp-client.mjs' ? 'booking for 2\n' : '');
  });
});
