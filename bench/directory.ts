import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { removeEmbeddedPostgres } from '#runtime/embedded/start';
import { OperatorError } from '#runtime/process/operator-error';

/** Where a bench keeps its data. */
export interface BenchDirectory {
  path: string;
  /** Removes what one measurement left, unless it is to be kept. */
  discard(below: string): Promise<void>;
  close(): Promise<void>;
}

/** Magic numbers of file systems in memory, from statfs(2). */
const IN_MEMORY = new Set([0x01021994, 0x858458f6]);

/**
 * The directory that is given, which is kept, or one of its own, which is not.
 *
 * @throws OperatorError when it is in memory: there fsync costs nothing and means nothing
 */
export async function openBenchDirectory(given: string | undefined): Promise<BenchDirectory> {
  const path = given === undefined ? await makeDirectory() : resolve(given);
  await mkdir(path, { recursive: true, mode: 0o755 });
  const isKept = given !== undefined;
  const discard = async (below: string): Promise<void> => {
    if (isKept) return;
    await removePostgresBelow(below);
    await rm(below, { recursive: true, force: true, maxRetries: 10 });
  };
  if (IN_MEMORY.has((await statfs(path)).type)) {
    await discard(path);
    throw new OperatorError(`${path} is in memory: name a directory on a disk with --dir`);
  }
  return { path, discard, close: () => discard(path) };
}

/** Below /var/tmp, which is on a disk where /tmp may be in memory. */
async function makeDirectory(): Promise<string> {
  const parent = existsSync('/var/tmp') ? '/var/tmp' : tmpdir();
  const path = await mkdtemp(join(parent, 'svc-bench-'));
  // Within reach of the user that Postgres runs as when this runs as root.
  await chmod(path, 0o755);
  return path;
}

/** A cluster may live elsewhere than in the directory that it belongs to. */
async function removePostgresBelow(directory: string): Promise<void> {
  if (!existsSync(directory)) return;
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    if (entry.isDirectory()) await removeEmbeddedPostgres(join(directory, entry.name));
  }
  await removeEmbeddedPostgres(directory);
}
