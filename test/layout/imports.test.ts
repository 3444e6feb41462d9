import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import ts from 'typescript';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';

const SERVER = ['protocol', 'runtime', 'sql'];
const ALL = [...SERVER, 'policy', 'api', 'workers', 'publisher', 'fsck'];
/** The folders that each folder may import besides itself. */
const MAY_IMPORT: Record<string, string[]> = {
  protocol: [],
  sdk: ['protocol'],
  runtime: ['protocol'],
  sql: ['protocol', 'runtime'],
  policy: SERVER,
  api: [...SERVER, 'policy'],
  workers: [...SERVER, 'policy'],
  publisher: SERVER,
  // fsck checks what the other programs wrote, so it may import only the code that defines the formats.
  fsck: SERVER,
  programs: [...ALL, 'sdk'],
  bench: [...ALL, 'programs', 'sdk'],
};
/** The parts of the SDK that need Node or a framework; the rest runs in a browser. */
const SDK_OUTSIDE_CORE = /^sdk\/(?:cli|adapters)\//;
/** The modules that may read the environment: one for the programs, one for the package of the command line. */
const READS_ENVIRONMENT = ['runtime/config.ts', 'sdk/cli/config.ts'];
const CORE_PACKAGES = [/^zod$/, /^canonicalize$/, /^@noble\//];

interface Source {
  file: string;
  folder: string;
  text: string;
  imports: string[];
}

async function sources(): Promise<Source[]> {
  const found: Source[] = [];
  for (const folder of Object.keys(MAY_IMPORT)) {
    for (const name of await readdir(join(packageRoot, folder), { recursive: true })) {
      if (!name.endsWith('.ts') || /(?:^|\/)(?:dist|node_modules)\//.test(name)) continue;
      const file = join(folder, name);
      const text = await readFile(join(packageRoot, file), 'utf8');
      const imports = ts.preProcessFile(text).importedFiles.map((one) => one.fileName);
      found.push({ file, folder, text, imports });
    }
  }
  return found;
}

function targetOf(source: Source, specifier: string): string | null {
  const own = /^#(\w+)\/(.+)$/.exec(specifier);
  if (own !== null) return `${own[1]}/${own[2]}.ts`;
  if (!specifier.startsWith('.')) return null;
  return relative('.', join(dirname(source.file), specifier.replace(/\.js$/, '.ts')));
}

describe('source files', () => {
  let all: Source[];
  beforeAll(async () => {
    all = await sources();
  });

  it('import only from folders that their own folder may depend on', () => {
    expect(all.length).toBeGreaterThan(50);
    const wrong = all.flatMap((source) =>
      source.imports.flatMap((specifier) => {
        const target = targetOf(source, specifier);
        if (target === null) return [];
        const folder = target.split('/')[0] ?? '';
        const allowed = folder === source.folder || MAY_IMPORT[source.folder]?.includes(folder);
        return allowed ? [] : [`${source.file} imports ${specifier}`];
      }),
    );
    expect(wrong).toEqual([]);
  });

  it('of one API import nothing from the other, and code that both share imports from neither', () => {
    // All other folders below api/ serve both APIs.
    const APIS = ['engine', 'public'];
    const wrong = all
      .filter((source) => source.file.startsWith('api/'))
      .flatMap((source) =>
        source.imports
          .map((specifier) => targetOf(source, specifier))
          .filter((target) => target?.startsWith('api/'))
          .filter((target) => {
            const [from = '', to = ''] = [source.file, target].map((file) => file?.split('/')[1]);
            return APIS.includes(to) && to !== from;
          })
          .map((target) => `${source.file} imports ${target}`),
      );
    expect(wrong).toEqual([]);
  });

  it('do not import each other in a cycle', () => {
    const graph = new Map(
      all.map((source) => [
        source.file,
        source.imports.map((one) => targetOf(source, one)).filter((one) => one !== null),
      ]),
    );
    const done = new Set<string>();
    const visit = (file: string, path: string[]): void => {
      if (path.includes(file)) {
        throw new Error(`cycle: ${[...path.slice(path.indexOf(file)), file].join(' → ')}`);
      }
      if (done.has(file)) return;
      for (const next of graph.get(file) ?? []) visit(next, [...path, file]);
      done.add(file);
    };
    for (const file of graph.keys()) visit(file, []);
  });

  it('of protocol, page scripts and SDK core import no Node module, and only three packages', () => {
    const core = all.filter(
      ({ file, folder }) =>
        (folder === 'sdk' && !SDK_OUTSIDE_CORE.test(file)) || file.startsWith('api/browser/'),
    );
    expect(core.length).toBeGreaterThan(0);
    const wrong = [...all.filter(({ folder }) => folder === 'protocol'), ...core].flatMap(
      (source) =>
        source.imports
          .filter((one) => {
            const target = targetOf(source, one);
            return target === null
              ? !CORE_PACKAGES.some((allowed) => allowed.test(one))
              : SDK_OUTSIDE_CORE.test(target) || /^api\/(?!browser\/)/.test(target);
          })
          .map((one) => `${source.file} imports ${one}`),
    );
    expect(wrong).toEqual([]);
  });

  it('import libsodium only for the worker, the verifier and a benchmark', () => {
    const importers = (of: string): string[] =>
      all.filter((source) => source.text.includes(of)).map(({ file }) => file);
    expect(importers(`'sodium-native'`)).toEqual([
      'runtime/crypto/sodium-native.d.ts',
      'runtime/crypto/sodium.ts',
      'bench/baseline/signed-documents.ts',
    ]);
    const users = all.filter((source) =>
      source.imports.some((one) => targetOf(source, one) === 'runtime/crypto/sodium.ts'),
    );
    const programs = ['programs/verifier.ts', 'programs/worker.ts'];
    expect(users.map(({ file }) => file).sort()).toEqual(programs);
  });

  it('give access to database, queue and private keys only to the servers that need them', () => {
    const reaches = (program: string): Source[] => {
      const found = new Set<string>();
      const open = [`programs/${program}.ts`];
      for (let file = open.pop(); file !== undefined; file = open.pop()) {
        const source = all.find((one) => one.file === file);
        if (found.has(file) || source === undefined) continue;
        found.add(file);
        open.push(...source.imports.flatMap((one) => targetOf(source, one) ?? []));
      }
      return all.filter(({ file }) => found.has(file));
    };
    const SERVERS = ['engine', 'worker', 'verifier', 'publisher', 'facade'];
    const having = (of: (source: Source) => boolean): string[] =>
      SERVERS.filter((program) => reaches(program).some(of));
    const uses = (name: string) => (source: Source) => source.imports.includes(name);
    expect(having(uses('postgres'))).toEqual(['engine', 'worker', 'verifier', 'publisher']);
    expect(having(uses('bullmq'))).toEqual(['engine', 'worker']);
    expect(having(uses('ioredis'))).toEqual(['engine', 'worker']);
    const signs = ({ file, text }: Source): boolean =>
      file !== 'runtime/crypto/node.ts' && /\b(?:load|create)SigningKey\b/.test(text);
    expect(having(signs)).toEqual(['worker', 'verifier', 'publisher']);
  });

  it('read the environment only in one module of each package, and exit only in entry points', () => {
    const wrong = all.flatMap(({ file, folder, text }) => [
      ...(/\bprocess\.env\b/.test(text) && !READS_ENVIRONMENT.includes(file)
        ? [`${file}: env`]
        : []),
      ...(/\bprocess\.exit\(/.test(text) && folder !== 'programs' && file !== 'sdk/cli/svc.ts'
        ? [`${file}: exit`]
        : []),
    ]);
    expect(wrong).toEqual([]);
  });
});
