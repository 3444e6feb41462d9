import { readdir, readFile, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { idsOf } from '#protocol/ids';
import { canonicalJson, executeIntentHttp, exportProofHttp } from '#sdk/index';
import { intent, sdkTest, type SdkWorld } from '../fixtures/sdk-world.js';
import { testKeys, vkeysOf } from '../fixtures/sql-publisher.js';
import { openFolder, svc, svcProcess } from '../fixtures/svc.js';
import type { RunOptions } from '../fixtures/svc.js';

const UNKNOWN = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

/** A folder, settings of the command line, and verified proofs of an admission and a denial. */
async function openCli({ log, options, registry }: SdkWorld, publicUrl: string) {
  const folder = await openFolder();
  const env = {
    SVC_ENGINE_URL: options.engineUrl,
    SVC_PUBLIC_URL: publicUrl,
    SVC_API_KEY_FILE: join(folder.path, await folder.write('key', `${options.apiKey}\n`)),
    SVC_TENANT_ID: options.tenantId,
  };
  const { registry_proof_id: admitted } = await executeIntentHttp(options, intent());
  const [denied = ''] = await registry.admitAll([registry.item({ action: 'DELETE_AUDIT_LOG' })]);
  await registry.verifyAll();
  await log.publish();
  const run = (args: string[], more: RunOptions = {}) =>
    svc(args, { cwd: folder.path, ...more, env: { ...env, ...more.env } });
  return { folder, env, run, admitted, denied };
}

const it = sdkTest().extend<{ cli: Awaited<ReturnType<typeof openCli>> }>({
  cli: [
    async ({ world, publicNetwork }, use) => {
      const cli = await openCli(world, publicNetwork.url);
      await use(cli);
    },
    { scope: 'file' },
  ],
});

const line = (action?: string): object => intent(action === undefined ? {} : { action });

describe('svc command', () => {
  it.for<[args: string[]]>([
    [[]],
    [['frobnicate']],
    [['lookup']],
    [['lookup', 'a', '--unknown']],
    [['lookup', 'a', '--timeout', 'soon']],
    [['follow', 'neither-proof-nor-batch']],
    [['follow', `batch_${UNKNOWN}`, '--log-vkey', vkeysOf(testKeys()).logVkey]],
    [['log', '0', '--log-vkey', vkeysOf(testKeys()).logVkey, '--max-age', '600']],
    [['export', UNKNOWN, '--out', '--json']],
  ])('exits with 2 for the command line %j', async ([args], { cli: { run } }) => {
    const { code, stdout, stderr } = await run(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).not.toBe('');
  });

  it('exits with 2 and the reason for a missing or invalid setting', async ({
    cli: { admitted, run },
  }) => {
    const cases: [Promise<{ code: number | null; stderr: string }>, RegExp][] = [
      [svc(['lookup', admitted]), /SVC_PUBLIC_URL/],
      [svc(['export', admitted], { env: { SVC_ENGINE_URL: 'http://a' } }), /SVC_API_KEY_FILE/],
      [svc(['keys'], { env: { SVC_PUBLIC_URL: 'localhost:8081' } }), /SVC_PUBLIC_URL.* http:/],
      [
        run(['export', admitted], { env: { SVC_API_KEY_FILE: '/nowhere' } }),
        /nowhere cannot be used: ENOENT/,
      ],
      [
        run(['export', admitted], { env: { SVC_API_KEY_FILE: '/dev/null' } }),
        /\/dev\/null cannot be used: apiKey is missing/,
      ],
      [run(['export', admitted], { env: { SVC_API_KEY: 'a' } }), /not both/],
    ];
    for (const [ran, message] of cases) {
      const { code, stderr } = await ran;
      expect(code).toBe(2);
      expect(stderr).toMatch(message);
    }
  });

  it('exits with 3 and a JSON error when the service is unreachable', async ({ cli }) => {
    const env = { SVC_PUBLIC_URL: 'http://127.0.0.1:1', SVC_ENGINE_URL: 'http://127.0.0.1:1' };
    for (const name of ['lookup', 'verify']) {
      const ran = await cli.run([name, cli.admitted, '--json', '--timeout', '1'], { env });
      expect(ran).toMatchObject({ code: 3, stdout: '' });
      expect(JSON.parse(ran.stderr)).toMatchObject({ error: { code: 'network' }, exit_code: 3 });
    }
  });

  it('exits with 130 after SIGINT', async ({ cli: { env }, facades, publicNetwork }) => {
    publicNetwork.faults.push({ kind: 'silent' });
    let interrupt = (): void => undefined;
    const ended = svcProcess(['lookup', facades.proof], {
      env,
      started: (program) => (interrupt = program.interrupt),
    });
    await expect.poll(() => publicNetwork.seen.length).toBe(1);
    interrupt();
    expect(await ended).toMatchObject({ code: 130, stdout: '' });
  });
});

describe('svc lookup and svc follow', () => {
  it('exit with a code for each verdict', async ({ cli: { run }, facades }) => {
    const { trust_id, execution_id } = idsOf(facades.proof);
    const cases: [string[], number, string][] = [
      [[facades.proof], 0, 'VALID'],
      [[trust_id], 0, 'TRUST_ESTABLISHED'],
      [[facades.shareToken], 0, 'VALID'],
      [[execution_id], 0, 'VALID'],
      [[facades.denied], 4, 'VALID  (of a denial)'],
      [[facades.packageId], 1, 'REVOKED'],
      [[UNKNOWN], 1, 'NOT_FOUND'],
      [['cert_unknown', '--kind', 'certificate'], 3, 'BACKEND_LOOKUP_REQUIRED'],
    ];
    await Promise.all(
      cases.map(async ([args, code, status]) => {
        const { code: exit, stdout, stderr } = await run(['lookup', ...args]);
        expect([args, exit, stdout.split('\n')[0], stderr]).toEqual([args, code, status, '']);
      }),
    );
    const views = [
      [facades.proof, 'history', 0],
      [facades.denied, 'history', 4],
      [facades.revoked, 'history', 1],
      [trust_id, 'package', 0],
      // Only trust artifacts have this view, so the printed document does not resolve.
      [facades.proof, 'package', 3],
    ] as const;
    for (const [id, view, code] of views) {
      const { code: exit, lines } = await run(['lookup', id, '--view', view]);
      expect([exit, lines]).toMatchObject([code, [{ identifier: id }]]);
    }
    expect((await run(['follow', facades.revoked])).code).toBe(1);
    const timedOut = await run(['follow', UNKNOWN, '--timeout', '0.5']);
    expect(timedOut).toMatchObject({ code: 3, stdout: '' });
  });

  it.for([
    [[], /^VALID\n/],
    [['--view', 'history'], /"verification_status":"VALID"/],
  ] as const)(
    'wait for a proof that is too new, with %j',
    async ([args, answer], { cli: { run }, facades, publicNetwork }) => {
      const { registry } = facades.snapshot;
      const proof = registry.addProof();
      const { code, stdout } = await run(['lookup', proof]);
      expect(stdout).toMatch(/^NOT_FOUND\n[\s\S]*too new.*--wait\n/);
      expect(code).toBe(3);
      const before = publicNetwork.seen.length;
      const waiting = run(['lookup', proof, '--wait', ...args]);
      await expect.poll(() => publicNetwork.seen.length).toBeGreaterThan(before);
      registry.verify();
      await facades.snapshot.publishOnce();
      await facades.good.publicServer.poller.refresh();
      expect((await waiting).stdout).toMatch(answer);
    },
  );

  it('exit with 3 when the output pipe is closed', async ({ cli: { env }, facades }) => {
    const args = ['lookup', facades.proof, '--json'];
    expect((await svcProcess(args, { env, closesStdout: true })).code).toBe(3);
  });
});

describe('svc admit', () => {
  it('stores the evidence of each receipt, which verifies offline', async ({ cli, world }) => {
    const { folder, run } = cli;
    const items = [line(), line('DELETE_AUDIT_LOG')];
    const file = await folder.write('with-evidence', [...items, items[0]!]);
    expect(await run(['admit', file, '--evidence', file])).toMatchObject({
      code: 2,
      stderr: `svc: ${file} cannot be created: EEXIST\n`,
    });
    const args = ['admit', file, '--evidence', 'evidence', '--json'];
    const { code, lines, stderr } = await run(args);
    expect(code).toBe(4);
    const counts = { admitted: 2, denied: 1, replayed: 1, batches: [lines[0]!['batch_id']] };
    expect(JSON.parse(stderr)).toMatchObject(counts);
    expect(JSON.parse(stderr)).toHaveProperty('items_per_second');
    const ids = lines.slice(0, 2).map(({ proof_id }) => String(proof_id));
    const files = await readdir(join(folder.path, 'evidence'));
    expect(files.sort()).toEqual(ids.map((id) => `${id}.json`).sort());
    await world.log.publish();
    await run(args);
    const pins = ['--aep-key', toBase64Url(world.registry.admit.signer.publicKey)];
    const verified = await run([
      ...['verify', `evidence/${ids[0]!}.json`, '--offline', ...pins],
      ...['--log-vkey', world.log.vkey],
    ]);
    expect(verified.code).toBe(0);
    expect(verified.stdout).toMatch(/^authentic, included/);
  });

  it('exits with 4 for a denied item, and with 1 for an invalid item', async ({
    cli: { folder, run },
  }) => {
    const denial = await run([
      'admit',
      await folder.write('denied', [line(), line('DELETE_AUDIT_LOG')]),
    ]);
    expect(denial.code).toBe(4);
    expect(denial.stdout).toMatch(
      /^item 2 denied {2}[0-9a-f]{32} {2}\S.*\n1 admitted, 1 denied\nbatch /,
    );
    const other = { ...line(), tenant_id: 'other' };
    const items = [other, line('DELETE_AUDIT_LOG'), line()];
    const invalid = await run(['admit', await folder.write('invalid', items)]);
    expect(invalid.code).toBe(1);
    expect(invalid.stdout).toMatch(/item 1 invalid .*tenant_body_mismatch/);
    expect(invalid.stdout).toContain('1 admitted, 1 denied, 1 invalid');
  });

  it('checks every line before it sends the first batch', async ({ cli: { run }, world }) => {
    const envelope = { kind: 'admission', agent: { id: 'a' }, action: 'SEND_REPORT' };
    const requested_at = '2026-11-20T17:29:00.123Z';
    const cases: [string, RegExp][] = [
      ['{"intent_id":"a","action":"A"}\nnot json\n', /:2: /],
      ['{"intent_id":"a","action":"A"}\n\n{"intent_id":"a","action":"lower"}\n', /:3: \/action/],
      ['{"intent_id":"a","intent_id":"b","action":"A"}', /:1: /],
      ['[1]', /:1: is not a JSON object/],
      [JSON.stringify({ ...envelope, requested_at }), /:1: \/nonce: .* needs nonce or dedupe_key/],
      ['\n \n', /^svc: standard input has no items/],
    ];
    const before = world.engine.worker.batches.length;
    await Promise.all(
      cases.map(async ([text, message]) => {
        const { code, stderr, stdout } = await run(['admit', '-'], { stdin: text });
        expect([text, code, stdout]).toEqual([text, 2, '']);
        expect(stderr).toMatch(message);
      }),
    );
    expect(world.engine.worker.batches.length).toBe(before);
    const complete = { ...envelope, requested_at, dedupe_key: 'record 17' };
    const send = () => run(['admit', '-', '--json'], { stdin: JSON.stringify(complete) });
    const { lines } = await send();
    expect(lines).toMatchObject([{ state: 'admitted' }]);
    expect((await send()).lines).toEqual(lines);
  });

  it('asks to split a file that is longer than a string can be', async ({
    cli: { folder, run },
  }) => {
    const file = await folder.write('long', '');
    await truncate(join(folder.path, file), 2 ** 29);
    const { code, stderr } = await run(['admit', file]);
    expect({ code, stderr }).toEqual({ code: 2, stderr: 'svc: long exceeds 512 MiB: split it\n' });
  });
});

describe('svc verify online', () => {
  it('exits with a code for each verdict, and counts the checks', async ({ cli, world }) => {
    const { admitted, denied, folder, run } = cli;
    const { response } = await exportProofHttp(world.options, { proof_id: admitted });
    const file = await folder.write('proof.json', [response]);
    const record = { ...response.proof_record, aep_hash: '0'.repeat(64) };
    const altered = { ...response, proof_record: record };
    const bad = await folder.write('altered.json', [altered]);
    const cases: [string[], number, RegExp][] = [
      [[admitted], 0, /^VALID\n[\s\S]*checks +15 passed, 10 not applicable, 0 failed\n$/],
      [[file], 0, /^VALID\n/],
      [[denied], 4, /^VALID {2}\(of a denial\)\n/],
      [[bad], 1, /^INVALID {2}\(altered\)\n[\s\S]*failed +submitted_record[\s\S]*, 1 failed\n$/],
      [[UNKNOWN], 1, /^NOT_FOUND[\s\S]*checks +0 passed, 24 not applicable, 1 failed\n$/],
    ];
    await Promise.all(
      cases.map(async ([args, code, output]) => {
        const { code: exit, stdout } = await run(['verify', ...args]);
        expect([args, exit]).toEqual([args, code]);
        expect(stdout).toMatch(output);
      }),
    );
    const [unverified = ''] = await world.registry.admitAll([world.registry.item()]);
    expect((await run(['verify', unverified])).code).toBe(3);
    const piped = await run(['verify', '-', '--json'], { stdin: canonicalJson(response) });
    expect(piped.code).toBe(0);
    expect(piped.lines[0]).toMatchObject({
      request_hash: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
      response: { can_assert_validity: true },
    });
  });

  it('exits with 2 for a file that is not an export, or pins without --offline', async ({
    cli,
  }) => {
    const { admitted, folder, run } = cli;
    await folder.write('half.json', '{"schema_version":');
    await folder.write('actions.ndjson', [{ intent_id: 'a', action: 'SEND_REPORT' }]);
    const cases: [string[], RegExp][] = [
      [['actions.ndjson'], /^svc: actions\.ndjson is not an output of `svc export`: /],
      [['half.json'], /half\.json is not JSON/],
      [['nowhere.json'], /neither a proof id nor a file/],
      [['.'], /neither a proof id nor a file/],
      [[admitted, '--pins', 'half.json'], /need --offline/],
    ];
    await Promise.all(
      cases.map(async ([args, message]) => {
        const { code, stdout, stderr } = await run(['verify', ...args]);
        expect([args, code, stdout]).toEqual([args, 2, '']);
        expect(stderr).toMatch(message);
      }),
    );
  });
});

describe('svc export, inclusion and replay', () => {
  it('write the response of the engine, byte for byte', async ({ cli, world }) => {
    const { admitted, folder, run } = cli;
    const { response } = await exportProofHttp(world.options, { proof_id: admitted });
    const bytes = canonicalJson(response);
    expect(await run(['export', admitted])).toMatchObject({ code: 0, stdout: bytes, stderr: '' });
    const saved = await run(['export', admitted, '-o', 'saved.json']);
    expect(saved).toMatchObject({ code: 0, stdout: '' });
    expect(await readFile(join(folder.path, 'saved.json'), 'utf8')).toBe(bytes);
    const pdf = await run(['export', admitted, '--format', 'pdf', '-o', 'saved.pdf', '--json']);
    expect(pdf.lines).toMatchObject([
      { file: 'saved.pdf', canonical_request: expect.any(String) as string },
    ]);
    const start = (await readFile(join(folder.path, 'saved.pdf'))).subarray(0, 5);
    expect(start.toString()).toBe('%PDF-');
    const tlog = await run(['inclusion', admitted, '--format', 'tlog-proof']);
    expect(tlog.stdout).toMatch(/^c2sp\.org\/tlog-proof@v1\nindex [0-9]+\n/);
    const inclusion = await run(['inclusion', admitted, '--json']);
    expect(inclusion.lines).toMatchObject([{ response: { state: 'included' } }]);
    const files = await readdir(folder.path);
    expect(files.filter((name) => name.endsWith('.part'))).toEqual([]);
  });

  it('report the kind of failure by exit code', async ({ cli, world }) => {
    const { admitted, folder, run } = cli;
    const { response } = await exportProofHttp(world.options, { proof_id: admitted });
    const file = await folder.write('replayed.json', [response]);
    const [unverified = ''] = await world.registry.admitAll([world.registry.item()]);
    const cases: [string[], number][] = [
      [['export', unverified], 3],
      [['export', admitted, '--format', 'xml'], 2],
      [['replay', admitted], 0],
      [['replay', UNKNOWN], 3],
      [['replay', file, '--policy', '0'.repeat(64)], 2],
    ];
    await Promise.all(
      cases.map(async ([args, code]) => {
        expect([args, (await run(args)).code]).toEqual([args, code]);
      }),
    );
    const aep = { ...response.aep, request_commitment: '0'.repeat(64) };
    const other = await folder.write('diverging', [{ ...response, aep }]);
    const diverging = await run(['replay', other]);
    expect(diverging.code).toBe(1);
    expect(diverging.stdout).toMatch(/^divergence\n[\s\S]*differs +\/request_commitment/);
    const same = await run(['replay', admitted, '--policy', response.aep.policy.digest]);
    expect(same.stdout).toContain('ADMIT, the same');
  });
});
