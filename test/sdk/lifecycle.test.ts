import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { SCHEMA } from '#protocol/schemas/ids';
import { formatTime } from '#protocol/time';
import {
  admitHttp,
  agentEnvelope,
  type AgentInput,
  canonicalHash,
  createApproverRegistration,
  Svc,
} from '#sdk/index';
import { issueKey } from '../fixtures/engine.js';
import { listOf } from '../fixtures/list-of.js';
import { NO_DELETIONS, overlayCase } from '../fixtures/overlays.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { sdkTest, type SdkWorld } from '../fixtures/sdk-world.js';
import { openFolder, svc } from '../fixtures/svc.js';

const it = sdkTest();

const action: AgentInput = { kind: 'admission', agent: { id: 'agent-7' }, action: 'SEND_REPORT' };
const admit = async ({ options }: SdkWorld) => (await admitHttp(options, action)).registry_proof_id;

it('Svc > rejects answers about another artifact, package or batch', async ({ world }) => {
  const own = await admit(world);
  const another = await admit(world);
  const client = new Svc(world.options);
  const made = await client.packages.create({ proof_ids: [own] });
  const item = agentEnvelope(world.options.tenantId, action);
  const [{ batch_id } = { batch_id: '' }] = await listOf(client.batches.admit([item]));
  const artifact = { proof_id: own, artifact_kind: 'trust' } as const;
  await client.artifacts.revoke({ ...artifact, reason: 'r', actor: 'a' });
  /** Replaces each id in a response by a different id of the same kind. */
  const lying = new Svc({
    ...world.options,
    fetch: async (input, init) => {
      const response = await fetch(input, init);
      const { status, headers } = response;
      const text = (await response.text())
        .replaceAll(own, another)
        .replaceAll(made.package_id, `pkg_${another}`)
        .replaceAll(batch_id, `batch_${another}`);
      return new Response(text, { status, headers });
    },
  });
  for (const call of [
    () => lying.artifacts.revocation(artifact),
    () => lying.artifacts.revoke({ ...artifact, reason: 'r', actor: 'a' }),
    () => lying.packages.create({ proof_ids: [own] }),
    () => lying.packages.read(made),
    () => lying.shareTokens.create(artifact),
    () => lying.batches.read({ batch_id }),
  ]) {
    await sdkError(call(), 'unexpected_response');
  }
});

it('Svc > rejects answers about another approver or overlay, or with the wrong state', async ({
  world,
}) => {
  const { tenantId } = world.options;
  const privateKey = new Uint8Array(32).fill(7);
  const registration = await createApproverRegistration({ tenantId, approver: 'a', privateKey });
  const registered = { registration_hash: canonicalHash(registration) };
  const rules = { 'no-deletions': NO_DELETIONS };
  const stored = { overlay_id: canonicalHash(rules) };
  const created_at = '2026-11-20T17:29:00.123Z';
  const approver = {
    ...{ schema_version: SCHEMA.tenantApprover, ...registered, registration },
    ...{ leaf_index: 1, created_by: null, created_at },
  };
  const overlay = { schema_version: SCHEMA.overlay, ...stored, rules, created_at, unfit_rules: [] };
  const test = {
    ...{ schema_version: SCHEMA.overlayTest, ...stored, policy_digest: 'd'.repeat(64) },
    ...{ cases: null, simulation: null },
  };
  const answeredWith = (document: object, status: number): Svc =>
    new Svc({
      ...world.options,
      fetch: () => Promise.resolve(Response.json(document, { status })),
    });
  const [active, retired] = [{ state: 'active' }, { state: 'retired' }];
  const [isActive, isInactive] = [{ active: true }, { active: false }];
  const calls: [(svc: Svc) => Promise<unknown>, number, object, object?][] = [
    [(svc) => svc.approvers.register(registration), 201, { ...approver, ...active }, retired],
    [(svc) => svc.approvers.retire(registered), 200, { ...approver, ...retired }, active],
    [(svc) => svc.overlays.store({ rules }), 201, { ...overlay, ...isInactive }],
    [(svc) => svc.overlays.test(stored), 200, test],
    [
      (svc) => svc.overlays.activate({ ...stored, cases: [] }),
      ...([200, { ...overlay, ...isActive }, isInactive] as const),
    ],
    [
      (svc) => svc.overlays.deactivate(stored),
      ...([200, { ...overlay, ...isInactive }, isActive] as const),
    ],
  ];
  const another = { registration_hash: 'f'.repeat(64), overlay_id: 'f'.repeat(64) };
  for (const [call, status, document, otherState] of calls) {
    expect(await call(answeredWith(document, status))).toEqual(document);
    for (const lie of otherState === undefined ? [another] : [another, otherState]) {
      const lying = answeredWith({ ...document, ...lie }, status);
      await sdkError(call(lying), 'unexpected_response');
    }
  }
});

