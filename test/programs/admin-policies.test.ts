import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { policyCache } from '#policy/check';
import { combine } from '#policy/overlays';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { shippedPolicy } from '#programs/shipped-policy';
import { packageRoot } from '#runtime/process/files';
import { acceptIntake } from '#sql/admissions/intake';
import { activatePolicy, policyActivations, storePolicySet } from '#sql/admissions/policies';
import { adminWith, done } from '../fixtures/admin.js';
import { holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { folderWith, SHIPPED } from '../fixtures/policy-folder.js';
import { storeForeignSet } from '../fixtures/policy-set.js';
import { testFolder } from '../fixtures/test-folder.js';
import { testRegistry } from './world.js';

const CASES = join(packageRoot, 'examples', 'policy-cases.json');
const NO_DATABASE = adminWith({});

const { db, registry, admin, person } = await testRegistry();
const base = await testFolder();

let another = 0;

/** Stores a policy set that differs from the shipped set. */
async function putAnother(): Promise<string> {
  const text = `permit (principal, action, resource) when { context.lane == "execute" }; // ${String((another += 1))}`;
  return String(
    (await done(admin('policy', 'put', folderWith({ 'another.cedar': text }))))['digest'],
  );
}

/** Cases that cover the rules of {@link putAnother}. */
const OTHER_CASES = join(base, 'other-cases.ndjson');
const sandbox = { tenant: 'acme', environment: 'sandbox', lane: 'execute' };
writeFileSync(
  OTHER_CASES,
  [
    { name: 'a booking', input: { ...sandbox, action: 'BOOK_RESERVATION' }, expect: 'ADMIT' },
    { name: 'a deletion', input: { ...sandbox, action: 'DELETE_AUDIT_LOG' }, expect: 'DENY' },
  ]
    .map((one) => JSON.stringify(one))
    .join('\n'),
);

const schema = readFileSync(join(SHIPPED, 'schema.cedarschema'), 'utf8');

it('admin policy show > prints no control characters of a text that a tenant may have written', async () => {
  const folder = folderWith({
    'another.cedar': 'permit (principal, action, resource); // \u001b[2J\u009b0m',
  });
  const { digest } = await done(admin('policy', 'put', folder));
  const { out } = await person('policy', 'show', String(digest));
  expect(out).toContain('// \ufffd[2J\ufffd0m\n');
});

describe('admin policy validate', () => {
  it('reports every problem at once, with file and line', async () => {
    const folder = folderWith({
      'unparsed.cedar': '// é\npermit (principal,\n action, resource) whenn {};',
      'two.cedar': 'permit (principal, action, resource);\nforbid (principal, action, resource);',
      'untyped.cedar':
        '// 日本語\npermit (principal, action, resource)\nwhen { context.lane == 3 &&\n  context.nothing == "x" };',
    });
    const { code, json } = await NO_DATABASE('policy', 'validate', folder);
    expect(code).toBe(1);
    const { problems } = json as { problems: { file: string; line: number; message: string }[] };
    const places = problems.map(({ file, line }) => `${file}:${line}`);
    expect(places).toEqual([
      'two.cedar:2',
      'unparsed.cedar:3',
      'untyped.cedar:3',
      'untyped.cedar:4',
    ]);
    expect(problems.at(-1)?.message).toContain('nothing');
    const { out } = await adminWith({}, true)('policy', 'validate', folder);
    expect(out).toMatch(/^untyped\.cedar:4:3: error: .*nothing/m);
    expect(out).toMatch(/\nnot valid\n$/);
  });

  it('names the file that a folder lacks', async () => {
    const { code, err } = await NO_DATABASE('policy', 'validate', join(packageRoot, 'examples'));
    expect(code).toBe(1);
    expect(err).toMatch(/schema\.cedarschema cannot be read: no such file or directory/);
  });

  it('reports only the schema when its facts cannot be read', async () => {
    const folder = folderWith({
      'schema.cedarschema': schema.replace('facts: {}', 'facts: { amount?: }'),
      'limit.cedar':
        'forbid (principal, action, resource)\nwhen { context.facts has amount && context.facts.amount > 3 };',
    });
    const { code, json } = await NO_DATABASE('policy', 'validate', folder);
    expect(code).toBe(1);
    const { problems } = json as { problems: { file: string }[] };
    expect(problems.map(({ file }) => file)).toEqual(['schema.cedarschema']);
  });

  it.each([
    ['context.arguments is declared', 'tool?: String,', 'tool?: String, arguments?: Refund,'],
    ['context.tool is not declared', 'tool?: String,', ''],
    ['context.fixture is declared as Record', 'fixture?: Fixture', 'fixture: Fixture'],
    ['Svc::Group is declared', 'entity Operation;', 'entity Operation; entity Group;'],
    ['Svc::Tenant is declared as', 'entity Tenant =', 'entity Tenant in [Tenant] ='],
    ['Svc::Action::"refund" is declared', 'action admit', 'action admit, refund'],
  ])('rejects a schema when %s', async (expected, from, to) => {
    const changed = schema
      .replace(from, to)
      .replace('  type Agent', '  type Refund = { amount: Long };\n  type Agent');
    const { code, json } = await NO_DATABASE(
      'policy',
      'validate',
      folderWith({ 'schema.cedarschema': changed }),
    );
    expect(code).toBe(1);
    const { problems } = json as { problems: { file: string; message: string }[] };
    expect(problems.every(({ file }) => file === 'schema.cedarschema')).toBe(true);
    expect(problems.map(({ message }) => message).join('\n')).toContain(expected);
  });
});

describe('admin policy test', () => {
  it('passes the shipped test cases with the shipped policy set, given by folder and by digest', async () => {
    const byFolder = await done(NO_DATABASE('policy', 'test', SHIPPED, CASES));
    const covered = { 'audit-log-is-kept': 2, 'sandbox-tenants-may-act': 3 };
    expect(byFolder).toMatchObject({ cases: 6, failures: 0, covered });
    const byDigest = await done(admin('policy', 'test', String(byFolder['digest']), CASES));
    expect(byDigest).toEqual(byFolder);
  });

  it.each(['forbid', 'permit'])(
    'denies actions to which a %s rule of --overlay applies',
    async (effect) => {
      const overlay = mkdtempSync(join(base, 'overlay-'));
      writeFileSync(join(overlay, 'rule.cedar'), `${effect} (principal, action, resource);`);
      const tested = await NO_DATABASE('policy', 'test', SHIPPED, CASES, '--overlay', overlay);
      expect(tested).toMatchObject({ code: 1, json: { covered: { 'overlay.rule': 6 } } });
    },
  );

  it('fails when a decision or its reason differs', async () => {
    const folder = folderWith({
      'audit-log-is-kept.cedar':
        'forbid (principal, action, resource) when { context.lane == "none" };',
    });
    const { code, json } = await NO_DATABASE('policy', 'test', folder, CASES);
    expect(code).toBe(1);
    expect(json).toMatchObject({ failures: 2 });
    const renamed = folderWith({});
    cpSync(join(renamed, 'audit-log-is-kept.cedar'), join(renamed, 'other-name.cedar'));
    rmSync(join(renamed, 'audit-log-is-kept.cedar'));
    const { out } = await adminWith({}, true)('policy', 'test', renamed, CASES);
    expect(out).toMatch(
      /FAIL +a deletion of an audit log is denied +DENY \[audit-log-is-kept\] +DENY \[other-name\]/,
    );
    expect(out).toContain('6 cases, 2 failed');
  });
});

describe('admin policy activate', () => {
  it('requires that the cases pass and cover every rule', async () => {
    const digest = await putAnother();
    const lines = readFileSync(OTHER_CASES, 'utf8').split('\n');
    const file = join(base, 'too-few.ndjson');
    for (const [text, expected] of [
      [lines[0]!, 'no case covers audit-log-is-kept.cedar'],
      [lines.join('\n').replace('"DENY"', '"ADMIT"'), 'the case "a deletion" fails'],
    ] as const) {
      writeFileSync(file, text);
      const { code, err } = await admin('policy', 'activate', digest, '--cases', file);
      expect(code).toBe(1);
      expect(err).toContain(expected);
    }
  });

  it('rejects a policy set that this version cannot run or that does not match its schema', async () => {
    const files = await readPolicyFolder(SHIPPED);
    const foreign = await storeForeignSet(db, files);
    const unfit = await storeForeignSet(db, {
      ...files,
      policies: { p: 'permit (principal, action, resource) when { context.nothing };' },
    });
    for (const digest of [foreign, unfit]) {
      const line = ['policy', 'activate', digest.toString('hex'), '--cases', CASES];
      const { code, err } = await admin(...line);
      expect(code).toBe(1);
      expect(err).toContain('cannot be activated');
    }
  });

  it('takes effect at its time: earlier admissions use the old policy set, later ones the new', async () => {
    const before = (await policyActivations(registry.admin)).find(
      ({ state }) => state === 'in force',
    )!;
    const digest = await putAnother();
    const from = new Date(Date.now() + 3_000);
    await done(
      admin('policy', 'activate', digest, '--cases', OTHER_CASES, '--from', from.toISOString()),
    );
    expect(await done(admin('policy', 'list'))).toContainEqual(
      expect.objectContaining({ digest, state: 'scheduled', active_from: [from.toISOString()] }),
    );
    const ids: string[] = [];
    while (Date.now() < from.getTime() + 300) {
      ids.push(...(await registry.admitAll([registry.item(), registry.item()])));
      await sleep(5);
    }
    const rows = await db.sql<{ at: Date; policy: Buffer }[]>`
      select accepted_at as at, policy_digest as policy from svc.intake
      where proof_id = any(${ids}::uuid[])`;
    for (const { at, policy } of rows) {
      const expected = at >= from ? digest : before.digest.toString('hex');
      expect(policy.toString('hex'), at.toISOString()).toBe(expected);
    }
    expect(new Set(rows.map(({ policy }) => policy.toString('hex'))).size).toBe(2);
    expect(await done(admin('policy', 'list'))).toContainEqual(
      expect.objectContaining({ digest: before.digest.toString('hex'), state: 'over' }),
    );
  });

  it('applies to an admission whose transaction began earlier but waited for a lock', async () => {
    const digest = await putAnother();
    const release = await holdLock(
      db.sql,
      `insert into svc.idempotency_key (tenant_no, lane, key, request_hash)
        values (${String(registry.tenantNo)}, 1, 'contended', sha256(''))`,
    );
    const item = { ...registry.item(), idempotencyKey: 'contended' };
    const accepted = acceptIntake(registry.engine, [item]);
    await untilWaiting(db.sql);
    await activatePolicy(registry.admin, Buffer.from(digest, 'hex'));
    await release();
    await accepted;
    const [row] = await db.sql<{ policy: Buffer }[]>`
      select policy_digest as policy from svc.intake where proof_id = ${item.proofId}::uuid`;
    expect(row!.policy.toString('hex')).toBe(digest);
  });
});

describe('policy that refers to an unknown attribute', () => {
  const rule = `forbid (principal, action, resource)
    when { context has arguments && context.arguments.amount > 500 };`;
  const foreign = schema.replace('tool?: String,', 'tool?: String, arguments?: { amount: Long },');

  it('is rejected by validate, put, activate and the worker, and each names the attribute', async () => {
    const folder = folderWith({ 'schema.cedarschema': foreign, 'refunds.cedar': rule });
    // Stores the set without validation, as an earlier version would have.
    const stored = await makePolicySet(await readPolicyFolder(folder));
    await storePolicySet(registry.admin, stored);
    const attempts = [
      await NO_DATABASE('policy', 'validate', folder),
      await admin('policy', 'put', folder),
      await admin('policy', 'activate', stored.digest.toString('hex'), '--cases', CASES),
    ];
    for (const { code, out, err } of attempts) {
      expect(code).toBe(1);
      expect(out + err).toMatch(/no input contains context\.arguments: context has agent, /);
    }
    await expect(policyCache(registry.admit.sql)(stored.digest)).rejects.toThrow(
      'refunds.cedar: no input contains context.arguments',
    );
  });
});

it('a rule that can never apply > is rejected by validate, put and activate; workers run a stored set that contains such a rule', async () => {
  const never = 'forbid (principal, action, resource) when { 1 == 2 };';
  const folder = folderWith({ 'never.cedar': never });
  const stored = await makePolicySet(await readPolicyFolder(folder));
  await storePolicySet(registry.admin, stored);
  for (const { code, out, err } of [
    await NO_DATABASE('policy', 'validate', folder),
    await admin('policy', 'put', folder),
    await admin('policy', 'activate', stored.digest.toString('hex'), '--cases', CASES),
  ]) {
    expect(code).toBe(1);
    expect(out + err).toContain('for policy `never`, policy is impossible');
  }
  await policyCache(registry.admit.sql)(stored.digest);
  expect((await combine(await shippedPolicy(), { never })).unfit).toEqual([]);
});

it('admin policy show and admin policy diff > print the texts of a policy set and its differences from another set', async () => {
  const changed = folderWith({
    'audit-log-is-kept.cedar': readFileSync(
      join(SHIPPED, 'audit-log-is-kept.cedar'),
      'utf8',
    ).replaceAll('DELETE_AUDIT_LOG', 'PURGE_AUDIT_LOG'),
    'added.cedar': 'permit (principal, action, resource);',
  });
  rmSync(join(changed, 'sandbox-tenants-may-act.cedar'));
  const digest = String((await done(admin('policy', 'put', changed)))['digest']);
  expect(await done(admin('policy', 'show', digest))).toMatchObject({
    policies: { added: 'permit (principal, action, resource);' },
    manifest: { engine: 'cedar' },
  });
  const difference = await done(admin('policy', 'diff', SHIPPED, digest));
  expect(difference).toMatchObject({
    added: ['added.cedar'],
    removed: ['sandbox-tenants-may-act.cedar'],
    changed: [{ file: 'audit-log-is-kept.cedar' }],
  });
  const { out } = await person('policy', 'diff', SHIPPED, digest);
  expect(out).toMatch(
    /^- {3}resource == .*DELETE_AUDIT_LOG(?:.*\n-)*.*\n\+ {3}resource == .*PURGE_AUDIT_LOG/m,
  );
  expect(out).toMatch(/^ {2}forbid \($/m);
});
