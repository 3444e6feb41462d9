import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';
import { openAdapterWorld, type AdapterWorld } from '../fixtures/adapter-world.js';
import { packSdk, type PackedSdk } from '../fixtures/packed-sdk.js';
import { readyFile } from '../fixtures/ready-file.js';

const ADAPTERS = ['adapters', 'mcp', 'ai', 'langchain'];

let sdk: PackedSdk;
let world: AdapterWorld;
beforeAll(async () => {
  sdk = await packSdk();
  world = await openAdapterWorld();
});
afterAll(async () => {
  await world.close();
  await sdk.remove();
});

describe('the packed adapters', () => {
  it('load without their peer libraries, and share one error class', async () => {
    await sdk.write(
      'load.js',
      `import { NotAdmittedError } from 'svc-sdk/adapters';
       import { SdkError } from 'svc-sdk';
       const found = [];
       for (const name of ${JSON.stringify(ADAPTERS)}) {
         const module = await import('svc-sdk/' + name);
         found.push(...Object.keys(module));
         const open = module.admitTools ?? module.admitTool ?? module.admitServer ?? module.admitted;
         try { open({}, { engine: {}, agent: {} }); } catch (error) {
           if (!(error instanceof SdkError)) throw error;
         }
       }
       for (const name of ['ai', '@langchain/core/tools', '@modelcontextprotocol/sdk/types.js']) {
         await import(name).then(() => found.push('installed: ' + name), () => undefined);
       }
       console.log(JSON.stringify([found, new NotAdmittedError('aborted', 'a', 'b').message]));`,
    );
    const [found, message] = JSON.parse(await sdk.run('node', ['load.js'])) as [string[], string];
    expect(found.sort()).toEqual([
      'NOT_ADMITTED_CODES',
      'NOT_ADMITTED_META',
      'NotAdmittedError',
      'PROOF_ID_META',
      'actionOf',
      'admitClient',
      'admitServer',
      'admitTool',
      'admitTools',
      'admitted',
    ]);
    expect(message).toBe('a did not run: b');
  });

  it('have types without their peer libraries', async () => {
    await sdk.write(
      'use.ts',
      `import { admitted, NotAdmittedError, type GateOptions } from 'svc-sdk/adapters';
       import { admitTools } from 'svc-sdk/ai';
       import { admitTool } from 'svc-sdk/langchain';
       import { admitClient, admitServer } from 'svc-sdk/mcp';
       export async function use(options: GateOptions): Promise<string> {
         const book = admitted((input: { seats: number }, more: boolean) => input.seats, {
           ...options,
           tool: 'book',
           hashed: (input) => input.seats,
         });
         const seats: number = await book({ seats: 2 }, true);
         // @ts-expect-error the arguments are those of the function
         await book('two');
         // @ts-expect-error observe requires onNotAdmitted
         admitted(() => 1, { engine: options.engine, agent: { id: 'a' }, tool: 'a', mode: 'observe', onOutcomeError: () => undefined });
         // @ts-expect-error not a LangChain tool
         admitTool({ name: 'a' }, options);
         // @ts-expect-error not an MCP server
         admitServer({}, options);
         const tools = admitTools({ a: { execute: () => 1 } }, options);
         return String(tools.a.execute() + seats) + typeof admitClient + NotAdmittedError.name;
       }`,
    );
    const compilerOptions = {
      ...{ module: 'nodenext', target: 'es2023', lib: ['es2023', 'dom'], types: [] },
      ...{ strict: true, exactOptionalPropertyTypes: true, noEmit: true, skipLibCheck: false },
    };
    await sdk.write('tsconfig.json', JSON.stringify({ compilerOptions, files: ['use.ts'] }));
    const tsc = join(packageRoot, 'node_modules/typescript/bin/tsc');
    expect(await sdk.run('node', [tsc])).toBe('');
  }, 60_000);

  it('declare optional peers at tested versions', async () => {
    const read = async (path: string) =>
      JSON.parse(await readFile(join(packageRoot, path), 'utf8')) as Manifest;
    const { peerDependencies = {}, peerDependenciesMeta = {} } = await read('sdk/package.json');
    const { devDependencies = {} } = await read('package.json');
    expect(Object.keys(peerDependencies)).toHaveLength(3);
    for (const name of Object.keys(peerDependencies)) {
      expect(devDependencies[name]).toMatch(/^[0-9]+\.[0-9]+\.[0-9]+$/);
      expect(peerDependenciesMeta[name]).toEqual({ optional: true });
    }
  });
});

interface Manifest {
  devDependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
  peerDependenciesMeta?: Record<string, { optional: boolean }>;
}

describe('examples/adapters', () => {
  const run = promisify(execFile);
  const PROOF = '[0-9a-f]{32}';
  const DENIED = `did not run: denied by policy: .+ \\(proof ${PROOF}\\)`;
  const outputs: Record<string, RegExp> = {
    'function.mjs': RegExp(
      `^reservations\\.create admitted: ${PROOF}\na table for 2\ndenied: deleteAuditLog ${DENIED}\n$`,
    ),
    'mcp-client.mjs': RegExp(
      `^book_table: admitted, proof ${PROOF}: a table for 2\n` +
        `delete_audit_log: denied, proof ${PROOF}: delete_audit_log ${DENIED}\n$`,
    ),
    'ai.mjs': RegExp(
      `^bookTable admitted: ${PROOF}\nbookTable: a table for 2\n` +
        `deleteAuditLog: deleteAuditLog ${DENIED}\nA table is booked\\.\n$`,
    ),
    'langchain.mjs': RegExp(
      `^book_table admitted: ${PROOF}\nbook_table: a table for 2\n` +
        `delete_audit_log: delete_audit_log ${DENIED}\n$`,
    ),
  };

  it('has a test for every example', async () => {
    const files = await readdir(join(packageRoot, 'examples/adapters'));
    expect(files.sort()).toEqual([...Object.keys(outputs), 'mcp-server.mjs'].sort());
  });

  it('contains the code that docs/integrate.md shows', async () => {
    const documented = await readFile(join(packageRoot, 'docs/integrate.md'), 'utf8');
    const shown = [...documented.matchAll(/```mjs\n([\s\S]*?)```/g)].map(([, code]) => code!);
    const files = await readdir(join(packageRoot, 'examples/adapters'));
    const texts = await Promise.all(
      files.map((file) => readFile(join(packageRoot, 'examples/adapters', file), 'utf8')),
    );
    expect(shown.length).toBeGreaterThan(0);
    for (const code of shown) expect(texts.filter((text) => text.includes(code))).toHaveLength(1);
  });

  it.each(Object.entries(outputs))('runs %s', async (file, expected) => {
    const ready = await readyFile(world.options);
    try {
      const args = [join('examples/adapters', file), ready.path];
      const { stdout, stderr } = await run(process.execPath, args, { cwd: packageRoot });
      expect(stdout).toMatch(expected);
      expect(stderr).toBe(file === 'mcp-client.mjs' ? 'booking for 2\n' : '');
    } finally {
      await ready.remove();
    }
  });
});