it('Svc > rejects a key, a share token or an export that shows or permits more than requested', async ({
  world,
}) => {
  const proof_id = await admit(world);
  await world.registry.verifyAll();
  await world.log.publish();
  const expires_at = formatTime(Date.now() + 3_600_000);
  const share = { artifact_kind: 'proof', proof_id, expires_at } as const;
  const end = `"expires_at":"${expires_at}"`;
  const cases: [(svc: Svc) => Promise<unknown>, from: string, to: string][] = [
    [(svc) => svc.keys.create({ scopes: ['read'] }), '["read"]', '["read","admit"]'],
    [
      (svc) => svc.keys.create({ scopes: ['admit'], restriction: { agent_id: 'agent-7' } }),
      ...(['{"agent_id":"agent-7"}', 'null'] as const),
    ],
    [(svc) => svc.keys.create({ scopes: ['read'], expires_at }), end, '"expires_at":null'],
    [(svc) => svc.shareTokens.create(share), end, '"expires_at":null'],
  ];
  for (const [call, from, to] of cases) {
    let isAltered = false;
    const altering: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      const { headers, status } = response;
      const text = await response.text();
      isAltered = text.includes(from);
      return new Response(text.replace(from, to), { headers, status });
    };
    await call(new Svc(world.options));
    await sdkError(call(new Svc({ ...world.options, fetch: altering })), 'unexpected_response');
    expect(isAltered).toBe(true);
  }
  const withheld = { proof_id, disclose: [] };
  await new Svc(world.options).proofs.export(withheld);
  // An engine that ignores `disclose=` and so discloses the hash of the request.
  const ignoring: typeof fetch = (input, init) =>
    fetch((input as URL).href.replace('&disclose=', ''), init);
  const lying = new Svc({ ...world.options, fetch: ignoring });
  await sdkError(lying.proofs.export(withheld), 'unexpected_response');
});

it('revokeApiKeyHttp and revokeShareTokenHttp > accept no other status than 204', async ({
  world,
}) => {
  const proxy: typeof fetch = () => Promise.resolve(Response.json({}));
  const client = new Svc({ ...world.options, fetch: proxy });
  for (const call of [
    client.keys.revoke({ key_id: 'a1b2c3d4e5f6' }),
    client.shareTokens.revoke({ token_hash: '0'.repeat(64) }),
  ]) {
    await sdkError(call, 'unexpected_response');
  }
});

it('revokeArtifactHttp > waits until the revocation is in the log', async ({ world }) => {
  const artifact = { proof_id: await admit(world), artifact_kind: 'trust' } as const;
  const pending = { schema_version: SCHEMA.revocationStatus, ...artifact, state: 'pending' };
  let sent = 0;
  const late: typeof fetch = async (...call) => {
    const response = await fetch(...call);
    sent += 1;
    return sent === 1 ? Response.json(pending, { status: 202 }) : response;
  };
  const client = new Svc({ ...world.options, fetch: late });
  const revoked = await client.artifacts.revoke({ ...artifact, reason: 'r', actor: 'a' });
  expect([revoked, sent]).toMatchObject([artifact, 2]);
});

it('Svc > does not retry the creation of a share token or an API key, because a retry could create a second one', async ({
  world,
}) => {
  let sent = 0;
  const client = new Svc({
    ...world.shaky,
    fetch: () => Promise.reject(new TypeError(`request ${String(++sent)}`)),
  });
  const artifact = { artifact_kind: 'proof', proof_id: await admit(world) } as const;
  await sdkError(client.shareTokens.create(artifact), 'network');
  expect(sent).toBe(1);
  await sdkError(client.keys.create({ scopes: ['read'] }), 'network');
  expect(sent).toBe(2);
});

it('admitHttp > admits an action once for each dedupe key', async ({ world }) => {
  const input = { ...action, requested_at: '2026-11-20T17:29:00.123Z', dedupeKey: 'record 17' };
  const first = await admitHttp(world.options, input);
  expect(await admitHttp(world.options, input)).toEqual(first);
  const other = await admitHttp(world.options, { ...input, dedupeKey: 'record 18' });
  expect(other.registry_proof_id).not.toBe(first.registry_proof_id);
  const timeless = admitHttp(world.options, { ...action, dedupeKey: 'record 17' });
  const error = await sdkError(timeless, 'invalid_input');
  expect(error.pointer).toBe('/requested_at');
});

