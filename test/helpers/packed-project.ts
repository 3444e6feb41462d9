import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { rolldown } from 'rolldown';
import ts from 'typescript';
import { packageRoot } from '#runtime/process/package-root';

const run = promisify(execFile);

/** A project that was empty, with the packed SDK installed into it by npm. */
export interface PackedProject {
  dir: string;
  /** Runs a script of the project to its end, under this Node or another; what it printed. */
  node(script: string, args?: string[], node?: string): Promise<string>;
  /** The script and all that it imports, as one file for browsers. */
  bundle(script: string): Promise<string>;
  remove(): Promise<void>;
}

/**
 * Packs the SDK as it is built, and what it depends on from where it is installed here, so that no
 * registry is asked; then installs them into an empty project with the files of `test/consumer`.
 */
export async function packedProject(): Promise<PackedProject> {
  const home = await mkdtemp(join(tmpdir(), 'svc-packed-'));
  try {
    return await installedIn(home);
  } catch (error) {
    await rm(home, { recursive: true, force: true });
    throw error;
  }
}

async function installedIn(home: string): Promise<PackedProject> {
  const dir = join(home, 'project');
  const tarballs = join(home, 'tarballs');
  await Promise.all([mkdir(dir), mkdir(tarballs)]);

  const packed = [...(await withDependencies(join(packageRoot, 'sdk'))).values()];
  await npm(home, ['pack', '--ignore-scripts', '--pack-destination', tarballs, ...packed]);

  await writeFile(join(dir, 'package.json'), '{"private":true,"type":"module"}\n');
  const files = (await readdir(tarballs)).map((name) => join(tarballs, name));
  await npm(dir, ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', ...files]);

  await cp(join(packageRoot, 'test', 'consumer'), dir, { recursive: true });
  await writeFile(join(dir, 'vector.js'), await compiled('offline-vectors/vector.ts'));
  return {
    dir,
    node: async (script, args = [], node = process.execPath) => {
      const options = { cwd: dir, maxBuffer: 64 * 1024 * 1024, timeout: 120_000 };
      return (await run(node, [script, ...args], options)).stdout;
    },
    bundle: (script) => bundled(dir, script),
    remove: () => rm(home, { recursive: true, force: true }),
  };
}

/** A package's folder and those of all that it needs, by name. */
async function withDependencies(
  folder: string,
  found = new Map<string, string>(),
): Promise<Map<string, string>> {
  const { name, dependencies = {} } = JSON.parse(
    await readFile(join(folder, 'package.json'), 'utf8'),
  ) as { name: string; dependencies?: Record<string, string> };
  if ((found.get(name) ?? folder) !== folder) throw new Error(`two versions of ${name}`);
  found.set(name, folder);
  for (const needed of Object.keys(dependencies)) {
    const places = [folder, packageRoot].map((at) => join(at, 'node_modules', needed));
    const place = places.find(existsSync);
    if (place === undefined) throw new Error(`${name} needs ${needed}, which is not installed`);
    await withDependencies(place, found);
  }
  return found;
}

async function npm(cwd: string, args: string[]): Promise<void> {
  // Without the settings that `npm test` hands down, which are this package's and not the project's.
  const { PATH = '', HOME = cwd } = process.env;
  await run('npm', args, { cwd, env: { PATH, HOME } });
}

async function compiled(helper: string): Promise<string> {
  const source = await readFile(join(packageRoot, 'test', 'helpers', helper), 'utf8');
  const compilerOptions = { target: ts.ScriptTarget.ES2023, module: ts.ModuleKind.ESNext };
  return ts.transpileModule(source, { compilerOptions }).outputText;
}

/** By a bundler's defaults for browsers; a warning, as of a Node module, fails. */
async function bundled(cwd: string, input: string): Promise<string> {
  const bundle = await rolldown({
    cwd,
    input,
    platform: 'browser',
    onLog: (_level, log) => {
      throw new Error(log.message);
    },
  });
  const { output } = await bundle.generate({ format: 'esm' });
  await bundle.close();
  if (output.length !== 1) throw new Error('expected one file');
  return output[0].code;
}
