import { appendFileSync, readFileSync, rmSync } from 'node:fs';
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { relative } from 'node:path';

/**
 * Loaded into a publisher by `--import`: it kills itself with SIGKILL at the write of a tick that a file
 * names, `<number, from 0> staged` before the file is put in its place and `<number> in-place` after, or
 * at a file whose path begins so, `<path> staged`; once for each order. Which file that was is appended
 * to another. It changes nothing in the publisher: the call of the system by which a file appears is
 * replaced before any of its modules imports it.
 */

const orders = process.env['DYING_WRITES_FILE'] ?? '';
const directory = process.env['SNAPSHOT_DIR'] ?? '';
/** The last one of every tick. */
const LAST = 'lookup/manifest';

/** Files of this tick that were about to be put in their places, some at the same time, and that are. */
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
  // The order is carried out: who comes after it is not meant.
  rmSync(orders, { force: true });
  appendFileSync(`${orders}.died`, `${path}\n`);
  // Nothing after it happens: the signal reaches who sends it before the call returns.
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
