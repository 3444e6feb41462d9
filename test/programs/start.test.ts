import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS as ENGINE } from '#api/engine/operations';
import { OPERATIONS as PUBLIC } from '#api/public/operations';
import { packageRoot } from '#runtime/process/files';
import { scrape, valueOf, type Scrape } from '../fixtures/exposition.js';
import { openToken, skipsSoftHsm } from '../fixtures/signing-devices.js';
import { startStack, type ProgramName, type RunningStack } from '../fixtures/stack.js';
import { testFolder } from '../fixtures/test-folder.js';

let stack: RunningStack;
let opsUrls: string[];
const home = await testFolder();
/** Settings that `npm start` passes on to its programs. */
const PASSED_ON = {
  ADMISSIONS_PAUSED: 'false',
  SHUTDOWN_DELAY: '200ms',
  SHUTDOWN_TIMEOUT: '31s',
};

/** Variables of Node and of libraries, which `npm start` passes on to the programs that use them. */
const INHERITED = {
  NODE_EXTRA_CA_CERTS: join(home, 'ca.pem'),
  OTEL_EXPORTER_OTLP_HEADERS: 'authorization=none',
  AWS_REGION: 'eu-central-1',
};

/** Settings for a verifier key in a SoftHSM token, if the machine has SoftHSM. */
const DEVICE: Record<string, string> = skipsSoftHsm
  ? {}
  : { VERIFIER_KEY_FILE: openToken(home)('01'), SOFTHSM2_CONF: join(home, 'softhsm2.conf') };

beforeAll(async () => {
  writeFileSync(INHERITED.NODE_EXTRA_CA_CERTS, '');
  stack = await startStack({ OPS_PORT: '0', ...PASSED_ON, ...INHERITED, ...DEVICE });
  opsUrls = stack.lines.flatMap((line) => line['ops_url'] ?? []) as string[];
  expect(opsUrls).toHaveLength(5);
}, 120_000);
afterAll(() => stack.destroy(), 60_000);

/** The metrics of the five programs. */
async function scrapeAll(): Promise<Scrape> {
  const found = await Promise.all(opsUrls.map(scrape));
  return {
    samples: found.flatMap(({ samples }) => samples),
    types: new Map(found.flatMap(({ types }) => [...types])),
  };
}

/** Polls rarely, because each poll costs the five programs a collection. */
async function eventually(holds: (metrics: Scrape) => boolean): Promise<Scrape> {
  let metrics!: Scrape;
  const isSo = async () => holds((metrics = await scrapeAll()));
  await expect.poll(isSo, { timeout: 25_000, interval: 500 }).toBe(true);
  return metrics;
}

const moved = (before: Scrape, after: Scrape, name: string, labels: Record<string, string>) =>
  (valueOf(after, name, labels) ?? NaN) - (valueOf(before, name, labels) ?? 0);

/** Runs a second `npm start`, which cannot start; interrupts it after it has printed a text. */
async function startAnother(env: Record<string, string>, interruptAt = 'never') {
  const child = spawn(process.execPath, [join(packageRoot, 'dist', 'programs', 'start.js')], {
    env: { ENGINE_PORT: '0', PUBLIC_PORT: '0', ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let err = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text;
    if (err.includes(interruptAt)) child.kill('SIGINT');
  });
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, err };
}

describe('npm start', () => {
  it('writes secrets and addresses to private files, and prints commands that work', async () => {
    const keys = ['aep-key.pem', 'log-key.pem', 'api-key'];
    for (const name of ['ready.json', ...keys]) {
      expect(statSync(join(stack.dataDir, name)).mode & 0o777).toBe(0o600);
    }
    const commands = () => stack.printed.filter((line) => line.startsWith('curl '));
    await expect.poll(commands).toHaveLength(2);
    const shell = (line: string): unknown =>
      JSON.parse(
        execFileSync('/bin/sh', ['-c', line], { stdio: ['ignore', 'pipe', 'ignore'] }).toString(),
      );
    const [execute = '', lookUp = ''] = commands();
    const receipt = shell(execute) as { registry_proof_id: string };
    expect(receipt).toMatchObject({ status: 'ADMITTED', vee_recorded: true });
    expect(shell(lookUp)).toMatchObject({
      identifier: receipt.registry_proof_id,
      verification: { verification_status: 'VALID', can_assert_validity: true },
    });
  });

  it.runIf(process.platform === 'linux')(
    'gives each program its settings and only its own secrets',
    () => {
      const environmentOf = (program: ProgramName): Record<string, string> => {
        const pairs = readFileSync(`/proc/${stack.pid(program)}/environ`, 'utf8').split('\0');
        const entries = pairs.map((pair) => pair.split(/=(.*)/s));
        return Object.fromEntries(entries) as Record<string, string>;
      };
      const facade = environmentOf('facade');
      const secret = /DATABASE|REDIS|KEY_FILE/;
      expect(Object.keys(facade).filter((name) => secret.test(name))).toEqual([]);
      expect(Object.values(facade).join()).not.toContain(stack.apiKey);
      expect(environmentOf('engine')).not.toHaveProperty('AEP_KEY_FILE');
      expect(environmentOf('worker')).not.toHaveProperty('LOG_KEY_FILE');
      for (const program of ['engine', 'worker'] as const) {
        expect(environmentOf(program)).toMatchObject(PASSED_ON);
      }
      const { NODE_EXTRA_CA_CERTS, OTEL_EXPORTER_OTLP_HEADERS } = INHERITED;
      const shared = { NODE_EXTRA_CA_CERTS, OTEL_EXPORTER_OTLP_HEADERS };
      expect(environmentOf('publisher')).toMatchObject(shared);
      expect(environmentOf('publisher')).not.toHaveProperty('AWS_REGION');
      expect(facade).toHaveProperty('NODE_EXTRA_CA_CERTS');
      expect(facade).not.toHaveProperty('OTEL_EXPORTER_OTLP_HEADERS');
      expect(facade).toMatchObject({ SHUTDOWN_DELAY: '200ms', SHUTDOWN_TIMEOUT: '31s' });
    },
  );

  it('fails and prints a remedy when its directory or a port is in use', async () => {
    const second = await startAnother({ DATA_DIR: stack.dataDir });
    expect(second.code).toBe(1);
    expect(second.err).toMatch(/already running on .* choose another DATA_DIR/);
    expect(existsSync(join(stack.dataDir, 'ready.json'))).toBe(true);
    const { port } = new URL(stack.engineUrl);
    const third = await startAnother({ DATA_DIR: join(home, 'other'), ENGINE_PORT: port });
    expect(third.code).toBe(1);
    expect(third.err).toContain('is in use: set ENGINE_PORT');
  });
});

