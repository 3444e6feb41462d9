import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { idsOf } from '#protocol/ids';
import { canonicalJson, executeIntentHttp, exportProofHttp } from '#sdk/index';
import { breakNetwork, type BrokenNetwork } from '../fixtures/broken-network.js';
import { openPublicServers, type PublicServers } from '../fixtures/public-servers.js';
import { intent, openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';
import { svc, svcOnTerminal } from '../fixtures/svc.js';

const UNKNOWN = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

let world: SdkWorld;
let facades: PublicServers;
let network: BrokenNetwork;
let folder: string;
let env: Record<string, string>;
/** Proof ids of an admission and of a denial, both verified and under a checkpoint. */
let admitted: string;
let denied: string;

beforeAll(async () => {
  world = await openSdkWorld();
  facades = await openPublicServers();
  network = await breakNetwork(facades.good.server.url);
  folder = await mkdtemp(join(tmpdir(), 'svc-cli-'));
  const { apiKey, engineUrl, tenantId } = world.options;
  await writeFile(join(folder, 'key'), `${apiKey}\n`, { mode: 0o600 });
  env = {
    SVC_ENGINE_URL: engineUrl,
    SVC_PUBLIC_URL: network.url,
    SVC_API_KEY_FILE: join(folder, 'key'),
    SVC_TENANT_ID: tenantId,
  };
  admitted = (await executeIntentHttp(world.options, intent())).registry_proof_id;
  const { registry } = world;
  [denied = ''] = await registry.admitAll([registry.item({ action: 'DELETE_AUDIT_LOG' })]);
  await registry.verifyAll();
  await world.log.publish();
});
afterEach(() => {
  network.faults.length = 0;
  network.seen.length = 0;
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
  await network.close();
  await facades.close();
  await world.close();
});

const run = (args: string[], options: Parameters<typeof svc>[1] = {}) =>
  svc(args, { cwd: folder, ...options, env: { ...env, ...options.env } });

/** Two at a time: each is a process of its own. */
async function all<T>(cases: readonly T[], check: (one: T) => Promise<void>): Promise<void> {
  const waiting = cases.values();
  const lane = async (): Promise<void> => {
    for (const one of waiting) await check(one);
  };
  await Promise.all([lane(), lane()]);
}

async function file(name: string, items: object[]): Promise<string> {
  await writeFile(join(folder, name), items.map((item) => JSON.stringify(item)).join('\n'));
  return name;
}

describe('svc', () => {
  it('says how it is used, and takes nothing for a command that is none', async () => {
    const help = await run(['--help']);
    expect(help).toMatchObject({ code: 0, stderr: '' });
    const names = ['lookup', 'verify', 'admit', 'follow', 'export', 'inclusion', 'replay', 'keys'];
    await all(names, async (name) => {
      expect(help.stdout).toContain(`\n  ${name}`);
      const own = await run([name, '--help']);
      expect(own.code).toBe(0);
      expect(own.stdout).toMatch(
        new RegExp(`^Usage: svc ${name} [\\s\\S]*Examples:\\n  .*svc ${name}`),
      );
      expect((await run(['help', name])).stdout).toBe(own.stdout);
    });
    const version = await run(['--version']);
    expect(version.stdout).toMatch(/^[0-9]+\.[0-9]+\.[0-9]+\n$/);
    for (const args of [
      [],
      ['frobnicate'],
      ['lookup'],
      ['lookup', 'a', 'b'],
      ['lookup', '--what'],
    ]) {
      expect(await run(args)).toMatchObject({ code: 2, stdout: '' });
    }
  });

  it('tells which setting is missing, and asks for no more than it needs', async () => {
    const bare = await svc(['lookup', admitted]);
    expect(bare).toMatchObject({ code: 2, stdout: '' });
    expect(bare.stderr).toContain('SVC_PUBLIC_URL');
    expect(
      (await svc(['export', admitted], { env: { SVC_ENGINE_URL: 'http://a' } })).stderr,
    ).toContain('SVC_API_KEY_FILE');
    const noUrl = await svc(['keys'], { env: { SVC_PUBLIC_URL: 'localhost:8081' } });
    expect(noUrl).toMatchObject({ code: 2, stdout: '' });
    expect(noUrl.stderr).toMatch(/SVC_PUBLIC_URL.* http:/);
    const noFile = await run(['export', admitted], { env: { SVC_API_KEY_FILE: '/nowhere' } });
    expect(noFile).toMatchObject({ code: 2 });
    const both = await run(['export', admitted], { env: { SVC_API_KEY: 'a' } });
    expect(both.stderr).toContain('not both');
    const options = ['--public-url', network.url];
    expect((await svc(['lookup', facades.proof, ...options])).code).toBe(0);
    expect((await run(['lookup', facades.proof, '--timeout', 'soon'])).code).toBe(2);
  });

  it('never prints the key', async () => {
    const SVC_API_KEY = 'svc_sk_secretsecret';
    for (const args of [
      ['export', admitted],
      ['export', admitted, '--json'],
    ]) {
      const { code, stdout, stderr } = await run(args, {
        env: { SVC_API_KEY, SVC_API_KEY_FILE: '' },
      });
      expect(code).toBe(3);
      expect(stdout + stderr).not.toContain('secret');
    }
  });

  it('exits 3 when nobody answers, and says so as JSON when asked to', async () => {
    const nobody = { SVC_PUBLIC_URL: 'http://127.0.0.1:1', SVC_ENGINE_URL: 'http://127.0.0.1:1' };
    for (const args of [
      ['lookup', admitted],
      ['verify', admitted],
      ['export', admitted],
    ]) {
      const away = await run([...args, '--json', '--timeout', '1'], { env: nobody });
      expect(away).toMatchObject({ code: 3, stdout: '' });
      expect(JSON.parse(away.stderr)).toMatchObject({ error: { code: 'network' }, exit_code: 3 });
    }
  });

  it('is ended by an interrupt, and says that it was', async () => {
    network.faults.push({ kind: 'silent' });
    let interrupt = (): void => undefined;
    const ended = run(['lookup', facades.proof], {
      started: (program) => (interrupt = program.interrupt),
    });
    await expect.poll(() => network.seen.length).toBe(1);
    interrupt();
    expect(await ended).toMatchObject({ code: 130, stdout: '' });
  });
});

describe('svc lookup and follow', () => {
  it('exit by the verdict', async () => {
    const { trust_id } = idsOf(facades.proof);
    const cases: [string[], number, string][] = [
      [[facades.proof], 0, 'VALID'],
      [[trust_id], 0, 'TRUST_ESTABLISHED'],
      [[facades.shareToken], 0, 'VALID'],
      [[idsOf(facades.proof).execution_id], 0, 'VALID'],
      [[facades.denied], 4, 'VALID  (of a denial)'],
      [[facades.revoked], 1, 'REVOKED'],
      [[facades.packageId], 1, 'REVOKED'],
      [[UNKNOWN], 1, 'NOT_FOUND'],
      [['cert_unknown', '--kind', 'certificate'], 3, 'BACKEND_LOOKUP_REQUIRED'],
    ];
    await all(cases, async ([args, code, status]) => {
      const { code: exit, stdout, stderr } = await run(['lookup', ...args]);
      expect([args, exit, stdout.split('\n')[0], stderr]).toEqual([args, code, status, '']);
    });
    const followed = await run(['follow', facades.revoked]);
    expect(followed.code).toBe(1);
    const timed = await run(['follow', UNKNOWN, '--timeout', '0.5']);
    expect(timed).toMatchObject({ code: 3, stdout: '' });
    expect((await run(['follow', 'something'])).code).toBe(2);
    expect((await run(['lookup', facades.proof, '--kind', 'what'])).code).toBe(2);
  });

  it('give the record as it was relayed, as JSON', async () => {
    const { code, lines } = await run(['lookup', facades.denied, '--json']);
    expect(code).toBe(4);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({
      verification_status: 'VALID',
      record: { artifact: { effect: 'DENY' }, identifier: facades.denied },
      snapshot: { tree_size: facades.snapshot.registry.all.length },
    });
  });

  it('let no text rewrite the screen', async () => {
    const evil = 'a\u001b[2J\u001b[1;1HVALID\u202e\u0007';
    const { stdout, code } = await run(['lookup', evil]);
    expect(code).toBe(3);
    expect(stdout).not.toMatch(/[^\P{C}\n]/u);
  });

  it('are no success when nobody reads them', async () => {
    expect((await run(['lookup', facades.proof, '--json'], { unread: true })).code).toBe(3);
  });
});

/** What gives a program a terminal is called otherwise elsewhere. */
const onLinux = it.runIf(process.platform === 'linux');

describe('colours', () => {
  const esc = '\u001b[';

  onLinux('are on a terminal only, and not where NO_COLOR is set', async () => {
    const args = ['lookup', facades.revoked];
    expect((await run(args)).stdout).not.toContain(esc);
    const onTerminal = { ...env, TERM: 'xterm-256color' };
    const coloured = await svcOnTerminal(args, { env: onTerminal });
    expect(coloured).toMatchObject({ code: 1 });
    expect(coloured.stdout).toContain(`${esc}31mREVOKED`);
    const plain = await svcOnTerminal(args, { env: { ...onTerminal, NO_COLOR: '1' } });
    expect(plain.stdout).toContain('REVOKED');
    expect(plain.stdout).not.toContain(esc);
  });
});

describe('svc admit', () => {
  const line = (action?: string): object => intent(action === undefined ? {} : { action });

  it('admits a file, and the same file again with the first receipts', async () => {
    const name = await file('three.ndjson', [line(), line(), line()]);
    const first = await run(['admit', name, '--json', '--batch-items', '2']);
    expect(first).toMatchObject({ code: 0, stderr: '' });
    expect(first.lines).toMatchObject([
      { index: 0, state: 'admitted', replayed: false },
      { index: 1, state: 'admitted', replayed: false },
      { index: 2, state: 'admitted', replayed: false },
    ]);
    const again = await run(['admit', name]);
    expect(again).toMatchObject({
      code: 0,
      stdout: '3 admitted, 3 of them known from before\n',
      stderr: '',
    });
  });

  it('exits 4 for a denial, 1 for what is at fault, and names both', async () => {
    const tenant = { ...line(), tenant_id: 'other' };
    const denial = await run(['admit', await file('denied', [line(), line('DELETE_AUDIT_LOG')])]);
    expect(denial.code).toBe(4);
    expect(denial.stdout).toMatch(
      /^item 2 denied {2}[0-9a-f]{32} {2}\S.*\n1 admitted, 1 denied\n$/,
    );
    const fault = await run([
      'admit',
      await file('fault', [tenant, line('DELETE_AUDIT_LOG'), line()]),
    ]);
    expect(fault.code).toBe(1);
    expect(fault.stdout).toMatch(/item 1 invalid .*tenant_body_mismatch/);
    expect(fault.stdout).toContain('1 admitted, 1 denied, 1 invalid');
  });

  it('checks every line before it sends the first', async () => {
    const envelope = { kind: 'admission', agent: { id: 'a' }, action: 'SEND_REPORT' };
    const requested_at = '2026-11-20T17:29:00.123Z';
    const cases: [string, RegExp][] = [
      ['{"intent_id":"a","action":"A"}\nnot json\n', /:2: /],
      ['{"intent_id":"a","action":"A"}\n\n{"intent_id":"a","action":"lower"}\n', /:3: \/action/],
      ['{"intent_id":"a","intent_id":"b","action":"A"}', /:1: /],
      ['[1]', /:1: is not a JSON object/],
      [JSON.stringify({ ...envelope, requested_at }), /:1: \/nonce: is required/],
      ['\n \n', /^svc: standard input has no items/],
    ];
    const before = world.engine.worker.batches.length;
    await all(cases, async ([text, said]) => {
      const { code, stderr, stdout } = await run(['admit', '-'], { stdin: text });
      expect([text, code, stdout]).toEqual([text, 2, '']);
      expect(stderr).toMatch(said);
    });
    expect(world.engine.worker.batches.length).toBe(before);
    const whole = { ...envelope, requested_at, nonce: 'n'.repeat(16) };
    const sent = await run(['admit', '-'], { stdin: JSON.stringify(whole) });
    expect(sent).toMatchObject({ code: 0, stdout: '1 admitted\n' });
    expect((await run(['admit', 'nowhere.ndjson'])).code).toBe(2);
  });

  onLinux('shows how far it is on a terminal, and nowhere else', async () => {
    const name = await file('bar.ndjson', [line(), line('DELETE_AUDIT_LOG'), line()]);
    const path = join(folder, name);
    const shown = await svcOnTerminal(['admit', path], { env: { ...env, TERM: 'xterm' } });
    expect(shown.code).toBe(4);
    expect(shown.stdout).toMatch(/settled .* of 3/);
    expect(shown.stdout).toContain('2 admitted, 1 denied');
    const quiet = await svcOnTerminal(['admit', path, '-q'], { env });
    expect(quiet.stdout).not.toContain('settled');
    expect((await run(['admit', name])).stderr).toBe('');
  });

  it('is followed by its batch', async () => {
    const name = await file('followed', [line(), line('DELETE_AUDIT_LOG')]);
    await run(['admit', name]);
    const headers = { 'X-Svc-Api-Key': world.options.apiKey, 'X-Svc-Tenant-Id': 'acme' };
    const reply = await world.engine.call({ method: 'GET', path: '/v1/batches', headers });
    const [{ batch_id: id } = { batch_id: '' }] = reply.json['batches'] as { batch_id: string }[];
    const followed = await run(['follow', id]);
    expect(followed.code).toBe(4);
    expect(followed.stdout).toContain('1 admitted, 1 denied');
  });
});

describe('svc verify, online', () => {
  it('exits by what the verification system says', async () => {
    const exported = await exportProofHttp(world.options, { proof_id: admitted });
    const good = await file('proof.json', [exported.response]);
    const altered = { ...exported.response, request_hash: '0'.repeat(64) };
    const bad = await file('altered.json', [altered]);
    const cases: [string[], number, RegExp][] = [
      [[admitted], 0, /^VALID\n/],
      [[good], 0, /^VALID\n/],
      [[denied], 4, /^VALID\n/],
      [[bad], 1, /^INVALID {2}\(altered\)\n[\s\S]*failed +submitted_record/],
      [[UNKNOWN], 1, /^NOT_FOUND/],
    ];
    await all(cases, async ([args, code, said]) => {
      const { code: exit, stdout } = await run(['verify', ...args]);
      expect([args, exit]).toEqual([args, code]);
      expect(stdout).toMatch(said);
    });
    const [fresh = ''] = await world.registry.admitAll([world.registry.item()]);
    expect((await run(['verify', fresh])).code).toBe(3);
    const piped = await run(['verify', '-', '--json'], {
      stdin: canonicalJson(exported.response),
    });
    expect(piped.code).toBe(0);
    expect(piped.lines[0]).toMatchObject({
      request_hash: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
      response: { can_assert_validity: true },
    });
  });

  it('takes no file that is none, and no pins that it would not use', async () => {
    await file('half.json', []);
    await writeFile(join(folder, 'half.json'), '{"schema_version":');
    await file('actions.ndjson', [{ intent_id: 'a', action: 'SEND_REPORT' }]);
    const other = await run(['verify', 'actions.ndjson']);
    expect(other).toMatchObject({ code: 2, stdout: '' });
    expect(other.stderr).toMatch(/^svc: actions\.ndjson is not what `svc export` writes: /);
    for (const args of [
      ['half.json'],
      ['nowhere.json'],
      ['.'],
      [admitted, '--pins', 'half.json'],
    ]) {
      expect(await run(['verify', ...args])).toMatchObject({ code: 2, stdout: '' });
    }
  });
});

describe('svc export, inclusion and replay', () => {
  it('write what the engine gave out, byte for byte', async () => {
    const { response } = await exportProofHttp(world.options, { proof_id: admitted });
    const bytes = canonicalJson(response);
    expect(await run(['export', admitted])).toMatchObject({ code: 0, stdout: bytes, stderr: '' });
    const saved = await run(['export', admitted, '-o', 'saved.json']);
    expect(saved).toMatchObject({ code: 0, stdout: '' });
    expect(await readFile(join(folder, 'saved.json'), 'utf8')).toBe(bytes);
    const pdf = await run(['export', admitted, '--format', 'pdf', '-o', 'saved.pdf', '--json']);
    expect(pdf.lines[0]).toMatchObject({
      file: 'saved.pdf',
      canonical_request: expect.any(String) as string,
    });
    expect((await readFile(join(folder, 'saved.pdf'))).subarray(0, 5).toString()).toBe('%PDF-');
    const tlog = await run(['inclusion', admitted, '--format', 'tlog-proof']);
    expect(tlog.stdout).toMatch(/^c2sp\.org\/tlog-proof@v1\nindex [0-9]+\n/);
    const place = await run(['inclusion', admitted, '--json']);
    expect(place.lines[0]).toMatchObject({ response: { state: 'included' } });
    expect((await readdir(folder)).filter((name) => name.endsWith('.part'))).toEqual([]);
  });

  it('say what they cannot do by their code', async () => {
    const [fresh = ''] = await world.registry.admitAll([world.registry.item()]);
    const cases: [string[], number][] = [
      [['export', fresh], 3],
      [['export', UNKNOWN], 3],
      [['export', 'no-id'], 2],
      [['export', admitted, '--format', 'xml'], 2],
      [['export', admitted, '-o', 'no/such/folder'], 2],
      [['inclusion', fresh], 3],
      [['inclusion', admitted], 0],
      [['inclusion', admitted, '--format', 'xml'], 2],
      [['replay', admitted], 0],
      [['replay', UNKNOWN], 3],
      [['replay', 'proof.json', '--policy', '0'.repeat(64)], 2],
    ];
    await all(cases, async ([args, code]) => {
      expect([args, (await run(args)).code]).toEqual([args, code]);
    });
    const { response } = await exportProofHttp(world.options, { proof_id: admitted });
    const aep = { ...response.aep, request_hash: '0'.repeat(64) };
    const diverging = await run(['replay', await file('diverging', [{ ...response, aep }])]);
    expect(diverging.code).toBe(1);
    expect(diverging.stdout).toMatch(/^divergence\n[\s\S]*differs +\/request_hash/);
    const other = await run(['replay', admitted, '--policy', response.aep.policy.digest]);
    expect(other.stdout).toContain('ADMIT, the same');
  });
});
