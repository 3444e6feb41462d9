import { expect, vi } from 'vitest';
import { TENANT_CONNECTIONS } from '#api/engine/context';
import type { Call } from '#api/engine/operation';
import { MOST_SIMULATED, simulated } from '#api/engine/policy/overlay-evaluation';
import { makePolicySet } from '#policy/policy-set';
import { replayPolicies } from '#policy/replay';
import { shippedPolicy } from '#programs/shipped-policy';
import { BusyError, Limiter } from '#runtime/concurrency';
import { acceptIntake } from '#sql/admissions/intake';
import { activateOverlay, policiesInUse, storeOverlay } from '#sql/admissions/overlays';
import { processAdmissions } from '#workers/admit/process';
import { headersFor } from '../../fixtures/engine.js';
import {
  activationBody,
  NO_DELETIONS,
  overlayBody,
  overlayCase,
  overlayTestBody,
} from '../../fixtures/overlays.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { admit, type Headers, overlayTest, stored } from './overlay-setup.js';
import { keyIdOf } from './setup.js';

const it = overlayTest();
const shipped = await shippedPolicy();

const FORBID = 'forbid (principal, action, resource)';

it.for([
  ['a permit', 'permit (principal, action, resource);', /can only forbid/],
  ['a sentence with U+0000', '@sentence("a\\0b") forbid (principal, action, resource);', /U\+0000/],
  ['a required approval', `@requires("approval") ${FORBID};`, /annotation @requires/],
  ['a syntax error', `${FORBID}\nwhen { context.lane = "agent" };`, /^line 2, column \d+: /],
  ['an unknown attribute', `${FORBID} when { context.nothing };`, /nothing/],
  ['a rule that can never apply', `${FORBID} when { 1 == 2 };`, /impossible/],
  ['two policies', `${FORBID}; permit (principal, action, resource);`, /unexpected token/],
  ['a template', 'forbid (principal == ?principal, action, resource);', /template/],
  [
    '`has` on an expression instead of an attribute',
    `${FORBID} when { (if true then context else context) has tool };`,
    /use `has` only for attributes/,
  ],
  ['deep nesting', `${FORBID} when { ${'('.repeat(300)}true${')'.repeat(300)} };`, /at most/],
  ['a slow pattern', `${FORBID} when { context.lane like "${'*a'.repeat(500)}" };`, /at most/],
] as const)('POST /v1/overlays > rejects %s', async ([, text, expected], { setup }) => {
  const reply = await setup.post(
    '/v1/overlays',
    overlayBody({ 'no-deletions': NO_DELETIONS, bad: text }),
  );
  expectProblem(reply, 422, 'invalid_overlay');
  const errors = reply.json['errors'] as { pointer: string; detail: string }[];
  expect(errors.map(({ pointer }) => pointer)).toEqual(errors.map(() => '/rules/bad'));
  expect(errors[0]!.detail).toMatch(expected);
});

it('an overlay is tested only with cases of its tenant, and activated only with passing cases for each rule', async ({
  setup,
}) => {
  const id = await stored(setup);
  const activate = (cases: unknown[]) =>
    setup.post(`/v1/overlays/${id}/activate`, activationBody(cases));
  const foreign = await setup.post(
    `/v1/overlays/${id}/test`,
    overlayTestBody({ cases: [overlayCase('DELETE_RECORD', 'neighbour')] }),
  );
  expectProblem(foreign, 400, 'invalid_field');
  expectProblem(await activate([overlayCase('OTHER')]), 422, 'overlay_untested');
  const idle = { ...overlayCase('OTHER'), expect: 'ADMIT' };
  const reply = await activate([idle]);
  expectProblem(reply, 422, 'overlay_untested');
  expect(reply.json['detail']).toContain('overlay.no-deletions.cedar');
  expect((await admit(setup)).status).toBe(200);
});

it('the engine role cannot activate an overlay that is not combined with each policy set in use, and a worker rejects an overlay with a `permit` rule', async ({
  setup,
}) => {
  const { registry, db } = setup;
  const policies = { 'overlay.x': 'permit (principal, action, resource);' };
  const sets = (await policiesInUse(registry.engine)).map(async ({ digest, files }) => {
    const combined = { ...files, policies: { ...policies, ...files.policies } };
    const { digest: own, manifest } = await makePolicySet(combined);
    return { base: digest, digest: own, manifest, policies, sentences: {}, unfit: [] };
  });
  const [key] = await db.sql<[{ no: number }]>`
    select key_no as no from svc.api_key where key_id = ${keyIdOf(setup.key)}`;
  const overlay = { digest: Buffer.alloc(32), document: '{}' };
  const whose = [registry.engine, registry.tenantNo, key.no] as const;
  expect(await storeOverlay(...whose, overlay, 100)).toBe(true);
  expect(await activateOverlay(...whose, overlay.digest, [])).toBe(false);
  expect(await activateOverlay(...whose, overlay.digest, await Promise.all(sets))).toBe(true);
  const item = registry.item({ action: 'DELETE_AUDIT_LOG' });
  await acceptIntake(registry.engine, [item]);
  const processed = processAdmissions(registry.admit, [item.proofId]);
  await expect(processed).rejects.toThrow(/can only forbid/);
  await setup.byHand((tx) => tx`delete from svc.intake_pending`);
});