describe('metrics of a running stack', () => {
  it('count every verdict, labelled by route and never by path', async () => {
    const executed = await stack.execute({ intent_id: 'ops-9', action: 'BOOK_RESERVATION' });
    const { registry_proof_id: proofId } = (await executed.json()) as { registry_proof_id: string };
    await expect.poll(async () => (await stack.lookUp(proofId)).status).toBe(200);
    const before = await scrapeAll();
    const verify = '/api/public/verify';
    const { headers } = await stack.lookUp(proofId);
    const ifNoneMatch = { 'If-None-Match': headers.get('etag') ?? '' };
    for (const [path, init] of [
      [`${verify}/proof/${proofId}`, { headers: ifNoneMatch }],
      [`${verify}/proof/${'0'.repeat(32)}`],
      [`${verify}/certificate/cert_${proofId}`],
      [`/api/public/certificate/cert_${proofId}/history`],
      [`${verify}?identifier=nothing`],
      [verify],
      ['/secret/path'],
      ['/log/checkpoint'],
    ] as [string, RequestInit?][]) {
      await (await fetch(stack.publicUrl + path, init)).arrayBuffer();
    }
    const after = await eventually(
      (now) => moved(before, now, 'svc_http_requests_total', { api: 'public' }) >= 9,
    );
    const verdicts = (status: string) => moved(before, after, 'svc_lookups_total', { status });
    const statuses = ['VALID', 'VERIFIED', 'NOT_FOUND', 'other'];
    expect(statuses.map(verdicts)).toEqual([2, 1, 1, 0]);
    expect(verdicts('BACKEND_LOOKUP_REQUIRED')).toBeGreaterThanOrEqual(1);
    for (const [route, status] of [
      [`${verify}/proof/{proof_id}`, '200'],
      [`${verify}/proof/{proof_id}`, '304'],
      [`${verify}/proof/{proof_id}`, '404'],
      [`/api/public/certificate/{certificate_id}/history`, '200'],
      [verify, '400'],
      ['none', '404'],
      ['/log/checkpoint', '200'],
    ]) {
      const labels = { api: 'public', route: route!, method: 'GET', status: status! };
      const count = moved(before, after, 'svc_http_requests_total', labels);
      expect([labels, count]).toEqual([labels, 1]);
    }
    const documented = new Set(['none', ...[...ENGINE, ...PUBLIC].map(({ spec }) => spec.path)]);
    const routes = new Set(after.samples.flatMap(({ labels }) => labels['route'] ?? []));
    expect([...routes].filter((route) => !documented.has(route))).toEqual([]);
  });

  it('count a leaf that fails verification, and contain no tenants, keys or ids', async () => {
    const sql = stack.superuser();
    await sql`alter table svc.log_entry disable trigger all`;
    await sql`update svc.log_entry set signature = decode(repeat('00', 64), 'hex')
      where leaf_index = (select max(leaf_index) from svc.log_entry where kind = 1)`;
    await sql`alter table svc.log_entry enable trigger all`;
    const metrics = await eventually((now) => valueOf(now, 'svc_failing_leaves') === 1);
    expect(valueOf(metrics, 'svc_verification_failures_total')).toBe(1);
    const scrubbed = { round: 'scrub', outcome: 'fail' };
    expect(valueOf(metrics, 'svc_verified_leaves_total', scrubbed)).toBeGreaterThanOrEqual(1);
    const readyz = async (url: string) => (await fetch(`${url}/readyz`)).text();
    const ready = await Promise.all(opsUrls.map(readyz));
    const text = JSON.stringify(metrics.samples) + ready.join();
    for (const secret of [stack.apiKey, stack.tenantId, 'postgres://', 'ops-1', 'secret/path']) {
      expect(text).not.toContain(secret);
    }
    expect(text).not.toMatch(/[0-9a-f]{32}/);
  });
});

it('npm start > drains on SIGTERM, and stops on SIGINT during the next startup', async () => {
  const { dataDir, lines } = stack;
  expect(await stack.stop()).toBe(0);
  expect(existsSync(join(dataDir, 'ready.json'))).toBe(false);
  const stopped = lines.filter(({ msg }) => msg === 'stopped');
  const programs = ['engine', 'facade', 'publisher', 'start', 'verifier', 'worker'];
  expect(stopped.map(({ program }) => program).sort()).toEqual(programs);
  expect(stopped.map(({ reason }) => reason)).toEqual(programs.map(() => 'SIGTERM'));
  expect((await startAnother({ DATA_DIR: dataDir }, 'database started')).code).toBe(0);
  expect(existsSync(join(dataDir, 'ready.json'))).toBe(false);
}, 60_000);
