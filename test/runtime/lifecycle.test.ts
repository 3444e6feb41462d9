import { type ChildProcess, spawn } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { supervise, type Supervised } from '#runtime/process/supervise';
import { isAlive } from '../fixtures/program.js';
import { testFolder } from '../fixtures/test-folder.js';

const lifecycle = join(import.meta.dirname, '../../dist/runtime/process/lifecycle.js');
const config = join(import.meta.dirname, '../../dist/runtime/config.js');
const log = join(import.meta.dirname, '../../dist/runtime/process/log.js');
const supervisor = join(import.meta.dirname, '../../dist/runtime/process/supervise.js');

const home = await testFolder();
let count = 0;

/**
 * Writes a program that runs the code `main`, which may use `ctx`, `say` and `reportReady`, and the
 * code `last` before its exit.
 */
async function program(main: string, options = '{}', last = ''): Promise<string> {
  const file = join(home, `program-${++count}.mjs`);
  await writeFile(
    file,
    `import { runProgram, reportReady } from ${JSON.stringify(lifecycle)};
     import { engineConfig } from ${JSON.stringify(config)};
     import { setTimeout as sleep } from 'node:timers/promises';
     const say = (text) => process.stdout.write(text + '\\n');
     const code = await runProgram('test', async (ctx) => { ${main} }, ${options});
     ${last}
     say('code ' + code);
     process.exit(code);`,
  );
  return file;
}

interface Run {
  child: ChildProcess;
  said: string[];
  /** The lines on standard error. */
  complained: string[];
  ended: Promise<number | null>;
  until: (text: string) => Promise<void>;
}

async function run(main: string, options?: string, last?: string): Promise<Run> {
  const child = spawn(process.execPath, [await program(main, options, last)], { env: {} });
  const said: string[] = [];
  const complained: string[] = [];
  const gather = (stream: NodeJS.ReadableStream | null, into: string[]): void => {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      into.push(...text.split('\n').filter((line) => line !== ''));
    });
  };
  gather(child.stdout, said);
  gather(child.stderr, complained);
  return {
    child,
    said,
    complained,
    ended: new Promise((resolve) => child.once('close', resolve)),
    until: async (text) => {
      await expect.poll(() => said).toContain(text);
    },
  };
}

