import { mkdtemp, writeFile } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parsePolicyCases, runPolicyCase } from '#policy/cases';
import { checkPolicyTexts, whyNotActivate } from '#policy/check';
import { unmetBudgets } from '#policy/cedar-context';
import { preparePolicyEngine } from '#policy/decide';
import { decideUnder, type ReplayPolicy } from '#policy/replay';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import {
  type PolicyInput,
  policyInputText,
  budgetsOf,
  type Counter,
  counterKey,
} from '#protocol/policy-input';
import type { Facts } from '#protocol/schemas/facts';
import { nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { policyInput } from '../fixtures/policy-input.js';
import log from '../../protocol/vectors/full-log.json' with { type: 'json' };

const DAILY = join(packageRoot, 'examples', 'policies', 'daily-limit');
const files = await readPolicyFolder(DAILY);

const cases = parsePolicyCases(readFileSync(join(DAILY, 'cases.json')));

it('examples/policies/daily-limit > rejects a case about a counter that the set does not declare', async () => {
  const engine = await preparePolicyEngine(await makePolicySet(files));
  const one = structuredClone(cases[0]!);
  one.input.budgets = { weekly: { before: 1 } };
  expect(() => runPolicyCase(engine, one)).toThrow('the set has no counter weekly');
});

const sum: Counter = { actions: ['ISSUE_REFUND'], sum: 'amount', per: 'agent', window: 'day' };
const count: Counter = { actions: null, sum: null, per: 'tenant', window: 'day' };

it('a policy case > starts a counter named `constructor` at 0', async () => {
  const set = await makePolicySet({
    schema: files.schema.replace('daily_refunds', 'constructor'),
    policies: { permit: 'permit (principal, action, resource);' },
    sentences: {},
    counters: { constructor: count },
  });
  const input = {
    tenant: 'acme',
    environment: 'sandbox',
    lane: 'execute',
    action: 'SHIP',
  } as const;
  const one = { name: 'shipment', input, expect: 'ADMIT' } as const;
  expect(runPolicyCase(await preparePolicyEngine(set), one)).toMatchObject({ passed: true });
});

const input = (facts: Facts, overrides: Partial<PolicyInput> = {}): PolicyInput =>
  policyInput({
    lane: 'agent',
    action: 'ISSUE_REFUND',
    agent: { id: 'support-1', framework: null, bound: true },
    facts,
    ...overrides,
  });

/** The value after an action, and the reasons to deny the action before evaluation. */
function applied(counter: Counter, given: PolicyInput, before: number) {
  const budgets = budgetsOf({ c: counter }, given, { c: { before } });
  return [budgets['c']?.after, unmetBudgets({ c: counter }, { ...given, budgets })];
}

describe('counter', () => {
  const MAX = Number.MAX_SAFE_INTEGER;
  const dec = (decimal: string) => ({ amount: { decimal } });
  type Row = [what: string, Counter, PolicyInput, before: number, after: number, reasons: string[]];
  const expectValue = (...[, counter, given, before, after, reasons]: Row): void => {
    expect(applied(counter, given, before)).toEqual([after, reasons]);
  };
  it.each<Row>([
    ['an action as one', count, input({}), 4, 5, []],
    ['an execution', count, input({}, { lane: 'execute', agent: null }), 4, 5, []],
    ['a decimal in units of 10⁻⁴', sum, input(dec('0.5')), 1, 5_001, []],
    ['an integer in units of 10⁻⁴', sum, input({ amount: 3 }), 1, 30_001, []],
    ['zero', sum, input({ amount: 0 }), 7, 7, []],
    ['a value up to 2^53−1', count, input({}), MAX - 1, MAX, []],
  ])('counts %s', expectValue);

  it.each<Row>([
    ['a value beyond 2^53−1', count, input({}), MAX, MAX, ['budget.c']],
    ['the greatest decimal', sum, input(dec('922337203685477.5807')), 0, 0, ['budget.c']],
    ['a negative decimal', sum, input(dec('-0.0001')), 9, 9, ['budget.c']],
    ['a negative integer', sum, input({ amount: -1 }), 9, 9, ['budget.c']],
    ['a missing amount', sum, input({}), 9, 9, ['budget.c', 'fact.amount']],
    ['a string', sum, input({ amount: '1.00' }), 9, 9, ['budget.c']],
    ['an action without an agent', sum, input({ amount: 1 }, { agent: null }), 0, 0, ['budget.c']],
  ])('does not count %s', expectValue);

  it('denies when its value is unknown', () => {
    expect(unmetBudgets({ c: count }, input({}))).toEqual(['budget.c']);
  });

  it('applies to its actions only, and ignores outcomes', () => {
    expect(budgetsOf({ c: sum }, input({}, { action: 'OTHER' }), { c: { before: 0 } })).toEqual({});
    expect(budgetsOf({ c: count }, input({}, { action: null }), { c: { before: 0 } })).toEqual({});
  });

  it('has a key that depends on agent, name, `sum` and `per`, but not on actions', () => {
    const given = input({});
    const other = input({}, { agent: { id: 'support-2', framework: null, bound: true } });
    const keyOf = (name: string, counter: Counter, by = given) =>
      counterKey(nativeSha256, name, counter, by, null);
    const key = keyOf('c', sum);
    expect(keyOf('c', { ...sum, actions: null })).toBe(key);
    const others = [
      keyOf('c', sum, other),
      keyOf('d', sum),
      keyOf('c', { ...sum, sum: null }),
      keyOf('c', { ...sum, per: 'tenant' }),
    ];
    expect(new Set([key, ...others]).size).toBe(5);
  });

  it('that needs a run has a key for each run and agent, and none without a run', () => {
    const other = input({}, { agent: { id: 'support-2', framework: null, bound: true } });
    const perRun: Counter[] = [
      { ...count, per: 'run', window: 'run' },
      { ...count, per: 'run', window: 'day' },
      { ...count, per: 'agent', window: 'run' },
    ];
    const keys = perRun.flatMap((counter) => {
      const keyOf = (by: PolicyInput, run: string | null) =>
        counterKey(nativeSha256, 'c', counter, by, run);
      expect(keyOf(input({}), null)).toBeNull();
      return [keyOf(input({}), 'r'), keyOf(input({}), 's'), keyOf(other, 'r')];
    });
    expect(new Set(keys).size).toBe(9);
    const shared: Counter = { ...count, window: 'run' };
    const byTenant = [input({}), other].map((by) => counterKey(nativeSha256, 'c', shared, by, 'r'));
    expect(byTenant[0]).toBe(byTenant[1]);
  });

  it('has the same values as the Python implementation computes', () => {
    const counters = log.manifest.counters as Record<string, Counter>;
    for (const { policy_input: theirs } of log.proofs) {
      const own = theirs as unknown as PolicyInput;
      expect(budgetsOf(counters, own, own.budgets)).toEqual(own.budgets);
      const members = JSON.parse(policyInputText(own, theirs.salt)) as unknown;
      expect(members).toEqual(theirs);
    }
  });
});

const folderWith = async (counters: unknown): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), 'svc-policy-'));
  await writeFile(join(folder, 'schema.cedarschema'), files.schema);
  await writeFile(
    join(folder, 'counters.json'),
    typeof counters === 'string' ? counters : JSON.stringify(counters),
  );
  return folder;
};

