import { appendFileSync, readFileSync, rmSync } from 'node:fs';
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { relative } from 'node:path';

/**
 * A publisher loads this module by `--import`. The module kills the process with SIGKILL at one write of a publish
 * cycle. The file KILL_AT_WRITE_FILE, which the module deletes at the kill, names the write: `<number, from 0> staged`
 * before the rename, `<number> in-place` after the rename, or `<beginning of the path> staged`. A second file gets the
 * path of the write. The module replaces only `rename`, before any module of the publisher imports it.
 */

const orders = process.env['KILL_AT_WRITE_FILE'] ?? '';
const directory = process.env['SNAPSHOT_DIR'] ?? '';
/** The last file of every publish cycle. */
const LAST = 'lookup/snapshot';

/** Numbers of renames that began and that completed in this cycle; renames may overlap. */
let begun = 0;
let written = 0;

const isOrdered = (number: number, path: string, at: 'staged' | 'in-place'): boolean => {
  try {
    const [which = '', when] = readFileSync(orders, 'utf8').split(' ');
    return when === at && (which === String(number) || path.startsWith(which));
  } catch {
    return false;
  }
};

const die = (path: string): void => {
  // Deletes the file, so that the next process is not killed at the same write.
  rmSync(orders, { force: true });
  appendFileSync(`${orders}.died`, `${path}\n`);
  // The signal arrives before the call returns.
  process.kill(process.pid, 'SIGKILL');
};

const { rename } = fs;
fs.rename = async (from, to) => {
  const path = relative(directory, String(to));
  if (isOrdered(begun++, path, 'staged')) die(path);
  await rename(from, to);
  if (isOrdered(written++, path, 'in-place')) die(path);
  if (path !== LAST) return;
  appendFileSync(`${orders}.ticks`, `${String(written)}\n`);
  begun = written = 0;
};
syncBuiltinESMExports();
