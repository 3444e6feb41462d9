import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Lines of Postgres' `postmaster.pid` that we use: the process id (1st) and its state (8th). */
export interface PostmasterPid {
  pid: number;
  status: string;
}

const file = (cluster: string): string => join(cluster, 'postmaster.pid');

export async function readPostmasterPid(cluster: string): Promise<PostmasterPid | null> {
  let lines: string[];
  try {
    lines = (await readFile(file(cluster), 'utf8')).split('\n');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  return { pid: Number(lines[0]), status: (lines[7] ?? '').trim() };
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Empty for a process that has ended but not been collected; null when we may not look. */
async function commandLine(pid: number): Promise<string | null> {
  try {
    if (process.platform === 'linux') return await readFile(`/proc/${String(pid)}/cmdline`, 'utf8');
    return (await run('ps', ['-o', 'command=', '-p', String(pid)])).stdout;
  } catch {
    return null;
  }
}

/** The server that runs on this cluster, if one does. */
export async function runningOn(cluster: string): Promise<PostmasterPid | null> {
  const found = await readPostmasterPid(cluster);
  if (found === null || !Number.isSafeInteger(found.pid) || found.pid <= 0) return null;
  if (!alive(found.pid)) return null;
  const command = await commandLine(found.pid);
  // What cannot be seen is taken for the server: refusing is safer than disturbing one that lives.
  if (command === null && alive(found.pid)) return found;
  return command?.includes(cluster) ? found : null;
}

/**
 * After a crash the recorded process id may have been given to somebody else's process, at which Postgres
 * would refuse to start. The file itself must stay, for it also names the shared memory in which
 * processes of the dead server may still live; so only the id is replaced, by that of the
 * server's own parent, which Postgres never takes for a rival.
 */
export async function disownStalePid(cluster: string): Promise<void> {
  const found = await readPostmasterPid(cluster);
  if (found === null || !alive(found.pid)) return;
  const lines = (await readFile(file(cluster), 'utf8')).split('\n');
  lines[0] = String(process.pid);
  await writeFile(file(cluster), lines.join('\n'));
}
