import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { removeEmbeddedPostgres } from '#runtime/embedded/start';
import { packageRoot } from '#runtime/process/package-root';

const run = promisify(execFile);

interface Started {
  child: ChildProcess;
  output: { out: string; err: string };
  ended: Promise<number | null>;
}

const running: Started[] = [];

/** Starts the built program of `npm start` in its own environment. */
function start(dataDir: string, env: Record<string, string> = {}): Started {
  const program = join(packageRoot, 'dist', 'programs', 'start.js');
  const child = spawn(process.execPath, [program], {
    env: { DATA_DIR: dataDir, ENGINE_PORT: '0', PUBLIC_PORT: '0', ...env },
  });
  const output = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output.out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output.err += text));
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  const started = { child, output, ended };
  running.push(started);
  return started;
}

interface Ready {
  engine_url: string;
  public_url: string;
  tenant_id: string;
  api_key: string;
}

async function ready(dataDir: string, { child, output }: Started): Promise<Ready> {
  const file = join(dataDir, 'ready.json');
  for (let i = 0; i < 600; i += 1) {
    if (output.out.includes('Ready.')) return JSON.parse(await readFile(file, 'utf8')) as Ready;
    if (child.exitCode !== null) break;
    await sleep(50);
  }
  throw new Error(`it did not become ready:\n${output.err}`);
}

async function stop({ child, ended }: Started): Promise<number | null> {
  if (child.exitCode === null) child.kill('SIGTERM');
  return ended;
}

const shell = async (line: string): Promise<unknown> =>
  JSON.parse((await run('/bin/sh', ['-c', line])).stdout);

let home: string;
let dataDir: string;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-start-'));
  await chmod(home, 0o755);
  dataDir = join(home, "somebody's data");
});

afterEach(async () => {
  for (const one of running.splice(0)) await stop(one);
});

afterAll(async () => {
  await removeEmbeddedPostgres(dataDir);
  await rm(home, { recursive: true, force: true });
});

