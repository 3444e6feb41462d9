import { execFile } from 'node:child_process';
import { mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '#runtime/process/files';

const run = promisify(execFile);

/** Version 0.1.0, with which the simulated day of operations starts. */
const COMMIT = 'db666e49';

/** A build of the earlier version, with the dependencies that are installed here. */
export async function earlierRelease(dir: string): Promise<string> {
  const root = join(dir, 'earlier');
  await mkdir(root);
  const archive = `git archive ${COMMIT} | tar -x -C "$0"`;
  await run('/bin/sh', ['-c', archive, root], { cwd: packageRoot }).catch((cause: unknown) => {
    throw new Error(`commit ${COMMIT} is missing: a shallow clone cannot be upgraded from it`, {
      cause,
    });
  });
  await symlink(join(packageRoot, 'node_modules'), join(root, 'node_modules'));
  const tool = (name: string, ...args: string[]) =>
    run(process.execPath, [join(packageRoot, 'node_modules', name), ...args], { cwd: root });
  await tool('typescript/bin/tsc', '--build', 'programs', 'api/browser');
  await tool('rolldown/bin/cli.mjs', '--config', 'api/browser/rolldown.config.js');
  return root;
}

/** Runs a program of a release to its end, and returns its output. */
export async function runProgram(
  root: string,
  env: Record<string, string>,
  program: string,
  ...args: string[]
): Promise<string> {
  const path = join(root, `dist/programs/${program}.js`);
  const { stdout } = await run(process.execPath, [path, ...args], {
    cwd: root,
    env: { PATH: process.env['PATH'] ?? '', ...env },
  });
  return stdout;
}