it('Svc > reads its defaults from the environment, and throws an error that names a missing setting', async ({
  world,
}) => {
  const folder = await openFolder();
  const file = join(folder.path, 'key');
  await writeFile(file, `${world.options.apiKey}\n`);
  const settings = {
    SVC_ENGINE_URL: world.options.engineUrl,
    SVC_TENANT_ID: world.options.tenantId,
    SVC_API_KEY: '',
    SVC_API_KEY_FILE: file,
  };
  const before = { ...process.env };
  Object.assign(process.env, settings);
  try {
    const receipt = await new Svc({ receiptEvidence: false }).admit(action);
    expect(receipt.status).toBe('ADMITTED');
    const calling = async () => new Svc().registry.keys();
    expect((await sdkError(calling(), 'invalid_input')).pointer).toBe('/publicUrl');
  } finally {
    process.env = before;
  }
});

it('svc lists, shows, packages and revokes proofs, shares a package, and creates a restricted key', async ({
  world,
}) => {
  const folder = await openFolder();
  const { engineUrl, apiKey, tenantId } = world.options;
  const env = { SVC_ENGINE_URL: engineUrl, SVC_API_KEY: apiKey, SVC_TENANT_ID: tenantId };
  const run = async (...args: string[]) => {
    const { code, lines, stderr } = await svc([...args, '--json'], { env, cwd: folder.path });
    expect([code, stderr]).toEqual([0, '']);
    return lines;
  };
  const proof = await admit(world);
  const [newest] = await run('list', '--agent', 'agent-7', '--limit', '1');
  expect(newest).toMatchObject({ proof_id: proof, agent: 'agent-7', effect: 'ADMIT' });
  const { stdout } = await svc(['list', '--limit', '1'], { env });
  expect(stdout.split(' ')[0]).toBe(proof);
  expect(await run('show', proof)).toMatchObject([{ proof_id: proof }]);
  const [made] = await run('package', proof);
  expect(await run('show', String(made!['package_id']))).toEqual([made]);
  const [token] = await run('share', String(made!['package_id']));
  expect(await run('revoke', String(token!['token_hash']))).toEqual([
    { revoked: token!['token_hash'] },
  ]);
  const reason = ['--kind', 'trust', '--reason', 'wrong day', '--actor', 'ops'];
  const [revocation] = await run('revoke', proof, ...reason);
  expect(await run('show', proof, '--kind', 'trust')).toEqual([revocation]);

  const restricted = ['--scope', 'admit', '--agent', 'agent-7', '--tool', 'mail.*'];
  const [key] = await run('create-key', ...restricted, '--out', 'agent-7.key');
  const path = join(folder.path, 'agent-7.key');
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  const own = { ...world.options, apiKey: (await readFile(path, 'utf8')).trim() };
  await admitHttp(own, { ...action, tool: 'mail.send' });
  await run('revoke', String(key!['key_id']));
  await sdkError(admitHttp(own, { ...action, tool: 'mail.send' }), 'unauthenticated');

  // A rejected request leaves no empty file, which the next attempt would not overwrite.
  for (let attempt = 0; attempt < 2; attempt++) {
    const expired = ['--scope', 'read', '--expires', '2026-01-01T00:00:00.000Z'];
    const rejected = await svc(['create-key', ...expired, '--out', 'expired.key'], {
      env,
      cwd: folder.path,
    });
    expect(rejected.stderr).toContain('expiry_over');
  }

  await mkdir(join(folder.path, 'taken'));
  const taken = await svc(['create-key', '--scope', 'read', '--out', 'taken'], {
    env,
    cwd: folder.path,
  });
  expect(taken).toMatchObject({ code: 2, stderr: 'svc: taken cannot be created: EEXIST\n' });
});

it('svc verify shows disclosed values, counts withheld ones, and compares a file with a disclosed hash', async ({
  world,
}) => {
  const folder = await openFolder();
  const { engineUrl, apiKey, tenantId } = world.options;
  const env = { SVC_ENGINE_URL: engineUrl, SVC_API_KEY: apiKey, SVC_TENANT_ID: tenantId };
  const run = (...args: string[]) => svc(args, { env, cwd: folder.path });
  const given = { amount: 480, currency: 'EUR' };
  await folder.write('given.json', JSON.stringify(given, null, 2));
  await folder.write('other.json', JSON.stringify({ ...given, amount: 481 }));
  const arguments_hash = (await run('hash', 'given.json')).stdout.trim();
  const { registry_proof_id: id } = await admitHttp(world.options, { ...action, arguments_hash });
  await world.registry.verifyAll();
  await world.log.publish();
  await run('export', id, '--disclose', 'arguments_hash', '-o', 'shown.json');
  await run('export', id, '-o', 'withheld.json');
  const key = toBase64Url(world.registry.admit.signer.publicKey);
  const pins = ['--aep-key', key, '--log-vkey', world.log.vkey, '--log-origin', world.log.origin];
  for (const mode of [[], ['--offline', ...pins]]) {
    const { stdout: shown } = await run('verify', 'shown.json', ...mode);
    expect(shown).toMatch(new RegExp(`^disclosed +arguments_hash: ${arguments_hash}$`, 'm'));
    expect(shown).toMatch(/^withheld +1 value$/m);
    const verify = async (file: string, named: string) => {
      const { code, stdout } = await run('verify', file, ...mode, '--arguments', named);
      return [code, /arguments +(\w+)/.exec(stdout)?.[1]];
    };
    expect(await verify('shown.json', 'given.json')).toEqual([0, 'match']);
    expect(await verify('shown.json', 'other.json')).toEqual([1, 'differ']);
    expect(await verify('withheld.json', 'given.json')).toEqual([3, 'withheld']);
  }
  const sent = world.network.seen.length;
  const unread = await run('verify', 'shown.json', '--arguments', 'none.json');
  expect(unread).toMatchObject({ code: 2, stderr: expect.stringContaining('none.json') as string });
  expect(world.network.seen).toHaveLength(sent);
});

