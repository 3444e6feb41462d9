import { spawn } from 'node:child_process';
import { toolPath, type Tool } from '../tools.js';

/** A server that is installed on this machine, as a process of the bench's own. */
export interface InstalledServer {
  /** 0 when it could not be started. */
  pid: number;
  isGone: () => boolean;
  /** What it has said on standard error. */
  said: () => string;
  close: () => Promise<void>;
}

/**
 * Starts it in the foreground; whoever starts it finds out when it serves.
 *
 * @throws OperatorError when it is not installed
 */
export function startInstalled(tool: Tool, args: readonly string[]): InstalledServer {
  const server = spawn(toolPath(tool), args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  server.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  let isGone = false;
  const gone = new Promise<void>((resolve) => {
    server.once('error', () => resolve()).once('exit', () => resolve());
  }).then(() => void (isGone = true));
  return {
    pid: server.pid ?? 0,
    isGone: () => isGone,
    said: () => said,
    close: async () => {
      if (!isGone) server.kill('SIGTERM');
      await gone;
    },
  };
}
