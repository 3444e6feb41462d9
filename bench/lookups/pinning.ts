import { execFile } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';
import { OperatorError } from '#runtime/process/operator-error';
import { toolPath } from '../tools.js';

/** Servers that are compared have this core, one at a time. */
export const SERVER_CORE = 0;
/** What asks them has another, so that it takes nothing from them. */
export const LOAD_CORE = 1;

/**
 * Keeps a process, with the threads that it has and will have, on a core.
 *
 * @throws OperatorError on a machine with one core: nothing can be compared there
 */
export async function pin(pid: number, core: number): Promise<void> {
  if (availableParallelism() < 2) {
    throw new OperatorError('A server and what asks it need a core each: this machine has one.');
  }
  const args = ['--all-tasks', '--cpu-list', '--pid', String(core), String(pid)];
  await promisify(execFile)(toolPath('taskset'), args);
}