it('an engine limits the evaluations of a tenant, and still serves another tenant', async ({
  setup,
}) => {
  const own = await setup.tenant('bystander');
  const [id, theirs] = [await stored(setup), await stored(setup, undefined, own)];
  const test = (overlay: string, tenant: string, headers: Headers = {}) =>
    setup.post(
      `/v1/overlays/${overlay}/test`,
      overlayTestBody({ cases: [overlayCase(undefined, tenant)] }),
      headers,
    );
  const many = Promise.all(Array.from({ length: 24 }, () => test(id, TENANT)));
  expect((await test(theirs, 'bystander', own)).status).toBe(200);
  const replies = await many;
  const busy = replies.filter(({ status }) => status !== 200);
  expect(busy.length).toBeGreaterThan(0);
  for (const reply of busy) expectProblem(reply, 503, 'tenant_busy');
  expect(busy.length).toBeLessThan(replies.length);
});

it('the test of an overlay completes although the tenant admits faster than the engine evaluates', async ({
  setup: { registry },
}) => {
  const admitSome = (count: number) =>
    registry.admitAll(Array.from({ length: count }, () => registry.item()));
  for (let n = 0; n < MOST_SIMULATED; n += 250) await admitSome(250);
  let reads = 0;
  const inTenant: Call['inTenant'] = async (work, ...args) => {
    reads += 1;
    if (reads <= 20) await admitSome(100);
    return work(registry.engine, registry.tenantNo, ...args);
  };
  const policy = await replayPolicies()(shipped);
  const { admissions } = await simulated({ inTenant }, policy, '2020-01-01T00:00:00.000Z');
  expect(admissions).toBe(MOST_SIMULATED);
});

it('a change of overlays > needs no additional connection to read the overlay', async ({
  setup,
}) => {
  /** How many more times the tenant gets a connection; each further wait fails. */
  let turns = 0;
  type Run = (this: Limiter, ...args: Parameters<Limiter['run']>) => Promise<unknown>;
  const run = Limiter.prototype.run as Run;
  const fewTurns: Run = function (...args) {
    if (this['limits'] === TENANT_CONNECTIONS && --turns < 0) throw new BusyError('no turn', true);
    return run.apply(this, args);
  };
  const spy = vi.spyOn(Limiter.prototype, 'run').mockImplementation(fewTurns);
  await setup
    .withEngine({}, async (engine) => {
      const change = (count: number, path: string, body?: object) => {
        turns = count;
        const headers = headersFor(setup.key);
        return engine.call({ path, headers, ...(body && { body: JSON.stringify(body) }) });
      };
      const made = await change(1, '/v1/overlays', overlayBody());
      expect(made.status).toBe(201);
      const path = `/v1/overlays/${String(made.json['overlay_id'])}`;
      const active = await change(2, `${path}/activate`, activationBody());
      expect(active).toMatchObject({ status: 200, json: { active: true } });
      const inactive = await change(2, `${path}/deactivate`);
      expect(inactive).toMatchObject({ status: 200, json: { active: false } });
    })
    .finally(() => spy.mockRestore());
});

it('cases of an overlay > get one error if the body has more than 10,000 members', async ({
  setup,
}) => {
  const reasons = Array.from({ length: 1_000 }, () => 0);
  const cases = Array.from({ length: 10 }, () => ({ ...overlayCase(), reasons }));
  const path = `/v1/overlays/${'0'.repeat(64)}/test`;
  const reply = await setup.post(path, overlayTestBody({ cases }));
  expectProblem(reply, 400, 'invalid_field');
  expect(reply.json['errors']).toEqual([
    { pointer: '', detail: 'expected at most 10000 members and items in all' },
  ]);
});

it('GET /v1/overlays > ends a page at 1 MiB, and the next page has the other overlays', async ({
  setup,
}) => {
  await setup.db.sql`
    insert into svc.overlay (tenant_no, digest, document, key_no)
    select ${setup.registry.tenantNo}, sha256(int4send(n)), json_build_object('long', repeat('x', 60000)), 1
    from generate_series(1, 40) as n`;
  const read = async (query: string) => {
    const page = await setup.get(`/v1/overlays?limit=200${query}`);
    const overlays = page.json['overlays'] as { overlay_id: string; rules: object }[];
    const long = overlays.filter(({ rules }) => 'long' in rules);
    return { page, ids: long.map(({ overlay_id }) => overlay_id) };
  };
  const first = await read('');
  expect(first.page.bytes.length).toBeLessThan(1.1 * 1024 * 1024);
  const second = await read(`&cursor=${String(first.page.json['next_cursor'])}`);
  const third = await read(`&cursor=${String(second.page.json['next_cursor'])}`);
  expect(new Set([first, second, third].flatMap(({ ids }) => ids)).size).toBe(40);
});