describe('runProgram', () => {
  it.each([
    ['SIGTERM', 'SIGINT'],
    ['SIGINT', 'SIGTERM'],
  ] as const)(
    'runs cleanups in reverse order on %s, and ignores a later %s',
    async (first, second) => {
      const { child, said, ended, until } = await run(
        `ctx.onStop(() => say('database closed'));
       ctx.onStop(async () => {
         process.kill(process.pid, '${second}');
         await sleep(50);
         say('server closed');
       });
       ctx.signal.addEventListener('abort', () => say('stopping'));
       say('up');`,
        '{}',
        `process.kill(process.pid, '${second}'); await sleep(50);`,
      );
      await until('up');
      child.kill(first);
      expect(await ended).toBe(0);
      expect(said).toEqual(['up', 'stopping', 'server closed', 'database closed', 'code 0']);
    },
  );

  it('closes resources that open after the start was interrupted', async () => {
    const { child, said, ended, until } = await run(`
      const stopping = new Promise((resolve) => ctx.signal.addEventListener('abort', resolve));
      const alive = setInterval(() => undefined, 1000);
      say('starting');
      await stopping;
      clearInterval(alive);
      ctx.onStop(() => say('late one closed'));
      ctx.signal.throwIfAborted();
      say('up');`);
    await until('starting');
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
    expect(said).toEqual(['starting', 'late one closed', 'code 0']);
  });

  it.each([
    ['a cleanup fails', `() => { throw new Error('stuck'); }`],
    ['draining takes too long', `() => new Promise(() => setInterval(() => undefined, 1000))`],
  ])('exits with 1 when %s', async (_, cleanup) => {
    const { child, said, ended, until } = await run(
      `ctx.onStop(() => say('database closed')); ctx.onStop(${cleanup}); say('up');`,
      '{ drainMs: 200 }',
    );
    await until('up');
    child.kill('SIGTERM');
    expect(await ended).toBe(1);
    expect(said.includes('database closed')).toBe(cleanup.includes('stuck'));
  });

  it.each([
    ['an unhandled rejection', `Promise.reject(new Error('not handled'));`],
    ['an uncaught exception', `setImmediate(() => { throw new Error('not handled'); });`],
  ])('exits with 1 after %s, and still runs cleanups', async (_, main) => {
    const { said, complained, ended } = await run(`
      ctx.onStop(() => say('database closed'));
      ${main}`);
    expect(await ended).toBe(1);
    expect(said).toContain('database closed');
    expect(complained.join()).toContain('not handled');
  });

  it('loses log lines on a full disk, counts them in the next line of its own, and still exits', async () => {
    const logFile = join(home, 'full.log');
    const fill = `for (let n = 0; n < 100; n += 1) ctx.log.info('x'.repeat(100));`;
    const file = await program(
      `const { truncateSync } = await import('node:fs');
       const { logRarely, writeLine } = await import(${JSON.stringify(log)});
       performance.now = () => 0;
       for (let n = 0; n < 3; n += 1) logRarely(ctx.log, 'warn', {}, 'often');
       ${fill}
       performance.now = () => 20_000;
       logRarely(ctx.log, 'warn', {}, 'often');
       performance.now = () => 40_000;
       truncateSync(${JSON.stringify(logFile)});
       writeLine('forwarded\\n');
       logRarely(ctx.log, 'warn', {}, 'often');
       ctx.log.info('room');
       ${fill} throw new Error('stuck');`,
    );
    // A limit of the file size stands for a full disk, which only root can make.
    const limited = `ulimit -f 8; exec "$0" "$1" 2>>"$2"`;
    const child = spawn('sh', ['-c', limited, process.execPath, file, logFile], { env: {} });
    onTestFinished(() => void child.kill('SIGKILL'));
    expect(await new Promise((resolve) => child.once('exit', resolve))).toBe(1);
    const [forwarded, often = '', room = ''] = (await readFile(logFile, 'utf8')).trim().split('\n');
    expect(forwarded).toBe('forwarded');
    const { msg, unlogged } = JSON.parse(often) as { msg: string; unlogged: number };
    // Of 4,096 bytes, the lines of `fill` take more than 100 each.
    expect(msg).toBe('often');
    expect(unlogged).toBeGreaterThan(2 + 60);
    expect(JSON.parse(room)).not.toHaveProperty('unlogged');
  });

  it('logs an operator error without a stack trace', async () => {
    const { complained, ended } = await run('engineConfig();');
    expect(await ended).toBe(1);
    expect(complained).toHaveLength(1);
    const line = JSON.parse(complained[0]!) as Record<string, unknown>;
    expect(Object.keys(line)).toEqual(['level', 'time', 'program', 'version', 'instance', 'msg']);
    expect(line['msg']).toMatch(/^Invalid configuration[^]*DATABASE_URL is not set/);
  });
});

it('runProgram > logs what Node and libraries print to standard error as JSON lines', async () => {
  const { complained, ended } = await run(
    `process.emitWarning('too old');
     console.warn('%s is full', 'it');
     console.error(Object.assign(new Error('refused'), { command: { args: ['hush'] } }));
     await sleep(1);`,
    '{ untilMainReturns: true }',
  );
  expect(await ended).toBe(0);
  expect(complained.join()).not.toContain('hush');
  const lines = complained.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(lines).toMatchObject([
    { level: 'warn', program: 'test', msg: 'it is full' },
    { level: 'error', msg: 'refused', err: { stack: expect.any(String) as string } },
    { level: 'warn', msg: 'too old' },
  ]);
});

it.each([
  [
    '1 when stopped before its work is complete',
    `ctx.signal.throwIfAborted(); say('worked');`,
    1,
    [],
  ],
  ['0 when its work completes anyway', `say('worked');`, 0, ['worked']],
])(
  'runProgram with the option untilMainReturns > exits with %s',
  async (_, afterSignal, code, worked) => {
    const { child, said, complained, ended, until } = await run(
      `const stopping = new Promise((resolve) => ctx.signal.addEventListener('abort', resolve));
     say('up');
     await stopping;
     ${afterSignal}`,
      '{ untilMainReturns: true }',
    );
    await until('up');
    child.kill('SIGTERM');
    expect(await ended).toBe(code);
    expect(said).toEqual(['up', ...worked, `code ${String(code)}`]);
    expect(complained.some((line) => line.includes('before its work was complete'))).toBe(
      code === 1,
    );
  },
);

