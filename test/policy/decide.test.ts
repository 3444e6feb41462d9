import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { toHex } from '#protocol/bytes';
import { nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { storePolicySet, type PolicyFiles } from '#sql/admissions/policies';
import { policyCache } from '#policy/check';
import { preparePolicyEngine, type PolicyDecision } from '#policy/decide';
import type { PolicyInput } from '#protocol/policy-input';
import { CEDAR_VERSION, makePolicySet, PolicySetError, readPolicyFolder } from '#policy/policy-set';
import { replayPolicies } from '#policy/replay';
import { freshDatabase } from '../fixtures/database.js';
import { policyInput as input } from '../fixtures/policy-input.js';

/** The greatest Long: adding 1 is an error in Cedar. */
const MAX = '9223372036854775807';

const PERMIT = 'permit (principal, action, resource);';

const folder = join(packageRoot, 'policy', 'default');
const files = await readPolicyFolder(folder);
const { schema } = files;

const setOf = (policies: Record<string, string>) =>
  makePolicySet({ schema, policies, sentences: {} });
const engineOf = async (policies: Record<string, string>) =>
  preparePolicyEngine(await setOf(policies));

const shipped = await preparePolicyEngine(await makePolicySet(files));

describe('default policy set', () => {
  it('forbids a tool named DELETE_AUDIT_LOG, but not actions with similar names', () => {
    const agent = { id: 'a', framework: null, bound: false };
    expect(shipped.decide(input({ lane: 'agent', agent, tool: 'DELETE_AUDIT_LOG' }))).toEqual({
      effect: 'DENY',
      reasons: ['audit-log-is-kept'],
    });
    for (const action of ['DELETE-AUDIT-LOG', '_DELETE_AUDIT_LOG']) {
      expect(shipped.decide(input({ action })).effect).toBe('ADMIT');
    }
  });

  it('denies an action in the live environment', () => {
    const live = input({
      environment: 'live',
      tenant: { tenant_id: 'acme', environment: 'live' },
    });
    expect(shipped.decide(live)).toEqual({ effect: 'DENY', reasons: [] });
  });

  it('has a digest that covers the schema and the policies', async () => {
    const digest = (await makePolicySet(files)).digest;
    const [, ...fewer] = Object.entries(files.policies);
    const changed: PolicyFiles[] = [
      { ...files, schema: files.schema + '// x' },
      { ...files, policies: Object.fromEntries(fewer) },
      { ...files, policies: { ...files.policies, more: PERMIT } },
    ];
    for (const other of changed) {
      expect((await makePolicySet(other)).digest.equals(digest)).toBe(false);
    }
    expect((await makePolicySet(await readPolicyFolder(folder))).digest.equals(digest)).toBe(true);
  });

  it("has a digest that covers the policy engine's version and WebAssembly code", async () => {
    const { digest, manifest } = await makePolicySet(files);
    const wasm = await readFile(
      join(packageRoot, 'node_modules/@cedar-policy/cedar-wasm/nodejs/cedar_wasm_bg.wasm'),
    );
    expect(JSON.parse(manifest)).toMatchObject({
      engine: 'cedar',
      engine_version: CEDAR_VERSION,
      engine_sha256: toHex(nativeSha256(wasm)),
    });
    expect(nativeSha256(Buffer.from(manifest))).toEqual(digest);
  });
});

describe('policy condition', () => {
  const hash = 'a'.repeat(64);
  const agent = (id: string, framework: string | null = null) => ({
    agent: { id, framework, bound: false },
  });
  const tenant = (tenant_id: string, environment: 'sandbox' | 'live') => ({
    tenant: { tenant_id, environment },
  });
  const fixture = (other: string | null) => ({ fixture: { ref: 'f', hash: other } });

  it.each<[condition: string, yes: Partial<PolicyInput>, no: Partial<PolicyInput>]>([
    ['principal == Svc::Tenant::"acme"', {}, tenant('other', 'sandbox')],
    ['principal.environment == "sandbox"', {}, tenant('acme', 'live')],
    ['context.environment == "sandbox"', {}, { environment: 'live' }],
    ['context.lane == "execute"', {}, { lane: 'agent' }],
    ['resource == Svc::Operation::"BOOK_RESERVATION"', {}, { action: 'OTHER' }],
    ['context has agent && context.agent.id == "a"', agent('a'), agent('b')],
    ['context has agent && context.agent has framework', agent('a', 'f'), agent('a')],
    [
      'context has agent && context.agent.bound',
      { agent: { id: 'a', framework: null, bound: true } },
      agent('a'),
    ],
    ['context has tool && context.tool == "t"', { tool: 't' }, { tool: 'u' }],
    ['context has fixture && context.fixture.ref == "f"', fixture(hash), { fixture: null }],
    ['context has fixture && context.fixture.resolved', fixture(hash), fixture(null)],
    [
      `context has fixture && context.fixture has hash && context.fixture.hash == "${hash}"`,
      fixture(hash),
      fixture('b'.repeat(64)),
    ],
  ])('can use %s', async (condition, yes, no) => {
    const p = `permit (principal, action, resource) when { ${condition} };`;
    const engine = await engineOf({ p });
    // One engine evaluates both inputs: the cached decision on one input must not apply to the other input.
    expect(engine.decide(input(yes)).effect).toBe('ADMIT');
    expect(engine.decide(input(no)).effect).toBe('DENY');
  });
});

describe('two policy sets in one process', () => {
  it('decide by their own policies and schemas', async () => {
    const permits = await engineOf({ one: PERMIT });
    const narrow = schema.replace('tool?: String,', '');
    expect(narrow).not.toBe(schema);
    const forbids = await preparePolicyEngine(
      await makePolicySet({
        schema: narrow,
        policies: { one: PERMIT, two: 'forbid (principal, action, resource);' },
        sentences: {},
      }),
    );
    expect(forbids.decide(input())).toEqual({ effect: 'DENY', reasons: ['two'] });
    expect(permits.decide(input({ tool: 'known-to-its-schema' })).effect).toBe('ADMIT');
  });

  it('are loaded by digest, even after a failed lookup of the same digest', async () => {
    const db = await freshDatabase();
    try {
      const cache = policyCache(db.as('svc_worker'));
      const sets = await Promise.all([{ one: PERMIT }, {}].map(setOf));
      for (const set of sets) {
        await expect(cache(set.digest)).rejects.toThrow(PolicySetError);
        await storePolicySet(db.as('svc_admin'), set);
      }
      const effects: string[] = [];
      for (const set of sets) effects.push((await cache(set.digest)).decide(input()).effect);
      expect(effects).toEqual(['ADMIT', 'DENY']);
    } finally {
      await db.drop();
    }
  });
});

describe('policy engine', () => {
  it.each(['forbid', 'permit'])('denies when a %s errs and a permit applies', async (effect) => {
    const engine = await engineOf({
      allow: PERMIT,
      errs: `${effect} (principal, action, resource) when { ${MAX} + 1 == 0 };`,
    });
    expect(engine.decide(input())).toEqual({ effect: 'DENY', reasons: ['errs'] });
  });

  it('denies input that does not match the schema', async () => {
    const engine = await engineOf({ allow: PERMIT });
    expect(engine.decide(input()).effect).toBe('ADMIT');
    const odd = input({ agent: { id: 7 as unknown as string, framework: null, bound: false } });
    expect(engine.decide(odd)).toEqual({ effect: 'DENY', reasons: [] });
  });

  it('denies input that crashes Cedar', async () => {
    const engine = await engineOf({ allow: PERMIT });
    let deep: unknown = 'x';
    for (let depth = 0; depth < 1000; depth += 1) deep = { deep };
    expect(engine.decide(input({ tool: deep as string }))).toEqual({ effect: 'DENY', reasons: [] });
  });

  it.each([
    ['ADMIT', (n: number) => `permit (principal, action, resource); // ${n}`],
    ['DENY', (n: number) => `forbid (principal, action, resource) when { ${MAX} + 1 == ${n} };`],
  ])('sorts the reasons of %s, whose order Cedar does not fix', async (effect, textOf) => {
    const ids = ['zeta', 'alpha', 'mid', 'Beta', 'a-1', 'a-0'];
    for (let n = 0; n < 20; n += 1) {
      const engine = await engineOf(Object.fromEntries(ids.map((id) => [id, textOf(n)])));
      expect(engine.decide(input())).toEqual({ effect, reasons: [...ids].sort() });
    }
  });

  it('rejects a policy that does not parse or does not match its schema', async () => {
    const unknown = 'permit (principal, action, resource) when { context.nothing };';
    for (const p of ['permit (principal', unknown]) {
      await expect(setOf({ p })).rejects.toThrow(PolicySetError);
    }
  });

  it('rejects a stored policy set whose texts do not match its digest', async () => {
    const set = await makePolicySet(await readPolicyFolder(folder));
    set.files.policies['audit-log-is-kept'] = PERMIT;
    await expect(preparePolicyEngine(set)).rejects.toThrow(PolicySetError);
  });

  describe('policySelfTest', () => {
    afterEach(() => {
      vi.doUnmock('#policy/decide');
      vi.resetModules();
    });

    const admits: PolicyDecision = { effect: 'ADMIT', reasons: [] };
    it.each<[string, (asked: PolicyInput, right: PolicyDecision) => PolicyDecision]>([
      ['admits a forbidden action', (a, right) => (a.action === 'FORBIDDEN' ? admits : right)],
      ['admits when a forbid errs', (a, right) => (a.action === 'ERRS' ? admits : right)],
      ['admits input outside the schema', (a, right) => (a.tool === null ? right : admits)],
      ['denies everything', () => ({ effect: 'DENY', reasons: [] })],
    ])('rejects an engine that %s', async (_, flawed) => {
      vi.resetModules();
      vi.doMock('#policy/decide', () => ({
        preparePolicyEngine: async (...set: Parameters<typeof preparePolicyEngine>) => {
          const sound = await preparePolicyEngine(...set);
          return { ...sound, decide: (asked: PolicyInput) => flawed(asked, sound.decide(asked)) };
        },
      }));
      const { policySelfTest: selfTest } = await import('#policy/self-test');
      await expect(selfTest()).rejects.toThrow(/was decided/);
    });
  });
});

describe('replayPolicies', () => {
  it('evaluates each policy set by its own rules when there are more sets than the cache holds', async () => {
    const open = replayPolicies(2);
    const ids = ['a', 'b', 'c', 'd'];
    const policies = await Promise.all(ids.map(async (id) => open(await setOf({ [id]: PERMIT }))));
    for (let round = 0; round < 3; round += 1) {
      for (const [i, policy] of policies.entries()) {
        expect(policy.decide(input())).toEqual({ effect: 'ADMIT', reasons: [ids[i]] });
      }
      policies.reverse();
      ids.reverse();
    }
  });

  it('denies when a policy does not parse, does not match its schema, or fails to evaluate', async () => {
    const open = replayPolicies();
    const stored = await setOf({ all: PERMIT });
    const broken = [
      'permit (principal',
      'permit (principal, action, resource) when { context.x };',
    ];
    for (const text of broken) {
      const policy = await open({
        ...stored,
        files: { ...stored.files, policies: { all: text } },
      });
      expect(policy.decide(input())).toEqual({ effect: 'DENY', reasons: [] });
      expect(policy.digest).not.toBe(stored.digest.toString('hex'));
    }
    const errs = `forbid (principal, action, resource) when { ${MAX} + 1 == 0 };`;
    const erring = await setOf({ all: PERMIT, errs });
    expect((await open(erring)).decide(input())).toEqual({ effect: 'DENY', reasons: ['errs'] });
  });
});
