import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import ts from 'typescript';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';

/** What each folder may import. Nothing else, and never each other. */
const MAY_IMPORT: Record<string, string[]> = {
  protocol: [],
  sdk: ['protocol'],
  runtime: ['protocol'],
  sql: ['protocol'],
  policy: ['protocol', 'runtime', 'sql'],
  api: ['protocol', 'runtime', 'sql', 'policy'],
  workers: ['protocol', 'runtime', 'sql', 'policy'],
  publisher: ['protocol', 'runtime', 'sql'],
  // It checks what the others wrote, so it shares no code with them but what defines the formats.
  fsck: ['protocol', 'runtime', 'sql'],
  programs: ['protocol', 'runtime', 'sql', 'policy', 'api', 'workers', 'publisher', 'fsck'],
  bench: [
    'protocol',
    'runtime',
    'sql',
    'policy',
    'api',
    'workers',
    'publisher',
    'fsck',
    'programs',
  ],
};
/** Where the SDK meets Node, and what it is plugged into: the rest of it runs in a browser. */
const SDK_RIM = /^sdk\/(?:cli|adapters)\//;
/** The programs', and that of the command line, which is a program of another package. */
const READS_ENVIRONMENT = ['runtime/config.ts', 'sdk/cli/config.ts'];
const KERNEL_PACKAGES = [/^zod$/, /^canonicalize$/, /^@noble\//];

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

describe('imports', () => {
  let all: Source[];
  beforeAll(async () => {
    all = await sources();
  });

  it('go one way', () => {
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

  it('never cross from the engine API to the public one or back, nor from what both use to either', () => {
    // Everything else below api/ is for both.
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

  it('make no cycle', () => {
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

  it('keep the kernel free of Node, of I/O and of all but three packages', () => {
    const wrong = all
      .filter((source) => source.folder === 'protocol')
      .flatMap((source) =>
        source.imports
          .filter((one) => targetOf(source, one) === null)
          .filter((one) => !KERNEL_PACKAGES.some((allowed) => allowed.test(one)))
          .map((one) => `${source.file} imports ${one}`),
      );
    expect(wrong).toEqual([]);
  });

  it('keep the core of the SDK free of Node and of all but the packages of the kernel', () => {
    const core = all.filter(({ file, folder }) => folder === 'sdk' && !SDK_RIM.test(file));
    expect(core.length).toBeGreaterThan(0);
    const wrong = core.flatMap((source) =>
      source.imports
        .filter((one) => targetOf(source, one) === null)
        .filter((one) => !KERNEL_PACKAGES.some((allowed) => allowed.test(one)))
        .map((one) => `${source.file} imports ${one}`),
    );
    expect(wrong).toEqual([]);
    const rim = core.flatMap((source) =>
      source.imports
        .map((one) => targetOf(source, one))
        .filter((target) => target !== null && SDK_RIM.test(target))
        .map((target) => `${source.file} imports ${target}`),
    );
    expect(rim).toEqual([]);
  });

  it('keep the binary of libsodium away from every process that holds a key', () => {
    const importers = (of: string): string[] =>
      all.filter((source) => source.text.includes(of)).map(({ file }) => file);
    expect(importers(`'sodium-native'`)).toEqual([
      'runtime/crypto/sodium-native.d.ts',
      'runtime/crypto/sodium.ts',
    ]);
    const users = all.filter((source) =>
      source.imports.some((one) => targetOf(source, one) === 'runtime/crypto/sodium.ts'),
    );
    expect(users.map(({ file }) => file)).toEqual(['programs/verifier.ts']);
  });

  it('keep from each program what it has no business with: database, queue, private keys', () => {
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
    expect(having(signs)).toEqual(['worker', 'publisher']);
  });

  it('keep the metrics library out of what is measured', () => {
    const importers = all.filter(({ imports }) => imports.includes('prom-client'));
    expect(importers.length).toBeGreaterThan(0);
    expect(
      importers.map(({ file }) => file).filter((file) => !file.startsWith('runtime/ops/')),
    ).toEqual([]);
    // Instruments are for the programs; everybody else is handed what it may tell.
    const users = all.filter((source) =>
      source.imports.some((one) => targetOf(source, one) === 'runtime/ops/instruments.ts'),
    );
    expect(
      users.map(({ file }) => file).filter((file) => !file.startsWith('programs/metrics/')),
    ).toEqual([]);
  });

  it('leave the environment to one module of each package and the exit to the entry points', () => {
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

describe('the build', () => {
  it('fails when an import goes the wrong way', async () => {
    const copy = await mkdtemp(join(tmpdir(), 'svc-layout-'));
    try {
      for (const part of ['protocol', 'sql', 'package.json', 'tsconfig.base.json']) {
        await cp(join(packageRoot, part), join(copy, part), { recursive: true });
      }
      await symlink(join(packageRoot, 'node_modules'), join(copy, 'node_modules'));
      const build = () =>
        promisify(execFile)('node_modules/.bin/tsc', ['--build', 'protocol'], { cwd: copy });
      await build();
      await writeFile(
        join(copy, 'protocol', 'wrong-way.ts'),
        `export type { Db } from '#sql/db';\n`,
      );
      await expect(build()).rejects.toMatchObject({
        stdout: expect.stringContaining('wrong-way.ts') as string,
      });
    } finally {
      await rm(copy, { recursive: true, force: true });
    }
  }, 120_000);
});
