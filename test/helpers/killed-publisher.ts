import { fork, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '#runtime/process/package-root';
import type { DyingTask, DyingTicks, LivedThrough } from './dying-publisher.js';

/** What became of a publisher's process: it reported, a signal ended it, or it failed by itself. */
export type Fate =
  { lived: LivedThrough } | { signal: NodeJS.Signals } | { exit: number | null; said: string };

/**
 * Publishers in processes of their own, to be killed. One is always started ahead: a process takes
 * longer to come up than to live.
 */
export class DyingPublishers {
  private spare: ChildProcess | null = null;
  private spareReady: Promise<void> = Promise.resolve();

  constructor(private readonly task: DyingTask) {}

  /** Lets one tick until it has done so, or is dead. */
  async run(ticks: DyingTicks): Promise<Fate> {
    if (this.spare === null) this.startAhead();
    const child = this.spare!;
    await this.spareReady;
    this.startAhead();
    let lived: LivedThrough | null = null;
    child.on('message', (message) => (lived = message as LivedThrough));
    let said = '';
    child.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
    const over = new Promise<Fate>((resolve) => {
      child.once('close', (exit, signal) => {
        if (lived !== null) resolve({ lived });
        else resolve(signal === null ? { exit, said } : { signal });
      });
    });
    child.send(ticks);
    return over;
  }

  close(): void {
    this.spare?.kill('SIGKILL');
    this.spare = null;
  }

  private startAhead(): void {
    const child = fork(join(packageRoot, 'dist/test/helpers/dying-publisher.js'), [], {
      env: {},
      execArgv: [],
      stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
    });
    this.spare = child;
    this.spareReady = new Promise((resolve, reject) => {
      child.once('message', () => resolve());
      child.once('close', (code) => reject(new Error(`it ended with ${String(code)}`)));
    });
    // Whoever asks for it gets the rejection.
    this.spareReady.catch(() => undefined);
    child.send(this.task);
  }
}
