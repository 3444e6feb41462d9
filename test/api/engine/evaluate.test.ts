import { join } from 'node:path';
import { expect } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { packageRoot } from '#runtime/process/files';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Pool } from '#sql/db/transaction';
import { activateSet } from '../../fixtures/approval-world.js';
import { headersFor } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, type Setup } from './setup.js';

const PATH = '/access/v1/evaluation';
const JSON_BODY = { 'Content-Type': 'application/json' };
const { schema } = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
const rule = (effect: string, action: string, condition: string): string =>
  `${effect} (principal, action, resource == Svc::Operation::"${action}") ${condition};`;
const archived = 'context.facts has resource_status && context.facts.resource_status == "archived"';
const admin = 'context.facts has subject_role && context.facts.subject_role == "admin"';
const onRecord = `when { context.facts has resource_id && context.facts.resource_id like "record-*" }`;

/** The policies that AuthZEN's certification scenario requires, and one that requires an approval. */
const policies = {
  read: rule('permit', 'READ', onRecord),
  write: rule(
    'permit',
    'WRITE',
    `when { context has agent && context.agent.id == "alice" && !(${archived}) || ${admin} }`,
  ),
  'bob-does-not-write': rule(
    'forbid',
    'WRITE',
    `when { context has agent && context.agent.id == "bob" } unless { ${admin} }`,
  ),
  'soft-delete': rule(
    'permit',
    'DELETE',
    'when { context.facts has action_soft && context.facts.action_soft }',
  ),
  pay: rule('permit', 'PAY', ''),
  'pay-on-approval': `@requires("approval") ${rule('forbid', 'PAY', '')}`,
};
const facts =
  'resource_type?: String, resource_id?: String, resource_status?: String, subject_role?: String, action_soft?: Bool';

const it = engineTest({ rateLimit: 100_000 });
it.beforeAll(async ({ setup: { registry } }) => {
  await activateSet(registry.admin, {
    schema: schema.replace('facts: {}', `facts: { ${facts} }`),
    policies,
    sentences: { 'bob-does-not-write': 'Bob does not write.' },
  });
});

const [alice, bob] = ['alice', 'bob'].map((id) => ({ type: 'user', id }));
const [record, other] = ['record-1', 'record-2'].map((id) => ({ type: 'record', id }));
const old = { ...other, properties: { status: 'archived' } };
const request = (subject: unknown, action: unknown, resource: unknown, context?: object) => ({
  subject,
  action,
  resource,
  ...(context !== undefined && { context }),
});
const read = { name: 'read' };
const write = { name: 'write' };
const remove = (soft: boolean) => ({ name: 'delete', properties: { soft } });

const evaluate = ({ post }: Setup, body: Record<string, unknown>) => post(PATH, body);

it.for<[boolean, Record<string, unknown>]>([
  [true, request(alice, read, record)],
  [true, request(alice, write, record)],
  [true, request(bob, read, record)],
  [false, request(bob, write, record)],
  [false, request(alice, write, old)],
  [true, request({ ...bob, properties: { role: 'admin' } }, write, old)],
  [true, request(alice, remove(true), record)],
  [false, request(alice, remove(false), record)],
  [false, request(alice, read, { type: 'record', id: 'x', properties: { id: 'record-1' } })],
  [true, request(alice, read, record, { time: '2025-06-27T18:03-07:00', ip: '192.168.1.1' })],
  [
    true,
    {
      ...request(
        { ...alice, properties: { department: 'Sales', level: 1.5, groups: [{ id: null }] } },
        { name: 'read', properties: { method: 'GET' } },
        { ...record, properties: { status: 'active', owner: 'bob' } },
      ),
      foo: 'bar',
      futureField: { nested: true },
    },
  ],
])('AuthZEN evaluation > decides %s for %j', async ([decision, body], { setup }) => {
  const reply = await evaluate(setup, body);
  expect(reply.status).toBe(200);
  expect(reply.headers['content-type']).toBe('application/json');
  const { proof_id } = reply.json['context'] as { proof_id: string };
  const effect = decision ? 'ADMIT' : 'DENY';
  expect(reply.json).toMatchObject({ decision, context: { effect } });
  const { aep } = (await setup.get(`/v1/proofs/${proof_id}`)).json as { aep: object };
  expect(aep).toMatchObject({ decision: { effect } });
});