it.each(['__proto__.cedar', 'limit.Cedar'])(
  'a policy folder > with the file %s is rejected',
  async (name) => {
    const folder = await folderWith({});
    await writeFile(join(folder, name), 'forbid (principal, action, resource);');
    await expect(readPolicyFolder(folder)).rejects.toThrow(`${name}: expected a file name`);
  },
);

describe('counters.json', () => {
  it.each<[what: string, counters: unknown, message: RegExp]>([
    ['text that is not JSON', '{', /counters\.json: .*at byte 1/],
    ['a name that parsers drop', '{"__proto__":{}}', /__proto__ is not a name/],
    ['a duplicate name', '{"a":1,"a":1}', /duplicate member name/],
    ['an unknown member', { c: { ...sum, limit: 5 } }, /unknown member "limit"/],
    ['a counter per tool', { c: { ...sum, per: 'tool' } }, /expected one of/],
    ['a window of a week', { c: { ...sum, window: 'week' } }, /expected one of/],
    ['actions out of order', { c: { ...sum, actions: ['B', 'A'] } }, /ascending order/],
    ['no actions', { c: { ...sum, actions: [] } }, /or null for all/],
    ['a wrong name', { Daily: sum }, /expected a name/],
  ])('is rejected with %s', async (_, counters, message) => {
    await expect(readPolicyFolder(await folderWith(counters))).rejects.toThrow(message);
  });

  const problems = async (counters: Record<string, Counter>): Promise<string[]> =>
    (await checkPolicyTexts({ ...files, counters })).map(
      ({ file, message }) => `${file}: ${message}`,
    );

  it('is rejected by validate with a sum of a fact that is not Long or decimal', async () => {
    const found = await problems({ daily_refunds: { ...sum, sum: 'currency' } });
    expect(found).toEqual([
      'counters.json: daily_refunds sums currency, which is not a declared fact of type Long or decimal',
    ]);
    const stored = await makePolicySet({
      ...files,
      counters: { daily_refunds: { ...sum, sum: 'absent' } },
    });
    expect(await whyNotActivate(stored)).toContain('daily_refunds sums absent');
  });

  it('is rejected by validate with a schema that declares different counters', async () => {
    expect((await problems({ daily_refunds: sum, hourly: count })).join()).toContain(
      'context.budgets.hourly is not declared',
    );
    expect((await problems({})).join()).toContain(
      'no input contains context.budgets.daily_refunds',
    );
  });

  it('is covered by the digest of the policy set', async () => {
    const digest = async (counter: Counter) =>
      (await makePolicySet({ ...files, counters: { daily_refunds: counter } })).digest;
    expect((await digest(sum)).equals(await digest({ ...sum, actions: null }))).toBe(false);
  });
});

it('decideUnder > ignores a recorded counter named constructor when the set has no counters', () => {
  const evaluated: PolicyInput[] = [];
  const setWith = (counters: ReplayPolicy['counters']): ReplayPolicy => ({
    ...{ counters, digest: '', engineVersion: '', sameEngine: true },
    decide: (given) => {
      evaluated.push(given);
      return { effect: 'ADMIT', reasons: [] };
    },
  });
  const budgets = { constructor: { before: 0, after: 1 } };
  decideUnder(setWith({}), setWith({ constructor: sum }), input({}, { budgets }));
  expect(evaluated).toMatchObject([{ budgets: {} }]);
});
