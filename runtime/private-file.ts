import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { dirname } from 'node:path';

function stage(path: string, content: string): string {
  const staging = `${path}.${randomBytes(6).toString('hex')}`;
  const file = fs.openSync(staging, 'wx', 0o600);
  try {
    fs.writeFileSync(file, content);
    fs.fsyncSync(file);
  } finally {
    fs.closeSync(file);
  }
  return staging;
}

function syncDirectory(directory: string): void {
  const handle = fs.openSync(directory, 'r');
  try {
    fs.fsyncSync(handle);
  } finally {
    fs.closeSync(handle);
  }
}

/** Replaces `path` by a file that only its owner may read; a crash leaves the old file or the new one. */
export function writePrivateFile(path: string, content: string): void {
  const staging = stage(path, content);
  try {
    fs.renameSync(staging, path);
  } catch (error) {
    fs.rmSync(staging, { force: true });
    throw error;
  }
  syncDirectory(dirname(path));
}

/** The same for a file that must not exist yet (EEXIST when it does). */
export function createPrivateFile(path: string, content: string): void {
  const staging = stage(path, content);
  try {
    // A link, unlike a rename, refuses to replace; and unlike O_EXCL, it never shows half a file.
    fs.linkSync(staging, path);
  } finally {
    fs.rmSync(staging, { force: true });
  }
  syncDirectory(dirname(path));
}