it('AuthZEN evaluation > accepts the example request of the specification, and commits to its whole body', async ({
  setup,
}) => {
  const body = {
    subject: { type: 'user', id: 'alice@example.com' },
    resource: { type: 'account', id: '123' },
    action: { name: 'can_read', properties: { method: 'GET' } },
    context: { time: '1985-10-26T01:22-07:00' },
  };
  const id = 'bfe9eb29-ab87-4ca3-be83-a1d5d8305716';
  const reply = await setup.engine.call({
    path: PATH,
    headers: { ...JSON_BODY, Authorization: `Bearer ${setup.key}`, 'X-Request-ID': id },
    body: JSON.stringify(body),
  });
  expect([reply.status, reply.headers['x-request-id']]).toEqual([200, id]);
  const { proof_id } = reply.json['context'] as { proof_id: string };
  expect(reply.json).toEqual({
    decision: false,
    context: { proof_id, effect: 'DENY', reasons: [], sentences: {} },
  });
  await setup.publish();
  const shown = await setup.get(
    `/v1/proofs/${proof_id}/export?disclose=arguments_hash,fact.resource_id,fact.resource_type`,
  );
  expect(shown.json).toMatchObject({
    aep: {
      subject: {
        action: 'CAN_READ',
        tool: 'can_read',
        agent: { id: 'alice@example.com', framework: 'authzen', bound: false },
      },
    },
  });
  const disclosed = (shown.json['disclosures'] as [string, string, JsonValue][]).map(
    ([, name, value]) => [name, value],
  );
  expect(Object.fromEntries(disclosed)).toEqual({
    arguments_hash: documentHash(nativeSha256, body),
    'fact.resource_id': '123',
    'fact.resource_type': 'account',
  });
});

it('AuthZEN evaluation > denies while an approval is required, and names the reasons of a denial', async ({
  setup,
}) => {
  const pending = await evaluate(setup, request(alice, { name: 'pay' }, record));
  expect(pending.json).toMatchObject({
    decision: false,
    context: {
      effect: 'REQUIRE_APPROVAL',
      reasons: ['pay-on-approval'],
      expires_at: expect.stringMatching(/Z$/) as string,
    },
  });
  const denied = await evaluate(setup, request(bob, write, record));
  expect(denied.json).toMatchObject({
    decision: false,
    context: {
      reasons: ['bob-does-not-write'],
      sentences: { 'bob-does-not-write': 'Bob does not write.' },
    },
  });
});

const REJECTED: [string, number, string, string[], Record<string, unknown>][] = [
  ['a missing subject', 400, 'missing_field', ['/subject'], { action: read, resource: record }],
  [
    'entities without their members',
    400,
    'missing_field',
    ['/subject/type', '/action/name', '/resource/id'],
    request({ id: 'alice' }, {}, { type: 'record' }),
  ],
  [
    'an action without a letter',
    400,
    'invalid_field',
    ['/action/name'],
    request(alice, { name: '読む' }, record),
  ],
  [
    'a declared property of another type',
    400,
    'invalid_fact',
    ['/resource/properties/status'],
    request(alice, read, { ...record, properties: { status: 1 } }),
  ],
  [
    'a fact that another member states',
    400,
    'invalid_field',
    ['/context/facts/resource_id'],
    request(alice, read, record, { facts: { resource_id: 'record-2' } }),
  ],
  [
    'an undeclared fact',
    400,
    'invalid_fact',
    ['/context/facts/vip'],
    request(alice, read, record, { facts: { vip: true } }),
  ],
];
it.for(REJECTED)(
  'AuthZEN evaluation > rejects %s and stores nothing',
  async ([, status, code, pointers, body], { setup }) => {
    const count = () => setup.db.sql`select count(*)::int as n from svc.intake`;
    const before = await count();
    const reply = await evaluate(setup, body);
    expectProblem(reply, status, code);
    const errors = reply.json['errors'] as { pointer: string }[];
    expect(errors.map(({ pointer }) => pointer)).toEqual(pointers);
    expect(await count()).toEqual(before);
  },
);

it('AuthZEN evaluation > applies the restriction of the key to the subject', async ({ setup }) => {
  const key = await setup.keyFor({ restriction: { agent_id: 'alice' } });
  const send = (subject: unknown) =>
    setup.post(PATH, request(subject, read, record), headersFor(key));
  const { proof_id } = (await send(alice)).json['context'] as { proof_id: string };
  const { aep } = (await setup.get(`/v1/proofs/${proof_id}`)).json as { aep: object };
  expect(aep).toMatchObject({ subject: { agent: { id: 'alice', bound: true } } });
  const rejected = await send(bob);
  expectProblem(rejected, 403, 'key_restricted');
  expect(rejected.json['errors']).toMatchObject([{ pointer: '/subject/id' }]);
});

const REVIEWED = `forbid (principal, action, resource) when { context.facts has context_review && context.facts.context_review };`;

