import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { registrationSchema, type Registration } from '#protocol/schemas/approvals';
import { admitHttp } from '#sdk/index';
import { addApprover } from '#sql/lifecycle/approvers';
import { setAllowlisted } from '#sql/tenants/administration';
import { activateApprovalSet, refund } from '../fixtures/approval-world.js';
import { issueKey } from '../fixtures/engine.js';
import { TENANT } from '../fixtures/registry.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { sdkTest, type SdkWorld } from '../fixtures/sdk-world.js';
import { openFolder, svc, svcOnTerminal, type RunOptions } from '../fixtures/svc.js';

/** A registered approver with a key in a folder, and a command line with an API key. */
async function openCli({ network, options, registry }: SdkWorld) {
  await activateApprovalSet(registry);
  const folder = await openFolder();
  const env = {
    SVC_ENGINE_URL: network.url,
    SVC_TENANT_ID: options.tenantId,
    SVC_API_KEY: await issueKey(registry, { scopes: ['approve'] }),
  };
  const run = (args: string[], more: RunOptions = {}) =>
    svc(args, { cwd: folder.path, ...more, env: { ...env, ...more.env } });
  const created = await run(['approver', 'ops-lead', '--key', 'ops.pem'], {
    env: { SVC_ENGINE_URL: '' },
  });
  expect(created).toMatchObject({ code: 0 });
  const text = await readFile(join(folder.path, 'registration.json'), 'utf8');
  const registration = registrationSchema.parse(JSON.parse(text));
  const { registrationHash } = await addApprover(registry.admin, registration);
  expect(created.stdout).toContain(registrationHash);
  /** Returns a proof that requires an approval. */
  const held = async (): Promise<string> =>
    (await sdkError(admitHttp(options, refund()), 'approval_required')).proofId!;
  /** Returns what the terminal shows before a confirmation of a request with this `tool_call_id`. */
  const shown = async (toolCallId: string, columns?: number): Promise<string> => {
    const request = { ...refund(), tool_call_id: toolCallId };
    const { proofId } = await sdkError(admitHttp(options, request), 'approval_required');
    const [key, file] = ['ops.pem', 'registration.json'].map((name) => join(folder.path, name));
    const args = ['approve', proofId!, '--key', key!, '--registration', file!];
    return (await svcOnTerminal(args, { env, stdin: '', ...(columns && { columns }) })).stdout;
  };
  return { folder: folder.path, env, run, held, shown, registration };
}

const it = sdkTest().extend<{ cli: Awaited<ReturnType<typeof openCli>> }>({
  cli: [
    async ({ world }, use) => {
      const cli = await openCli(world);
      await use(cli);
    },
    { scope: 'file' },
  ],
});
const onLinux = it.skipIf(process.platform !== 'linux');

it('svc approver keeps an existing registration and key, which only its owner can read', async ({
  cli,
}) => {
  const { mode } = await stat(join(cli.folder, 'ops.pem'));
  expect(mode & 0o777).toBe(0o600);
  const args = ['approver', 'again', '--key', 'ops.pem', '--registration', 'again.json', '--json'];
  const { lines } = await cli.run(args);
  expect(lines).toMatchObject([{ key: 'ops.pem', registration: 'again.json' }]);
  const again = JSON.parse(await readFile(join(cli.folder, 'again.json'), 'utf8')) as Registration;
  expect(again.public_key).toEqual(cli.registration.public_key);
  expect(again.salt).not.toBe(cli.registration.salt);
  const replaced = await cli.run(['approver', 'ops-lead', '--key', 'ops.pem']);
  expect(replaced).toMatchObject({ code: 2, stdout: '' });
  const kept = await readFile(join(cli.folder, 'registration.json'), 'utf8');
  expect(JSON.parse(kept)).toEqual(cli.registration);
});

it('svc approve shows the action and its facts, and exits with the second decision', async ({
  cli,
}) => {
  const proof = await cli.held();
  const approved = await cli.run(['approve', proof, '--key', 'ops.pem', '--yes']);
  expect(approved).toMatchObject({ code: 0, stderr: '' });
  expect(approved.stdout.replaceAll(/ {2,}/g, ' ')).toMatch(
    /^agent support-1 \(claimed by the caller\)\naction ISSUE_REFUND\ntool payments\.refund\nfact amount 480\.00\nfact currency EUR\n[\s\S]*required by refunds-above-200: A refund above 200\.00 needs an approval\.\n[\s\S]*\nADMITTED\n/,
  );
  const rejected = await cli.run([
    ...['approve', await cli.held(), '--key', 'ops.pem', '--reject', '--yes', '--json'],
  ]);
  expect(rejected).toMatchObject({ code: 4, stderr: '' });
  expect(rejected.lines).toMatchObject([{ decision: 'reject', status: 'DENIED' }]);
  const again = await cli.run(['approve', proof, '--key', 'ops.pem', '--yes']);
  expect(again).toMatchObject({ code: 3, stdout: '' });
  expect(again.stderr).toContain('already_decided');
});

