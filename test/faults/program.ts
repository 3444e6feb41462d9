import { fork, type ChildProcess } from 'node:child_process';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ProgramName } from '#programs/stack';
import { packageRoot } from '#runtime/process/files';

/** Pause before a restart, like the pause of a supervisor. */
const RESTART_AFTER_MS = 200;
/** Programs that do not drain in this time are killed, so that no process remains. */
const DRAIN_MS = 35_000;

/** A program that is restarted after each exit, as a supervisor does. */
export class Program {
  private child: ChildProcess | null = null;
  private isKeptDown = false;
  private serves: Promise<void> = Promise.resolve();
  private wasKilled = false;
  private mayKillItself = false;
  private execArgv: string[] = [];
  /** Exits that the test did not cause. */
  readonly ended: string[] = [];

  constructor(
    readonly name: ProgramName,
    public env: Record<string, string>,
    readonly logFile: string,
  ) {
    this.start();
  }

  get pid(): number {
    return this.child?.pid ?? 0;
  }

  async ready(): Promise<void> {
    await this.serves;
  }

  signal(signal: NodeJS.Signals): void {
    if (signal === 'SIGKILL') this.wasKilled = true;
    this.child?.kill(signal);
  }

  /** Kills the program, and prevents its restart. */
  keepDown(): void {
    this.isKeptDown = true;
    this.signal('SIGKILL');
  }

  allowRestart(): void {
    this.isKeptDown = false;
    if (this.child === null) this.start();
  }

  expectKill(isExpected = true): void {
    this.mayKillItself = isExpected;
  }

  /** Restarts the program with additional Node options and variables. */
  async restartWith(execArgv: string[], env: Record<string, string>): Promise<void> {
    this.execArgv = execArgv;
    this.env = { ...this.env, ...env };
    await this.restart();
  }

  /** Lets the program drain, and starts it again. */
  async restart(): Promise<void> {
    await this.stop();
    this.allowRestart();
    await this.ready();
  }

  async stop(): Promise<void> {
    this.isKeptDown = true;
    const { child } = this;
    if (child === null) return;
    const gone = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGCONT');
    child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), DRAIN_MS);
    await gone;
    clearTimeout(late);
  }

  /** Kills the program, even while it is stopped by SIGSTOP. */
  async kill(): Promise<void> {
    this.isKeptDown = true;
    const { child } = this;
    if (child === null) return;
    const gone = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await gone;
  }

  private start(): void {
    const output = openSync(this.logFile, 'a');
    const child = fork(join(packageRoot, `dist/programs/${this.name}.js`), [], {
      cwd: packageRoot,
      env: { LOG_LEVEL: 'info', ...this.env },
      execArgv: this.execArgv,
      stdio: ['ignore', output, output, 'ipc'],
    });
    this.child = child;
    this.serves = new Promise((resolve) => {
      child.on('message', (message) => {
        if ((message as { ready?: true }).ready === true) resolve();
      });
    });
    child.once('close', (code, signal) => {
      this.child = null;
      const isOwn = this.mayKillItself && signal === 'SIGKILL';
      if (!this.isKeptDown && !this.wasKilled && !isOwn) {
        this.ended.push(`${this.name} ended with ${signal ?? String(code)}`);
      }
      this.wasKilled = false;
      void sleep(RESTART_AFTER_MS).then(() => {
        if (!this.isKeptDown && this.child === null) this.start();
      });
    });
  }
}
