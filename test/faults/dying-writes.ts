import { appendFileSync, readFileSync } from 'node:fs';
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { relative } from 'node:path';

/**
 * Loaded into a publisher by `--import`: it kills itself with SIGKILL at the write of a tick that a file
 * names, `<number, from 0> staged` before the file is put in its place and `<number> in-place` after.
 * Which file that was is appended to another. It changes nothing in the publisher: the call of the system
 * by which a file appears is replaced before any of its modules asks for it.
 */

const orders = process.env['DYING_WRITES_FILE'] ?? '';
const directory = process.env['SNAPSHOT_DIR'] ?? '';
/** The last one of every tick. */
const LAST = 'lookup/manifest';

/** Files of this tick that were about to be put in their places, some at the same time, and that are. */
let begun = 0;
let written = 0;

const isOrdered = (number: number, at: 'staged' | 'in-place'): boolean => {
  try {
    return readFileSync(orders, 'utf8') === `${String(number)} ${at}`;
  } catch {
    return false;
  }
};

const die = (path: string): void => {
  appendFileSync(`${orders}.died`, `${path}\n`);
  // Nothing after it happens: the signal reaches who sends it before the call returns.
  process.kill(process.pid, 'SIGKILL');
};

const { rename } = fs;
fs.rename = async (from, to) => {
  const path = relative(directory, String(to));
  if (isOrdered(begun++, 'staged')) die(path);
  await rename(from, to);
  if (isOrdered(written++, 'in-place')) die(path);
  if (path !== LAST) return;
  appendFileSync(`${orders}.ticks`, `${String(written)}\n`);
  begun = written = 0;
};
syncBuiltinESMExports();
