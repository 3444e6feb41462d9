import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ChildFailedError, supervise, type Supervised } from '#runtime/process/supervise';

const lifecycle = join(import.meta.dirname, '../../dist/runtime/process/lifecycle.js');
const config = join(import.meta.dirname, '../../dist/runtime/config.js');
const supervisor = join(import.meta.dirname, '../../dist/runtime/process/supervise.js');

let home: string;
let count = 0;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-lifecycle-'));
});

afterAll(() => rm(home, { recursive: true, force: true }));

/** A program around `main` with `ctx`, `say` and `reportReady`; `last` runs before its exit. */
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
  /** Lines on stderr. */
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
      for (let i = 0; i < 1_000 && !said.includes(text); i += 1) await sleep(10);
      expect(said).toContain(text);
    },
  };
}

describe('runProgram', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)(
    'runs cleanups in reverse order on %s, and exits with 0',
    async (signal) => {
      const { child, said, ended, until } = await run(`
        ctx.onStop(() => say('database closed'));
        ctx.onStop(async () => { await sleep(50); say('server closed'); });
        ctx.signal.addEventListener('abort', () => say('stopping'));
        say('up');`);
      await until('up');
      child.kill(signal);
      expect(await ended).toBe(0);
      expect(said).toEqual(['up', 'stopping', 'server closed', 'database closed', 'code 0']);
    },
  );

  it.each(['SIGTERM', 'SIGINT'] as const)('ignores a second %s until the exit', async (signal) => {
    const { child, said, ended, until } = await run(
      `ctx.onStop(() => {
           process.kill(process.pid, '${signal}');
           return sleep(50).then(() => say('closed'));
         });
         say('up');`,
      '{}',
      `process.kill(process.pid, '${signal}'); await sleep(50);`,
    );
    await until('up');
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
    expect(said).toEqual(['up', 'closed', 'code 0']);
  });

  it('closes what an interrupted start opens later', async () => {
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

  it('continues closing after a cleanup fails, and exits with 1', async () => {
    const { child, said, ended, until } = await run(`
      ctx.onStop(() => say('database closed'));
      ctx.onStop(() => { throw new Error('stuck'); });
      say('up');`);
    await until('up');
    child.kill('SIGTERM');
    expect(await ended).toBe(1);
    expect(said).toContain('database closed');
  });

  it('stops draining at the deadline', async () => {
    const { child, ended, until } = await run(
      `ctx.onStop(() => new Promise(() => setInterval(() => undefined, 1000))); say('up');`,
      '{ drainMs: 200 }',
    );
    await until('up');
    child.kill('SIGTERM');
    expect(await ended).toBe(1);
  });

  it.each([
    ['an unhandled rejection', `Promise.reject(new Error('nobody waits for me'));`],
    ['an uncaught exception', `setImmediate(() => { throw new Error('nobody waits for me'); });`],
  ])('exits with 1 after %s, and still runs cleanups', async (_, main) => {
    const { said, complained, ended } = await run(`
      ctx.onStop(() => say('database closed'));
      ${main}`);
    expect(await ended).toBe(1);
    expect(said).toContain('database closed');
    expect(complained.join()).toContain('nobody waits for me');
  });

  it('prints an operator error without a stack', async () => {
    const { complained, ended } = await run('engineConfig();');
    expect(await ended).toBe(1);
    expect(complained[0]).toMatch(/^test: Invalid configuration/);
    expect(complained[1]).toContain('DATABASE_URL is not set');
    expect(complained).toHaveLength(2);
  });

  it('exits when main returns, if configured', async () => {
    const { said, ended } = await run(
      `ctx.onStop(() => say('closed')); say('worked');`,
      '{ untilMainReturns: true }',
    );
    expect(await ended).toBe(0);
    expect(said).toEqual(['worked', 'closed', 'code 0']);
  });
});