it.for([{}, { 'X-Svc-Idempotency-Key': 'during-activation' }])(
  'AuthZEN evaluation > states the facts of a policy set that is activated during the request (headers %j)',
  async (headers, { setup }) => {
    const { admin, engine: sql } = setup.registry;
    const schemaWith = (more: string) => schema.replace('facts: {}', `facts: { ${facts}${more} }`);
    const before = { schema: schemaWith(''), policies, sentences: {} };
    const after = {
      schema: schemaWith(', context_review?: Bool'),
      policies: { ...policies, reviewed: REVIEWED },
      sentences: {},
    };
    await activateSet(admin, before);
    const activated: Buffer[] = [];
    // Activates the set `after` once the engine has translated the request, before the engine pins a policy set.
    const between = beforeStatement(sql, /svc\.(store_admissions|policy_in_force)\(/, async () => {
      if (activated.length === 0) activated.push(await activateSet(admin, after));
    });
    await setup.withEngine({ sql: between }, async ({ call }) => {
      const body = JSON.stringify(request(alice, read, record, { review: true }));
      const reply = await call({
        path: PATH,
        headers: { ...headersFor(setup.key), ...headers },
        body,
      });
      expect(activated).toHaveLength(1);
      expect(reply.status).toBe(200);
      expect(reply.json).toMatchObject({ decision: false, context: { reasons: ['reviewed'] } });
    });
    await activateSet(admin, before);
  },
);

it('AuthZEN evaluation > is rejected and stores nothing when a policy set is activated during each attempt', async ({
  setup,
}) => {
  const { admin, engine: sql } = setup.registry;
  let sets = 0;
  const always = beforeStatement(sql, /select svc\.store_admissions\(/, async () => {
    sets += 1;
    const more = rule('permit', `OTHER_${sets}`, '');
    await activateSet(admin, {
      schema: schema.replace('facts: {}', `facts: { ${facts} }`),
      policies: { ...policies, more },
      sentences: {},
    });
  });
  const count = () => setup.db.sql`select count(*)::int as n from svc.intake`;
  const before = await count();
  await setup.withEngine({ sql: always }, async ({ call }) => {
    const body = JSON.stringify(request(alice, read, record));
    const reply = await call({ path: PATH, headers: headersFor(setup.key), body });
    expectProblem(reply, 503, 'tenant_busy');
    expect(reply.headers['retry-after']).toBe('1');
  });
  expect(await count()).toEqual(before);
});

/** A pool that runs `first` before each select that matches `statement`, in transactions too. */
function beforeStatement(pool: Pool, statement: RegExp, first: () => Promise<void>): Pool {
  const watch = <T extends object>(target: T): T =>
    new Proxy(target, {
      apply: (called, self, given: [TemplateStringsArray, ...unknown[]]) => {
        const run = (): unknown => Reflect.apply(called as () => unknown, self, given);
        const text = Array.isArray(given[0]) ? given[0].join('') : '';
        return text.trim().startsWith('select') && statement.test(text) ? first().then(run) : run();
      },
      get: (called, name) =>
        name === 'reserve'
          ? async () => watch(await pool.reserve())
          : (Reflect.get(called, name) as unknown),
    });
  return watch(pool);
}

it('AuthZEN evaluation > returns an error while the admission is pending', async ({ setup }) => {
  setup.engine.worker.isPaused = true;
  await setup.withEngine({ waitMs: 50 }, async ({ call, worker }) => {
    worker.isPaused = true;
    const body = JSON.stringify(request(alice, read, record));
    const reply = await call({ path: PATH, headers: headersFor(setup.key), body });
    expectProblem(reply, 503, 'decision_pending');
    expect(reply.json).not.toHaveProperty('decision');
    expect(reply.headers['location']).toMatch(/^\/v1\/admissions\/[0-9a-f]{32}$/);
  });
});

it('AuthZEN evaluation > is rejected when an earlier evaluation had the same idempotency key and body', async ({
  setup,
}) => {
  const headers = { 'X-Svc-Idempotency-Key': 'once' };
  const body = request(alice, read, record);
  expect((await setup.post(PATH, body, headers)).status).toBe(200);
  const again = await setup.post(PATH, body, headers);
  expectProblem(again, 422, 'idempotency_conflict');
  expect(again.json['detail']).toContain('in an AuthZEN evaluation');
});

it('bearer token > authenticates evaluations only, and identifies the tenant', async ({
  setup,
}) => {
  const body = JSON.stringify(request(alice, read, record));
  const send = (headers: Record<string, string>, path = PATH) =>
    setup.engine.call({ path, headers: { ...JSON_BODY, ...headers }, body });
  const Authorization = `Bearer ${setup.key}`;
  expect((await send({ Authorization })).status).toBe(200);
  const unauthenticated = await send({});
  expectProblem(unauthenticated, 401, 'unauthenticated');
  expect(unauthenticated.json['detail']).toContain('bearer token');
  expect(unauthenticated.headers['www-authenticate']).toMatch(/^Bearer .*, ApiKey /);
  expectProblem(await send({ Authorization: `Basic ${setup.key}` }), 401, 'unauthenticated');
  expectProblem(await send({ Authorization: 'Bearer svc_sk_x' }), 401, 'unauthenticated');
  const both = { Authorization, 'X-Svc-Api-Key': setup.key };
  expectProblem(await send(both), 400, 'duplicate_header');
  const other = { Authorization, 'X-Svc-Tenant-Id': 'other' };
  expectProblem(await send(other), 403, 'tenant_mismatch');
  const elsewhere = await send({ Authorization }, '/v1/agent/admissions');
  expectProblem(elsewhere, 401, 'unauthenticated');
  expect(elsewhere.headers['www-authenticate']).toMatch(/^ApiKey /);
});