describe('supervise', () => {
  const children: Supervised[] = [];
  const silent = { warn: () => undefined, info: () => undefined };

  afterEach(async () => {
    await Promise.all(children.splice(0).map((child) => child.stop()));
  });

  async function start(
    main: string,
    env: Record<string, string> = {},
    portVariable?: string,
  ): Promise<{ child: Supervised; lines: string[] }> {
    const lines: string[] = [];
    const child = supervise(
      {
        name: 'child',
        file: await program(main),
        env,
        ...(portVariable === undefined ? {} : { portVariable }),
      },
      { log: silent, out: (line) => lines.push(line), graceMs: 2_000 },
    );
    children.push(child);
    return { child, lines };
  }

  it('gives up when the first start of a child fails', async () => {
    const { child, lines } = await start('engineConfig();');
    await expect(child.ready).rejects.toThrow('child ended with exit code 1 before it was ready');
    expect(lines.join()).toContain('DATABASE_URL is not set');
    expect(child.pid()).toBeUndefined();
  });

  it('kills a child that does not drain within the timeout', async () => {
    const { child } = await start(`process.on('SIGTERM', () => undefined);
      ctx.onStop(() => new Promise(() => undefined));
      setInterval(() => undefined, 1000);
      reportReady();`);
    await child.ready;
    await child.stop();
    expect(child.pid()).toBeUndefined();
  });

  it.each([
    ['exit when the parent is killed', '', 'SIGKILL', null],
    ['are killed when they hang and the parent exits', 'for (;;);', 'SIGTERM', 1],
  ] as const)('leaves no child running: children %s', async (_, onTerm, signal, code) => {
    const onSignal = onTerm && `process.on('SIGTERM', () => { ${onTerm} });`;
    const grandchild = await program(`say('pid ' + process.pid); ${onSignal} reportReady();`);
    const { child, said, ended, until } = await run(
      `const { supervise } = await import(${JSON.stringify(supervisor)});
       const log = { warn() {}, info() {} };
       const one = supervise({ name: 'one', file: ${JSON.stringify(grandchild)}, env: {} }, { log, out: say });
       ctx.onStop(() => one.stop());
       await one.ready;
       say('up');`,
      '{ drainMs: 300 }',
    );
    await until('up');
    const pid = Number(said.find((line) => line.includes('pid '))?.split('pid ')[1]);
    child.kill(signal);
    if (code !== null) expect(await ended).toBe(code);
    await expect.poll(() => isAlive(pid)).toBe(false);
  });

  it.runIf(process.platform === 'linux')(
    'leaves no child running that is still loading when the parent is killed',
    async () => {
      const loading = join(home, 'loading.mjs');
      const loaded = JSON.stringify(await program(''));
      await writeFile(loading, `setTimeout(() => import(${loaded}), 500);`);
      const { child, said, until } = await run(
        `const { supervise } = await import(${JSON.stringify(supervisor)});
         const log = { warn() {}, info() {} };
         const one = supervise({ name: 'one', file: ${JSON.stringify(loading)}, env: {} }, { log });
         say(String(one.pid()));
         say('up');`,
      );
      await until('up');
      const pid = Number(said[0]);
      onTestFinished(() => void (isAlive(pid) && process.kill(pid, 'SIGKILL')));
      child.kill('SIGKILL');
      await expect.poll(() => isAlive(pid), { timeout: 10_000 }).toBe(false);
    },
    20_000,
  );

  it('restarts no child after the stop signal, even if a child received it first', async () => {
    const stopping = new AbortController();
    const starts: unknown[] = [];
    const child = supervise(
      { name: 'child', file: await program(`reportReady();`), env: {} },
      {
        log: { warn: () => undefined, info: (fields: unknown) => void starts.push(fields) },
        out: () => undefined,
        signal: stopping.signal,
      },
    );
    children.push(child);
    await child.ready;
    stopping.abort();
    process.kill(child.pid()!, 'SIGKILL');
    // Waits longer than the delay after which a child would be restarted.
    await sleep(600);
    expect(starts).toHaveLength(1);
  });
});
