import { join } from 'node:path';
import * as fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/package-root';
import type { PolicyFiles } from '#sql/policies';
import { preparePolicyEngine, type PolicyEngine } from '#policy/decide';
import type { PolicyInput } from '#policy/input';
import { makePolicySet, PolicySetError, readPolicyFolder } from '#policy/policy-set';
import { policySelfTest } from '#policy/self-test';

const input = (overrides: Partial<PolicyInput> = {}): PolicyInput => ({
  schema_version: 'svc.policy.input/1.0',
  tenant: { tenant_id: 'acme', environment: 'sandbox' },
  environment: 'sandbox',
  lane: 'execute',
  action: 'BOOK_RESERVATION',
  agent: null,
  tool: null,
  fixture: null,
  ...overrides,
});

const folder = join(packageRoot, 'policy', 'default');

async function engineOf(policies: Record<string, string>): Promise<PolicyEngine> {
  const { schema } = await readPolicyFolder(folder);
  return preparePolicyEngine(await makePolicySet({ schema, policies, sentences: {} }));
}

describe('the default policy set', () => {
  let engine: PolicyEngine;
  let files: PolicyFiles;
  beforeAll(async () => {
    files = await readPolicyFolder(folder);
    engine = await preparePolicyEngine(await makePolicySet(files));
  });

  it('permits any action in the sandbox', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^[A-Z0-9_.:-]{1,128}$/), (action) => {
        fc.pre(action !== 'DELETE_AUDIT_LOG');
        expect(engine.decide(input({ action })).effect).toBe('ADMIT');
      }),
    );
  });

  it('forbids deleting an audit log, and says so to people', () => {
    expect(engine.decide(input({ action: 'DELETE_AUDIT_LOG' }))).toEqual({
      effect: 'DENY',
      reasons: ['audit-log-is-kept'],
    });
    expect(files.sentences['audit-log-is-kept']).toMatch(/audit log/);
  });

  it('permits nothing live', () => {
    const live = input({
      environment: 'live',
      tenant: { tenant_id: 'acme', environment: 'live' },
    });
    expect(engine.decide(live)).toEqual({ effect: 'DENY', reasons: [] });
  });

  it('has a digest that every text is part of', async () => {
    const digest = (await makePolicySet(files)).digest;
    const changed: PolicyFiles[] = [
      { ...files, schema: files.schema + '// x' },
      { ...files, policies: { ...files.policies, 'audit-log-is-kept': '' } },
      { ...files, policies: { ...files.policies, more: 'permit (principal, action, resource);' } },
    ];
    for (const other of changed) {
      if (Object.values(other.policies).includes('')) delete other.policies['audit-log-is-kept'];
      expect((await makePolicySet(other)).digest.equals(digest)).toBe(false);
    }
    expect((await makePolicySet(await readPolicyFolder(folder))).digest.equals(digest)).toBe(true);
  });
});

describe('failing closed', () => {
  it('denies when a forbid errs, although the engine itself would allow', async () => {
    const engine = await engineOf({
      allow: 'permit (principal, action, resource);',
      errs: 'forbid (principal, action, resource) when { 9223372036854775807 + 1 == 0 };',
    });
    expect(engine.decide(input())).toEqual({ effect: 'DENY', reasons: ['errs'] });
  });

  it('denies when a permit errs beside another that allows', async () => {
    const engine = await engineOf({
      allow: 'permit (principal, action, resource);',
      errs: 'permit (principal, action, resource) when { 9223372036854775807 + 1 == 0 };',
    });
    expect(engine.decide(input()).effect).toBe('DENY');
  });

  it('denies what does not fit the schema', async () => {
    const engine = await engineOf({ allow: 'permit (principal, action, resource);' });
    expect(engine.decide(input()).effect).toBe('ADMIT');
    const odd = input({ agent: { id: 7 as unknown as string, framework: null } });
    expect(engine.decide(odd)).toEqual({ effect: 'DENY', reasons: [] });
  });

  it('denies without any policy', async () => {
    expect((await engineOf({})).decide(input())).toEqual({ effect: 'DENY', reasons: [] });
  });

  it('sorts the reasons, whatever order the engine gives them in', async () => {
    const ids = ['zeta', 'alpha', 'mid', 'Beta', 'a-1', 'a-0'];
    for (let round = 0; round < 20; round += 1) {
      const policies = Object.fromEntries(
        ids.map((id) => [id, `permit (principal, action, resource); // ${round}`]),
      );
      expect((await engineOf(policies)).decide(input()).reasons).toEqual([...ids].sort());
    }
  });

  it('refuses a policy that does not parse or does not fit its schema', async () => {
    const { schema } = await readPolicyFolder(folder);
    const set = (text: string) => makePolicySet({ schema, policies: { p: text }, sentences: {} });
    await expect(set('permit (principal')).rejects.toThrow(PolicySetError);
    await expect(
      set('permit (principal, action, resource) when { context.nothing };'),
    ).rejects.toThrow(PolicySetError);
  });

  it('refuses a stored set whose texts are not what its digest says', async () => {
    const set = await makePolicySet(await readPolicyFolder(folder));
    set.files.policies['audit-log-is-kept'] = 'permit (principal, action, resource);';
    await expect(preparePolicyEngine(set)).rejects.toThrow(PolicySetError);
  });

  it('proves itself at start', async () => {
    await policySelfTest();
  });
});