describe('npm start', () => {
  it('serves on the addresses in ready.json, drains on SIGTERM, and restarts with its data', async () => {
    const first = start(dataDir, { SHUTDOWN_DELAY: '200ms', SHUTDOWN_TIMEOUT: '31s' });
    const { engine_url, public_url, tenant_id, api_key } = await ready(dataDir, first);
    expect((await stat(join(dataDir, 'ready.json'))).mode & 0o777).toBe(0o600);
    for (const key of ['aep-key.pem', 'log-key.pem', 'snapshot-key.pem', 'api-key']) {
      expect((await stat(join(dataDir, key))).mode & 0o777).toBe(0o600);
    }
    expect(tenant_id).toBe('demo');
    expect(api_key).toMatch(/^svc_sk_/);

    const lines = first.output.out.split('\n').filter((line) => line.startsWith('curl '));
    expect(lines).toHaveLength(2);
    const [execute = '', lookUp = ''] = lines;
    expect(execute).toContain(engine_url);
    const receipt = (await shell(execute)) as { registry_proof_id: string };
    expect(receipt).toMatchObject({ status: 'ADMITTED', vee_recorded: true });
    expect(await shell(lookUp)).toMatchObject({
      identifier: receipt.registry_proof_id,
      verification: { verification_status: 'VALID', can_assert_validity: true },
    });

    // A compromised public API server has no secret in its environment.
    if (process.platform === 'linux') {
      const environment = await environmentOf(first, 'facade.js');
      expect(
        Object.keys(environment).filter((name) => /DATABASE|REDIS|KEY_FILE/.test(name)),
      ).toEqual([]);
      expect(Object.values(environment).join()).not.toContain(api_key);
      expect(Object.keys(await environmentOf(first, 'engine.js'))).not.toContain('AEP_KEY_FILE');
      // The configured drain times are passed on.
      for (const program of ['engine.js', 'worker.js', 'facade.js']) {
        const given = await environmentOf(first, program);
        expect(given).toMatchObject({ SHUTDOWN_DELAY: '200ms', SHUTDOWN_TIMEOUT: '31000ms' });
      }
      expect(Object.keys(await environmentOf(first, 'worker.js'))).not.toContain('LOG_KEY_FILE');
    }

    // A second instance on the same DATA_DIR fails with a message and does not affect the first.
    const second = start(dataDir);
    expect(await second.ended).toBe(1);
    expect(second.output.err).toMatch(/already running on .* choose another DATA_DIR/);
    expect(existsSync(join(dataDir, 'ready.json'))).toBe(true);

    // So does an instance on the same port.
    const third = start(join(home, 'other'), { ENGINE_PORT: new URL(engine_url).port });
    expect(await third.ended).toBe(1);
    expect(third.output.err).toContain('is in use: set ENGINE_PORT');

    // And an instance without write access.
    const fourth = start(join(dataDir, 'ready.json', 'data'));
    expect(await fourth.ended).toBe(1);
    expect(fourth.output.err).toContain('cannot be written (ENOTDIR): set DATA_DIR');

    expect(
      (await fetch(`${public_url}/api/public/verify/proof/${receipt.registry_proof_id}`)).status,
    ).toBe(200);
    expect(await stop(first)).toBe(0);
    expect(existsSync(join(dataDir, 'ready.json'))).toBe(false);

    const logged = first.output.err
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const postgres = logged.find(({ msg }) => msg === 'embedded Postgres is ready');
    expect(postgres).toMatchObject({ postgres_pid: expect.any(Number) as number });
    expect(postgres).not.toHaveProperty('pid');
    const stopped = logged.filter(({ msg }) => msg === 'stopped');
    expect(stopped.map(({ program }) => program).sort()).toEqual([
      'engine',
      'facade',
      'publisher',
      'start',
      'verifier',
      'worker',
    ]);
    for (const line of stopped) {
      expect(line).toMatchObject({
        level: 'info',
        reason: 'SIGTERM',
        ms: expect.any(Number) as number,
      });
    }

    const again = start(dataDir);
    const now = await ready(dataDir, again);
    expect(now.api_key).toBe(api_key);
    const found = await fetch(
      `${now.public_url}/api/public/verify/proof/${receipt.registry_proof_id}`,
    );
    expect(await found.json()).toMatchObject({ verification: { verification_status: 'VALID' } });
    expect(await stop(again)).toBe(0);
  }, 120_000);

  it('stops on an interrupt during startup', async () => {
    const early = start(join(home, 'early'));
    for (let i = 0; i < 500 && !early.output.err.includes('database started'); i += 1) {
      await sleep(10);
    }
    early.child.kill('SIGINT');
    expect(await early.ended).toBe(0);
    expect(existsSync(join(home, 'early', 'ready.json'))).toBe(false);
    await removeEmbeddedPostgres(join(home, 'early'));
  });

  it('rejects an external database without a log name', async () => {
    const refused = start(join(home, 'none'), { DATABASE_URL: 'postgres://u:p@127.0.0.1:1/x' });
    expect(await refused.ended).toBe(1);
    expect(refused.output.err).toContain('LOG_ORIGIN is not set');
    expect(existsSync(join(home, 'none'))).toBe(false);
  });
});

/** The environment of a child program, as the kernel reports it. */
async function environmentOf({ child }: Started, program: string): Promise<Record<string, string>> {
  const children = await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8');
  for (const pid of children.trim().split(' ')) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8');
    if (!command.includes(program)) continue;
    const pairs = (await readFile(`/proc/${pid}/environ`, 'utf8')).split('\0');
    return Object.fromEntries(
      pairs.map((pair) => [pair.split('=')[0] ?? '', pair.slice(pair.indexOf('=') + 1)]),
    );
  }
  throw new Error(`${program} does not run`);
}
