import { fork, type ChildProcess } from 'node:child_process';
import { openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { builtFile } from '#bench/harness/child';
import type { ProgramName } from '#bench/harness/stack';

/** As a supervisor has it. */
const RESTART_AFTER_MS = 200;
/** A program that does not drain in this time is killed, so that none is left behind. */
const DRAIN_MS = 35_000;

/** A program that comes back whatever ended it, as under any supervisor. */
export class Program {
  private child: ChildProcess | null = null;
  private isHeld = false;
  private serves: Promise<void> = Promise.resolve();
  private blamed = false;
  private mayDie = false;
  /** How it ended without a signal from the test. */
  readonly ended: string[] = [];

  constructor(
    readonly name: ProgramName,
    private env: Record<string, string>,
    /** Pattern in its output. */
    readonly logFile: string,
    private execArgv: string[] = [],
  ) {
    this.start();
  }

  get pid(): number {
    return this.child?.pid ?? 0;
  }

  /** Resolves when the process that runs now does its work. */
  async ready(): Promise<void> {
    await this.serves;
  }

  signal(signal: NodeJS.Signals): void {
    if (signal === 'SIGKILL') this.blamed = true;
    this.child?.kill(signal);
  }

  /** Kills it, and keeps it from coming back. */
  hold(): void {
    this.isHeld = true;
    this.signal('SIGKILL');
  }

  letGo(): void {
    this.isHeld = false;
    if (this.child === null) this.start();
  }

  /** It kills itself from here on, which is not an unexpected end. */
  expectDeath(isExpected = true): void {
    this.mayDie = isExpected;
  }

  /** Drains it and starts it again, run by Node with these options and these variables as well. */
  async restartWith(execArgv: string[], env: Record<string, string>): Promise<void> {
    this.execArgv = execArgv;
    this.env = { ...this.env, ...env };
    await this.stop();
    this.letGo();
    await this.ready();
  }

  async stop(): Promise<void> {
    this.isHeld = true;
    const { child } = this;
    if (child === null) return;
    const gone = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGCONT');
    child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), DRAIN_MS);
    await gone;
    clearTimeout(late);
  }

  /** Ends it whatever it does, also while it is stopped. */
  async kill(): Promise<void> {
    this.isHeld = true;
    const { child } = this;
    if (child === null) return;
    const gone = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await gone;
  }

  private start(): void {
    const said = openSync(this.logFile, 'a');
    const child = fork(builtFile(`programs/${this.name}`), [], {
      env: { LOG_LEVEL: 'info', ...this.env },
      execArgv: this.execArgv,
      stdio: ['ignore', said, said, 'ipc'],
    });
    this.child = child;
    this.serves = new Promise((resolve) => {
      child.on('message', (message) => {
        if ((message as { ready?: true }).ready === true) resolve();
      });
    });
    child.once('close', (code, signal) => {
      this.child = null;
      const isOwn = this.mayDie && signal === 'SIGKILL';
      if (!this.isHeld && !this.blamed && !isOwn) {
        this.ended.push(`${this.name} ended with ${signal ?? String(code)}`);
      }
      this.blamed = false;
      void sleep(RESTART_AFTER_MS).then(() => {
        if (!this.isHeld && this.child === null) this.start();
      });
    });
  }
}