it('svc verify --offline does not take the proof of an outcome for that of an admission', async ({
  world,
}) => {
  const folder = await openFolder();
  const { engineUrl, apiKey, tenantId } = world.options;
  const env = { SVC_ENGINE_URL: engineUrl, SVC_API_KEY: apiKey, SVC_TENANT_ID: tenantId };
  const run = (...args: string[]) => svc(args, { env, cwd: folder.path });
  const parent_proof_id = await admit(world);
  const outcome = { kind: 'outcome', agent: action.agent, result: 'succeeded' } as const;
  const { registry_proof_id: id } = await admitHttp(world.options, { ...outcome, parent_proof_id });
  await world.registry.verifyAll();
  await world.log.publish();
  await run('export', id, '-o', 'outcome.json');
  const key = toBase64Url(world.registry.admit.signer.publicKey);
  const pins = ['--aep-key', key, '--log-vkey', world.log.vkey, '--log-origin', world.log.origin];
  const { code, stdout } = await run('verify', 'outcome.json', '--offline', ...pins);
  expect(code).toBe(4);
  expect(stdout).toMatch(/^authentic, included {2}\(of a report: an outcome, or a closed run\)\n/);
});

const deletion = {
  kind: 'admission',
  agent: { id: 'agent-7' },
  action: 'DELETE_RECORD',
} as const;

it('svc overlay stores, tests, activates and deactivates the rules of a folder', async ({
  world,
}) => {
  const folder = await openFolder();
  const write = (file: string, text: string) => writeFile(join(folder.path, file), text);
  await mkdir(join(folder.path, 'rules'));
  await write('rules/no-deletions.cedar', NO_DELETIONS);
  await write('good.json', JSON.stringify([overlayCase()]));
  await write('failing.json', JSON.stringify([overlayCase('OTHER')]));
  const env = {
    SVC_ENGINE_URL: world.engine.url,
    SVC_TENANT_ID: world.options.tenantId,
    SVC_API_KEY: await issueKey(world.registry, { scopes: ['policy'] }),
  };
  const overlay = (...args: string[]) =>
    svc(['overlay', ...args, '--json'], { cwd: folder.path, env });
  const admitted = await admitHttp(world.options, deletion);

  const { lines } = await overlay('put', '--rules', 'rules');
  const id = String(lines[0]?.['overlay_id']);
  const tested = await overlay('test', '--id', id, '--cases', 'good.json');
  expect(tested).toMatchObject({ code: 0, lines: [{ cases: { failed: 0 } }] });
  const failing = await overlay('test', '--id', id, '--cases', 'failing.json');
  expect(failing).toMatchObject({ code: 1, lines: [{ cases: { failed: 1 } }] });
  const since = await overlay('test', '--id', id, '--since', '2026-01-01T00:00:00.000Z');
  const changes = [
    { proof_id: admitted.registry_proof_id, simulated: 'DENY [overlay.no-deletions]' },
  ];
  expect(since).toMatchObject({ code: 0, lines: [{ simulation: { denied: 1, changes } }] });
  const untested = await overlay('activate', '--id', id, '--cases', 'failing.json');
  expect(untested.code).toBe(3);
  expect(untested.stderr).toContain('overlay_untested');

  expect(await overlay('activate', '--id', id, '--cases', 'good.json')).toMatchObject({ code: 0 });
  await sdkError(admitHttp(world.options, deletion), 'policy_denied');
  const listed = await svc(['list', 'overlays', '--json'], { env });
  expect(listed.lines).toMatchObject([{ overlay_id: id, active: true }]);
  expect(await overlay('deactivate', '--id', id)).toMatchObject({ code: 0 });
  await admitHttp(world.options, deletion);
});
