import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { constants, existsSync } from 'node:fs';
import { access, chmod, mkdir, stat } from 'node:fs/promises';
import { basename, dirname, resolve, join } from 'node:path';
import { formatTime } from '#protocol/time';
import { OperatorError } from './operator-error.js';

/** Creates a missing directory, as the umask permits. The error names the setting to change. */
export async function makeFolder(
  variable: string,
  path: string,
  make: (path: string) => Promise<unknown> = (folder) => mkdir(folder, { recursive: true }),
): Promise<void> {
  try {
    await make(path);
    await access(path, constants.W_OK | constants.X_OK);
  } catch (cause) {
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    throw new OperatorError(
      `${path} cannot be written (${code}): set ${variable} to a directory that this user can write.`,
      { cause },
    );
  }
}

/** Creates a missing directory and its parents with mode 0755, whatever the umask. */
export async function makePublicFolder(path: string): Promise<void> {
  const topmost = await mkdir(path, { recursive: true });
  if (topmost === undefined) return;
  for (let made = resolve(path); ; made = dirname(made)) {
    await chmod(made, 0o755);
    if (made === resolve(topmost)) return;
  }
}

/** The file of a live lock has about the present time, rounded to a second on some file systems. */
const LOCK_AHEAD_MS = 5_000;

/**
 * The next step for a lock with a time in the future, or null. A process whose clock was ahead leaves such a lock at a
 * crash, and proper-lockfile takes over no lock before its time is past.
 */
export async function futureLock(path: string): Promise<string | null> {
  const time = await stat(path).then(
    ({ mtime }) => mtime.getTime(),
    () => 0,
  );
  if (time <= Date.now() + LOCK_AHEAD_MS) return null;
  return `the lock ${path} has the time ${formatTime(time)}, which is in the future: correct the clock of the host, or delete this lock if no process uses its directory`;
}

/** Adds the path, which Node's error lacks when a read or write of an open file fails, as on a full disk. */
export function withPath(error: unknown, path: string): unknown {
  const { code, path: named, message } = error as NodeJS.ErrnoException;
  if (code === undefined || named !== undefined) return error;
  return Object.assign(new Error(`${path}: ${message}`, { cause: error }), { code });
}

/** A save takes seconds, so a temporary file of this age is that of a killed process. */
const ABANDONED_MS = 3_600_000;

/**
 * Deletes the temporary files that killed processes left for `path`, as far as possible.
 *
 * @param now the time of the file server, whose clock may differ from that of this machine
 */
function removeAbandoned(path: string, now: number): void {
  for (const name of fs.readdirSync(dirname(path))) {
    if (!name.startsWith(`${basename(path)}.`) || !/\.[0-9a-f]{12}\.new$/.test(name)) continue;
    const file = join(dirname(path), name);
    try {
      if (now - fs.statSync(file).mtimeMs > ABANDONED_MS) fs.rmSync(file);
    } catch {
      // The temporary file belongs to another user, or another process has deleted it: the save does not need the
      // deletion.
    }
  }
}

/** Writes and syncs a temporary file; `install` then gives the file its final name. */
function writeStaged(
  path: string,
  content: string,
  install: (staging: string) => void,
  mode = 0o600,
): void {
  const staging = `${path}.${randomBytes(6).toString('hex')}.new`;
  const file = fs.openSync(staging, 'wx', 0o600);
  try {
    removeAbandoned(path, fs.fstatSync(file).mtimeMs);
    fs.writeFileSync(file, content);
    fs.fchmodSync(file, mode);
    fs.fsyncSync(file);
    install(staging);
  } catch (error) {
    throw withPath(error, path);
  } finally {
    fs.closeSync(file);
    fs.rmSync(staging, { force: true });
  }
  const directory = fs.openSync(dirname(path), 'r');
  try {
    fs.fsyncSync(directory);
  } finally {
    fs.closeSync(directory);
  }
}

/**
 * Replaces `path` atomically with a file of mode 0600: a crash leaves either the old or the new
 * file.
 *
 * @param guard runs after the sync of the new file, and throws to keep the old file
 */
export function writePrivateFile(path: string, content: string, guard?: () => void): void {
  writeStaged(path, content, (staging) => {
    guard?.();
    fs.renameSync(staging, path);
  });
}

/** Like `writePrivateFile`, but with mode 0444, whatever the umask. */
export function writePublicFile(path: string, content: string): void {
  writeStaged(path, content, (staging) => fs.renameSync(staging, path), 0o444);
}

/** Like `writePrivateFile`, but throws EEXIST when the file exists. */
export function createPrivateFile(path: string, content: string): void {
  // Unlike a rename, a link never replaces a file; unlike O_EXCL, it never exposes a partial file.
  writeStaged(path, content, (staging) => fs.linkSync(staging, path));
}

const FOR_OWNER = [0o600, 0o400];
const FOR_GROUP = [0o640, 0o440];

/** Also accepts files of Kubernetes Secrets: owned by root, readable by a group of this process. */
function isPrivate({ mode, uid, gid }: fs.Stats, allowsGroup: boolean): boolean {
  if (FOR_OWNER.includes(mode & 0o777)) return true;
  const groups = [process.getegid?.(), ...(process.getgroups?.() ?? [])];
  return FOR_GROUP.includes(mode & 0o777) && (allowsGroup || (uid === 0 && groups.includes(gid)));
}

/**
 * Reads mode and content through one descriptor, so that the file cannot be swapped in between.
 *
 * @param allowsGroup accepts any group, because `admin init` shares a password between two programs
 * @throws OperatorError
 */
export function readPrivateFile(file: string, what: string, allowsGroup = false): string {
  let descriptor: number;
  try {
    descriptor = fs.openSync(file, 'r');
  } catch (cause) {
    const { code = 'unknown' } = cause as NodeJS.ErrnoException;
    throw new OperatorError(`The ${what} ${file} cannot be read (${code}).`, { cause });
  }
  try {
    const stats = fs.fstatSync(descriptor);
    // Docker creates a directory in place of a missing file that a container mounts.
    if (stats.isDirectory()) throw new OperatorError(`The ${what} ${file} is a directory.`);
    if (!isPrivate(stats, allowsGroup)) {
      const mode = (stats.mode & 0o777).toString(8).padStart(4, '0');
      throw new OperatorError(
        `The ${what} ${file} has mode ${mode}: other users must not be able to read it. Run: chmod 600 ${file} ` +
          `(0440 and 0640 are accepted${allowsGroup ? ' too' : ' if root owns the file and this process is in its group'})`,
      );
    }
    return fs.readFileSync(descriptor, 'utf8');
  } catch (error) {
    throw withPath(error, file);
  } finally {
    fs.closeSync(descriptor);
  }
}

function findRoot(from: string): string {
  if (existsSync(join(from, 'package.json'))) return from;
  const parent = dirname(from);
  if (parent === from)
    throw new Error(
      'no package.json in any parent directory: the program was moved out of its package',
    );
  return findRoot(parent);
}

/** The directory of package.json, for programs run from source and from dist. */
export const packageRoot = findRoot(import.meta.dirname);

const manifest = fs.readFileSync(join(packageRoot, 'package.json'), 'utf8');

export const { version } = JSON.parse(manifest) as { version: string };
