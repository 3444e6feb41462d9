import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';
import { reachable } from '../fixtures/module-graph.js';
import { packSdk, type PackedSdk } from '../fixtures/packed-sdk.js';

let sdk: PackedSdk;
beforeAll(async () => {
  sdk = await packSdk();
});
afterAll(() => sdk.remove());

describe('the package', () => {
  it('contains only the build, its licence and its README', async () => {
    const rest = sdk.files.filter((file) => !/^dist\/.+\.js$|^dist\/types\/.+\.d\.ts$/.test(file));
    expect(rest).toEqual(['LICENSE', 'README.md', 'package.json']);
    expect(sdk.files).toContain('dist/index.js');
    const licence = await readFile(join(sdk.directory, 'node_modules/svc-sdk/LICENSE'), 'utf8');
    expect(licence).toBe(await readFile(join(packageRoot, 'LICENSE'), 'utf8'));
    expect(sdk.size).toBeLessThan(200_000);
  });

  it('depends on the versions that the service is tested with', async () => {
    const read = async (path: string): Promise<Record<string, string>> => {
      const text = await readFile(join(packageRoot, path), 'utf8');
      return (JSON.parse(text) as { dependencies: Record<string, string> }).dependencies;
    };
    const service = await read('package.json');
    for (const [name, version] of Object.entries(await read('sdk/package.json'))) {
      expect([name, service[name]]).toEqual([name, version]);
    }
  });

  it('needs no Node module in browsers, and ships no unreachable file', async () => {
    const root = join(sdk.directory, 'node_modules/svc-sdk');
    const text = await readFile(join(root, 'package.json'), 'utf8');
    const { exports } = JSON.parse(text) as { exports: Record<string, { default?: string }> };
    const entries = Object.values(exports).flatMap((entry) => entry.default ?? []);
    const { files, packages, globals } = await reachable(root, entries);
    expect(packages).toEqual(
      new Set(['@noble/ed25519', '@noble/hashes/sha2.js', 'canonicalize', 'zod']),
    );
    expect(globals).toEqual([]);
    const shipped = sdk.files.filter((file) => /^dist\/(?!cli\/).+\.js$/.test(file));
    expect([...files].sort()).toEqual(shipped.sort());
  });

  it('documents every export', async () => {
    const typedoc = join(packageRoot, 'node_modules/typedoc/bin/typedoc');
    const options = ['--options', join(packageRoot, 'sdk/typedoc.json'), '--emit', 'none'];
    expect(await sdk.run('node', [typedoc, ...options])).not.toContain('warning');
  }, 60_000);

  it.each(['nodenext', 'bundler'])(
    'has types for the module resolution %s',
    async (how) => {
      await sdk.write(
        'use.ts',
        `import { executeIntentHttp, isDenial, exportProofHttp, lookupHttp } from 'svc-sdk';
       import type { EngineOptions, ProofExport, SdkErrorCode } from 'svc-sdk';
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
      const module = how === 'bundler' ? 'esnext' : how;
      const compilerOptions = {
        ...{ module, moduleResolution: how, target: 'es2023', lib: ['es2023', 'dom'], types: [] },
        ...{ strict: true, exactOptionalPropertyTypes: true, noEmit: true, skipLibCheck: false },
      };
      await sdk.write('tsconfig.json', JSON.stringify({ compilerOptions, files: ['use.ts'] }));
      const tsc = join(packageRoot, 'node_modules/typescript/bin/tsc');
      const printed = await sdk.run('node', [tsc]);
      expect(printed).toBe('');
    },
    60_000,
  );
});
