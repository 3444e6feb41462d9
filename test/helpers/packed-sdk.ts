import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '#runtime/process/package-root';

const run = promisify(execFile);

/** An empty project that has what would be published of the SDK, and what that says it needs. */
export interface PackedSdk {
  directory: string;
  /** Paths in the tarball. */
  files: string[];
  /** Bytes of the tarball. */
  size: number;
  /** Writes a file of the project. */
  write(name: string, text: string): Promise<void>;
  /** Runs a program in the project, and returns what it printed. */
  run(program: string, args: string[]): Promise<string>;
  remove(): Promise<void>;
}

/** Packs what the build has made. Nothing is downloaded: the packages it needs are those here. */
export async function packSdk(): Promise<PackedSdk> {
  const directory = await mkdtemp(join(tmpdir(), 'svc-sdk-'));
  const { stdout } = await run(
    'npm',
    [
      'pack',
      '--json',
      '--ignore-scripts',
      '--workspace',
      'svc-sdk',
      '--pack-destination',
      directory,
    ],
    { cwd: packageRoot },
  );
  const [packed] = Object.values(JSON.parse(stdout) as Record<string, Packed>);
  if (packed === undefined) throw new Error('nothing was packed');
  const modules = join(directory, 'node_modules');
  await mkdir(modules);
  await run('tar', ['-xzf', packed.filename, '-C', modules], { cwd: directory });
  await rename(join(modules, 'package'), join(modules, 'svc-sdk'));
  const manifest = await readFile(join(modules, 'svc-sdk', 'package.json'), 'utf8');
  const { dependencies } = JSON.parse(manifest) as { dependencies: Record<string, string> };
  for (const name of Object.keys(dependencies)) {
    await mkdir(dirname(join(modules, name)), { recursive: true });
    await symlink(join(packageRoot, 'node_modules', name), join(modules, name));
  }
  await writeFile(join(directory, 'package.json'), '{"type":"module","private":true}\n');
  return {
    directory,
    files: packed.files.map(({ path }) => path).sort(),
    size: packed.size,
    write: (name, text) => writeFile(join(directory, name), text),
    run: async (program, args) => {
      try {
        return (await run(program, args, { cwd: directory })).stdout;
      } catch (error) {
        const { stdout, stderr } = error as { stdout: string; stderr: string };
        throw new Error(stdout + stderr, { cause: error });
      }
    },
    remove: () => rm(directory, { recursive: true, force: true }),
  };
}

interface Packed {
  filename: string;
  size: number;
  files: { path: string }[];
}
