import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { publint } from 'publint';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { reachable } from '../fixtures/module-graph.js';
import { packSdk, type PackedSdk } from '../fixtures/packed-sdk.js';

let sdk: PackedSdk;
beforeAll(async () => {
  sdk = await packSdk();
});

describe('SDK package', () => {
  it('contains only built files with source maps, the licence and the README', async () => {
    const built = /^dist\/.+\.js(\.map)?$|^dist\/types\/.+\.d\.ts$/;
    const rest = sdk.files.filter((file) => !built.test(file));
    expect(rest).toEqual(['LICENSE', 'README.md', 'package.json']);
    const unmapped = sdk.files.filter(
      (file) => file.endsWith('.js') && !sdk.files.includes(`${file}.map`),
    );
    // This file only re-exports, so it has no source map.
    expect(unmapped).toEqual(['dist/index.js']);
    const licence = await readFile(
      join(sdk.directory, 'node_modules/@svc-proofs/sdk/LICENSE'),
      'utf8',
    );
    expect(licence).toBe(await readFile(join(packageRoot, 'LICENSE'), 'utf8'));
  });

  it('passes publint and are-the-types-wrong', async () => {
    const root = join(sdk.directory, 'node_modules/@svc-proofs/sdk');
    const { messages } = await publint({ pkgDir: root, pack: false });
    expect(messages.map(({ code }) => code)).toEqual([]);
    const tarball = await readFile(join(sdk.directory, sdk.tarball));
    const analysis = await checkPackage(createPackageFromTarballData(tarball));
    const problems = 'problems' in analysis ? analysis.problems : ['no types'];
    // The package has ES modules only: `require` of them needs Node 22, and node10 knows no exports.
    const ignored = ['CJSResolvesToESM', 'NoResolution'];
    expect(problems.filter((one) => !ignored.includes((one as { kind: string }).kind))).toEqual([]);
  });

  it('needs no Node module in browsers, and contains no unreachable file', async () => {
    const root = join(sdk.directory, 'node_modules/@svc-proofs/sdk');
    const text = await readFile(join(root, 'package.json'), 'utf8');
    const { exports } = JSON.parse(text) as { exports: Record<string, { default?: string }> };
    const entries = Object.values(exports).flatMap((entry) => entry.default ?? []);
    const { files, packages, globals } = await reachable(root, entries);
    expect(packages).toEqual(
      new Set(['@noble/curves/nist.js', '@noble/ed25519', '@noble/hashes/sha2.js', 'zod']),
    );
    expect(globals).toEqual([]);
    const shipped = sdk.files.filter((file) => /^dist\/(?!cli\/).+\.js$/.test(file));
    expect([...files].sort()).toEqual(shipped.sort());
  });

  it('depends only on packages that require finds: in a CommonJS project tsx requires them', async () => {
    const manifest = join(sdk.directory, 'node_modules/@svc-proofs/sdk/package.json');
    const text = await readFile(manifest, 'utf8');
    const { dependencies } = JSON.parse(text) as { dependencies: Record<string, string> };
    const { resolve } = createRequire(manifest);
    for (const name of Object.keys(dependencies)) {
      expect(() => resolve(name), name).not.toThrow();
    }
  });

  it('loads every adapter without its peer library, and all share one error class', async () => {
    await sdk.write(
      'load.js',
      `import { canonicalHash, isNotAdmitted, SdkError } from '@svc-proofs/sdk';
       import { fakeEngine } from '@svc-proofs/sdk/testing';
       const main = await import('@svc-proofs/sdk');
       const classes = new Set();
       for (const name of ['adapters', 'mcp', 'ai', 'langchain', 'openai', 'mastra', 'claude']) {
         const module = await import('@svc-proofs/sdk/' + name);
         for (const one of Object.values({ ...main, ...module })) {
           if (one.prototype instanceof Error) classes.add(one.name);
         }
         const open = module.admitTools ?? module.admitTool ?? module.admitServer ?? module.admitted ?? module.admitHooks;
         try { open({ engine: {}, agent: {} }, { engine: {}, agent: {} }); } catch (error) {
           if (!(error instanceof SdkError)) throw error;
         }
       }
       for (const name of ['ai', '@langchain/core/tools', '@modelcontextprotocol/sdk/types.js']) {
         await import(name).then(() => classes.add('installed: ' + name), () => undefined);
       }
       const options = { engine: fakeEngine(() => 'DENY').options, agent: { id: 'a' }, onOutcomeError() {} };
       const { openGate } = await import('@svc-proofs/sdk/adapters');
       const call = { tool: 'a', arguments: {} };
       const error = await openGate(options).begin(call).catch((thrown) => thrown);
       if (!isNotAdmitted(error)) throw error;
       try { canonicalHash(1n); } catch (thrown) { classes.add(thrown.name); }
       console.log(JSON.stringify([error.code, ...classes]));`,
    );
    const result = await sdk.run('node', ['load.js']);
    expect(JSON.parse(result)).toEqual(['policy_denied', 'SdkError']);
  });

  it('has declarations that TypeScript before 5.7 reads, which has no generic Uint8Array', async () => {
    const root = join(sdk.directory, 'node_modules/@svc-proofs/sdk');
    for (const file of sdk.files.filter((one) => one.endsWith('.d.ts'))) {
      expect(await readFile(join(root, file), 'utf8'), file).not.toContain('Uint8Array<');
    }
  });

  it('has types that compile, with and without the peer libraries', async () => {
    await sdk.write(
      'use.ts',
      `import { executeIntentHttp, isDenial, exportProofHttp, lookupHttp } from '@svc-proofs/sdk';
       import type { EngineOptions, ProofExport, SdkErrorCode } from '@svc-proofs/sdk';
       export async function use(options: EngineOptions): Promise<'ADMITTED' | string> {
         const receipt = await executeIntentHttp(options, { intent_id: 'a', action: 'B' });
         const status: 'ADMITTED' = receipt.status;
         const exported = await exportProofHttp(options, { proof_id: receipt.registry_proof_id });
         const document: ProofExport = exported.response;
         const pdf = await exportProofHttp(options, { proof_id: document.proof_id, format: 'pdf' });
         const bytes: Uint8Array = pdf.response;
         const found = await lookupHttp({ publicUrl: '' }, { kind: 'proof', identifier: 'a' });
         const asserts: boolean = found.can_assert_validity;
         // @ts-expect-error not a member of an execute request
         await executeIntentHttp(options, { intent_id: 'a', action: 'B', more: 1 });
         // @ts-expect-error no key
         await executeIntentHttp({ engineUrl: '', tenantId: '' }, { intent_id: 'a', action: 'B' });
         return \`\${status} \${String(asserts)} \${String(bytes.length)}\`;
       }
       export function why(error: unknown): SdkErrorCode | string[] | undefined {
         // @ts-expect-error no such code
         const none: SdkErrorCode = 'anything';
         return isDenial(error) ? error.denial.reasons : none;
       }`,
    );
    await sdk.write(
      'adapters.ts',
      `import { admitted, type GateOptions } from '@svc-proofs/sdk/adapters';
       import { admitTools } from '@svc-proofs/sdk/ai';
       import { admitTool } from '@svc-proofs/sdk/langchain';
       import { admitClient, admitServer } from '@svc-proofs/sdk/mcp';
       export async function use(options: GateOptions): Promise<string> {
         const book = admitted((input: { seats: number }, more: boolean) => input.seats, {
           ...options,
           tool: 'book',
           describe: (input) => ({ hashed: input.seats }),
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
         return String(tools.a.execute() + seats) + typeof admitClient;
       }`,
    );
    const compilerOptions = {
      ...{ module: 'nodenext', target: 'es2023', lib: ['es2023', 'dom'], types: [] },
      ...{ strict: true, exactOptionalPropertyTypes: true, noEmit: true, skipLibCheck: false },
    };
    const files = ['use.ts', 'adapters.ts'];
    await sdk.write('tsconfig.json', JSON.stringify({ compilerOptions, files }));
    const tsc = join(packageRoot, 'node_modules/typescript/bin/tsc');
    expect(await sdk.run('node', [tsc])).toBe('');
  }, 60_000);
});