describe('runProgram with untilMainReturns', () => {
  it.each([
    [
      '1 when stopped before its work is complete',
      `ctx.signal.throwIfAborted(); say('worked');`,
      1,
      [],
    ],
    ['0 when its work completes anyway', `say('worked');`, 0, ['worked']],
  ])('exits with %s', async (_, afterSignal, code, worked) => {
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
  });
});

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

  async function pidAfter(child: Supervised, old: number | undefined): Promise<number> {
    for (let i = 0; i < 1_000; i += 1) {
      const pid = child.pid();
      if (pid !== undefined && pid !== old) return pid;
      await sleep(10);
    }
    throw new Error('the child did not come back');
  }

  it('reports when and where a child serves, and passes only the given environment', async () => {
    const { child, lines } = await start(
      `say(JSON.stringify(process.env)); reportReady('http://127.0.0.1:' + process.env.MY_PORT);`,
      { MY_PORT: '4711' },
    );
    expect(await child.ready).toBe('http://127.0.0.1:4711');
    const env = JSON.parse(lines[0] ?? '') as Record<string, string>;
    delete env['NODE_CHANNEL_FD'];
    delete env['NODE_CHANNEL_SERIALIZATION_MODE'];
    expect(env).toEqual({ MY_PORT: '4711' });
    await child.stop();
    expect(child.pid()).toBeUndefined();
    expect(lines).toContain('[child] code 0');
  });

  it('restarts a crashed child on its port', async () => {
    const { child, lines } = await start(
      `const port = process.env.MY_PORT === '0' ? 4712 : Number(process.env.MY_PORT);
       say('port ' + process.env.MY_PORT);
       reportReady('http://127.0.0.1:' + port);`,
      { MY_PORT: '0' },
      'MY_PORT',
    );
    await child.ready;
    const first = child.pid();
    process.kill(first ?? 0, 'SIGKILL');
    await pidAfter(child, first);
    for (let i = 0; i < 1_500 && lines.length < 2; i += 1) await sleep(10);
    expect(lines.slice(0, 2)).toEqual(['[child] port 0', '[child] port 4712']);
  });

  it('gives up a child whose first start fails', async () => {
    const { child, lines } = await start('engineConfig();');
    await expect(child.ready).rejects.toBeInstanceOf(ChildFailedError);
    await expect(child.ready).rejects.toThrow('child ended with exit code 1 before it was ready');
    expect(lines.join()).toContain('DATABASE_URL is not set');
    expect(child.pid()).toBeUndefined();
  });

  it('kills a child that does not drain in time', async () => {
    const { child } = await start(`process.on('SIGTERM', () => undefined);
      ctx.onStop(() => new Promise(() => undefined));
      setInterval(() => undefined, 1000);
      reportReady();`);
    await child.ready;
    await child.stop();
    expect(child.pid()).toBeUndefined();
  });

  it('children exit when the parent is killed', async () => {
    const grandchild = await program(`say('pid ' + process.pid); reportReady();`);
    const { child, said, until } = await run(`
      const { supervise } = await import(${JSON.stringify(supervisor)});
      const log = { warn() {}, info() {} };
      const one = supervise({ name: 'one', file: ${JSON.stringify(grandchild)}, env: {} }, { log, out: say });
      await one.ready;
      say('up');`);
    await until('up');
    const pid = Number(said.find((line) => line.includes('pid '))?.split('pid ')[1]);
    child.kill('SIGKILL');
    await untilGone(pid);
  });

  it('kills a hanging child when the parent exits first', async () => {
    const grandchild = await program(`say('pid ' + process.pid);
      process.on('SIGTERM', () => { for (;;); });
      reportReady();`);
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
    child.kill('SIGTERM');
    expect(await ended).toBe(1);
    await untilGone(pid);
  });

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
    child.process()!.kill('SIGKILL');
    // Longer than the restart delay.
    await sleep(600);
    expect(starts).toHaveLength(1);
  });
});

async function untilGone(pid: number): Promise<void> {
  let gone = false;
  for (let i = 0; i < 1_500 && !gone; i += 1) {
    await sleep(10);
    try {
      process.kill(pid, 0);
    } catch {
      gone = true;
    }
  }
  expect(gone).toBe(true);
}