it('svc approve calls a second decision unknown only while it may still be made', async ({
  cli,
  world: { engine, network, registry },
}) => {
  const [first, second] = [await cli.held(), await cli.held()];
  const approve = (proof: string, ...more: string[]) =>
    cli.run(['approve', proof, '--key', 'ops.pem', '--yes', ...more]);
  engine.worker.isPaused = true;
  const late = await approve(first, '--timeout', '1');
  expect([late.code, late.stderr]).toEqual([3, expect.stringContaining('run svc follow')]);
  network.seen.length = 0;
  const running = approve(second);
  const polls = () => network.seen.filter(({ path }) => path.startsWith('/v1/admissions/')).length;
  await expect.poll(polls, { timeout: 10_000 }).toBeGreaterThan(0);
  await setAllowlisted(registry.admin, TENANT, false);
  await engine.worker.work();
  const refused = await running;
  await setAllowlisted(registry.admin, TENANT, true);
  expect([refused.code, refused.stderr]).toEqual([
    3,
    expect.stringContaining('Nothing was admitted'),
  ]);
  expect(refused.stderr).not.toContain('svc follow');
});

it('svc verify --offline shows the agent whose request requires an approval', async ({
  cli,
  world,
}) => {
  const proof = await cli.held();
  await world.registry.verifyAll();
  await world.log.publish();
  const exported = ['export', proof, '--disclose', 'amount', '-o', 'pending.json'];
  const apiKey = { SVC_API_KEY: world.options.apiKey };
  expect(await cli.run(exported, { env: apiKey })).toMatchObject({ code: 0 });
  const key = toBase64Url(world.registry.admit.signer.publicKey);
  const pins = ['--aep-key', key, '--log-vkey', world.log.vkey];
  const verified = await cli.run(['verify', 'pending.json', '--offline', ...pins]);
  expect(verified).toMatchObject({ code: 4, stderr: '' });
  expect(verified.stdout.replaceAll(/ {2,}/g, ' ')).toMatch(
    /^authentic, included \(of a required approval\)\n[\s\S]*agent support-1 \(claimed by the caller\)\naction ISSUE_REFUND\n/,
  );
});

it('svc approve reports a wrong file, setting or confirmation before any request', async ({
  cli,
  world,
}) => {
  const proof = await cli.held();
  world.network.seen.length = 0;
  const approve = ['approve', proof, '--key'];
  await cli.run(['approver', 'other', '--key', 'other.pem', '--registration', 'other.json']);
  const cases: [string[], RegExp, Record<string, string>?][] = [
    [[...approve, 'ops.pem'], /confirm with --yes/],
    [[...approve, 'nowhere.pem', '--yes'], /cannot be read/],
    [[...approve, 'other.pem', '--yes'], /not the key of this registration/],
    [[...approve, 'ops.pem', '--registration', 'ops.pem', '--yes'], /is not JSON/],
    [
      [...approve, 'ops.pem', '--yes'],
      /registers an approver of tenant acme, not of rival/,
      { SVC_TENANT_ID: 'rival' },
    ],
    [['approve', 'neither', '--key', 'ops.pem', '--yes'], /proof id/],
  ];
  for (const [args, message, env = {}] of cases) {
    const ran = await cli.run(args, { env });
    expect(ran).toMatchObject({ code: 2, stdout: '' });
    expect(ran.stderr).toMatch(message);
  }
  expect(world.network.seen).toEqual([]);
});

onLinux('svc approve signs only after a confirmation on the terminal', async ({ cli, world }) => {
  const proof = await cli.held();
  const at = (name: string): string => join(cli.folder, name);
  const args = [
    'approve',
    proof,
    '--key',
    at('ops.pem'),
    '--registration',
    at('registration.json'),
  ];
  for (const stdin of ['reject\n', 'y\n', '']) {
    world.network.seen.length = 0;
    const declined = await svcOnTerminal(args, { env: cli.env, stdin });
    expect(declined.code).toBe(3);
    expect(declined.stdout).toMatch(/480\.00[\s\S]*nothing was signed/);
    expect(world.network.seen.map(({ method }) => method)).toEqual(['GET']);
  }
  const confirmed = await svcOnTerminal(args, { env: cli.env, stdin: 'approve\n' });
  expect(confirmed.code).toBe(0);
  expect(confirmed.stdout).toContain('ADMITTED');
});

onLinux(
  'svc approve indents a long text of the agent, which could imitate a row',
  async ({ cli }) => {
    const toolCall = `${'x'.repeat(66)}fact amount   1.00`;
    const shown = await cli.shown(toolCall);
    expect(shown).toMatch(/ {14}\S*fact amount {3}1\.00/);
  },
);

onLinux.for([40, 12])(
  'svc approve indents continuations of labels and wide characters in %i columns',
  async (columns, { cli }) => {
    const shown = await cli.shown('°'.repeat(30), columns);
    const [rows = ''] = shown.split('Type approve');
    const lines = rows
      .replaceAll(/\u001b\[\d+m|\^D\u0008+/g, '')
      .trimEnd()
      .split('\r\n');
    // Some terminals show such a character in two columns.
    const widths = lines.map((line) => line.replaceAll('°', '°°').length);
    expect(Math.max(...widths)).toBe(columns);
    for (const line of lines) {
      expect(line).toMatch(
        /^( |agent|action|tool|fact|environment|request|approve|required|proof)/,
      );
    }
  },
);
