import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { createTenant, setAllowlisted, setLane } from '#sql/tenants/administration';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { activateSet } from '../../fixtures/approval-world.js';
import { executeBody, headersFor } from '../../fixtures/engine.js';
import { activationBody, overlayBody, overlayCase } from '../../fixtures/overlays.js';
import { missingTools, shellBlocks, withoutTools, workplace } from '../../fixtures/other-tools.js';
import { engineTest, type Setup } from './setup.js';

const it = engineTest({ rateLimit: 100_000 });

type Fields = Record<string, unknown>;
/** `ADMITTED`, `approval_required`, the code of a problem, or the reasons of a denial. */
type Expected = string | string[];
type Attack = [what: string, body: Fields | string, expected: Expected, boundTo?: string];

const activate = async ({ registry }: Setup, set: string): Promise<unknown> =>
  activateSet(
    registry.admin,
    await readPolicyFolder(join(packageRoot, 'examples', 'policies', set)),
  );

/** Sends requests as an agent would. Returns the answer to each: `ADMITTED`, reasons or a code. */
async function outcomesOf({ engine, key, keyFor }: Setup, attacks: Attack[]) {
  const found: [string, Expected][] = [];
  for (const [what, body, , boundTo] of attacks) {
    const sender =
      boundTo === undefined ? key : await keyFor({ restriction: { agent_id: boundTo } });
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const path = text.includes('"kind"') ? '/v1/agent/admissions' : '/v1/intents/execute';
    const { json } = await engine.call({ path, headers: headersFor(sender), body: text });
    const reasons = json['reasons'] as string[] | undefined;
    found.push([
      what,
      reasons ??
        String(json['status'] === 'ADMITTED' ? 'ADMITTED' : (json['code'] ?? json['state'])),
    ]);
  }
  return found;
}

const EUR = 'EUR';
const euros = (amount: string, more: Fields = {}): Fields => ({
  amount: { decimal: amount },
  currency: EUR,
  ...more,
});
const refund = (facts: unknown, more: Fields = {}): Fields =>
  admissionEnvelope({ action: 'ISSUE_REFUND', facts, ...more });
/** A refund as text with facts that JSON.stringify could not make. */
const refundText = (facts: string): string =>
  JSON.stringify(refund({ x: 1 })).replace('{"x":1}', facts);

const REFUNDS: Attack[] = [
  ['the limit', refund(euros('500.00')), 'ADMITTED'],
  ['one unit above', refund(euros('500.0001')), ['refunds-at-most-500']],
  ['zero', refund(euros('0.00')), ['refunds-at-most-500']],
  ['a negative amount', refund(euros('-480.00')), ['refunds-at-most-500']],
  [
    'an action whose name begins with ISSUE_REFUND',
    { ...refund(euros('9999.00')), action: 'ISSUE_REFUND.UP_TO_500' },
    [],
  ],
  ['another currency', refund(euros('480.00', { currency: 'JPY' })), ['refunds-in-eur']],
  [
    'a currency with a Cyrillic letter',
    refund(euros('480.00', { currency: '\u0415UR' })),
    ['refunds-in-eur'],
  ],
  ['a text', refund({ amount: '480.00', currency: EUR }), 'invalid_fact'],
  ['a decimal with an exponent', refund(euros('1e2')), 'invalid_field'],
  ['no amount', refund({ currency: EUR }), ['fact.amount']],
  ['no facts', refund(undefined), ['fact.amount', 'fact.currency']],
  ['an undeclared fact', refund(euros('480.00', { approved: true })), 'invalid_fact'],
  [
    'an amount twice',
    refundText('{"amount":{"decimal":"9999.00"},"amount":{"decimal":"1.00"},"currency":"EUR"}'),
    'duplicate_key',
  ],
  ['an execution', executeBody({ action: 'ISSUE_REFUND' }), ['fact.amount', 'fact.currency']],
];

const agent = (id: string): Fields => ({ agent: { id } });
const LIMITED = agent('support-1');
const DAILY_LIMIT: Attack[] = [
  ['within the limit', refund(euros('1999.9999'), LIMITED), 'ADMITTED', 'support-1'],
  ['one unit too much', refund(euros('0.0002'), LIMITED), ['at-most-2000-a-day'], 'support-1'],
  ['a negative amount', refund(euros('-1000.00'), LIMITED), ['budget.daily_refunds'], 'support-1'],
  ['a claimed agent', refund(euros('1.00'), agent('support-2')), ['bound-agents-only']],
  [
    'another agent than that of the key',
    refund(euros('1.00'), agent('support-2')),
    'key_restricted',
    'support-1',
  ],
  [
    'another currency',
    refund(euros('0.0001', { currency: 'USD' }), LIMITED),
    ['refunds-in-eur'],
    'support-1',
  ],
  [
    'no amount',
    refund({ currency: EUR }, LIMITED),
    ['budget.daily_refunds', 'fact.amount'],
    'support-1',
  ],
  [
    'an execution',
    executeBody({ action: 'ISSUE_REFUND' }),
    ['budget.daily_refunds', 'fact.amount', 'fact.currency'],
  ],
  ['the last unit', refund(euros('0.0001'), LIMITED), 'ADMITTED', 'support-1'],
];

const APPROVAL: Attack[] = [
  ['up to 200', refund(euros('200.00')), 'ADMITTED'],
  ['one unit more', refund(euros('200.0001')), 'approval_required'],
  ['the limit', refund(euros('500.00')), 'approval_required'],
  [
    'more than an approval may permit',
    refund(euros('500.0001')),
    ['refunds-above-200', 'refunds-at-most-500'],
  ],
  [
    'another currency',
    refund(euros('300.00', { currency: 'USD' })),
    ['refunds-above-200', 'refunds-in-eur'],
  ],
  ['no amount', refund({ currency: EUR }), ['fact.amount']],
  ['a stated approval', refund(euros('300.00', { approved: true })), 'invalid_fact'],
  ['an approval in the request', refund(euros('300.00'), { approval: {} }), 'unknown_field'],
  ['a key of the agent', refund(euros('300.00'), LIMITED), 'approval_required', 'support-1'],
];

const remove = (fields: Fields): Fields =>
  admissionEnvelope({ action: 'DELETE_RECORD', tool: 'records.delete', ...fields });
const DELETES: Attack[] = [
  ['a deletion in the sandbox', remove({}), 'ADMITTED'],
  ['a deletion called reading', remove({ action: 'READ_RECORD' }), []],
  ['a deletion with the tool for reading', remove({ tool: 'records.read' }), []],
  ['a tool of another case', remove({ tool: 'Records.delete' }), []],
  ['no tool', remove({ tool: undefined }), []],
  [
    'an environment of the agent\u2019s choice',
    remove({ environment: 'sandbox' }),
    'unknown_field',
  ],
];

const reply = (fields: Fields): Fields =>
  admissionEnvelope({ action: 'CALL_TOOL', tool: 'tickets.reply', ...LIMITED, ...fields });
const TOOLS: Attack[] = [
  ['its tool', reply({}), 'ADMITTED', 'support-1'],
  ['another action', reply({ action: 'DELETE_AUDIT_LOG' }), [], 'support-1'],
  ['another tool', reply({ tool: 'refunds.issue' }), [], 'support-1'],
  ['a longer name', reply({ tool: 'tickets.reply.all' }), [], 'support-1'],
  ['a name with a space', reply({ tool: 'tickets.reply ' }), [], 'support-1'],
  ['no tool', reply({ tool: undefined }), [], 'support-1'],
  ['a claimed agent', reply({}), ['agents-are-bound']],
  ['another bound agent', reply(agent('support-2')), [], 'support-2'],
  ['an execution', executeBody({ action: 'CALL_TOOL' }), ['agents-are-bound']],
];

describe('example policy set', () => {
  it.for([
    ['refunds', REFUNDS],
    ['daily-limit', DAILY_LIMIT],
    ['sandbox-deletes', DELETES],
    ['agent-tools', TOOLS],
    ['approval', APPROVAL],
  ] as const)('gives the expected answers to attacks: %s', async ([set, attacks], { setup }) => {
    const expected = attacks.map(([what, , outcome]) => [what, outcome]);
    await activate(setup, set);
    expect(await outcomesOf(setup, [...attacks])).toEqual(expected);
  });

  it('denies a deletion by a live tenant', async ({ setup }) => {
    const { engine, keyFor, registry } = setup;
    await activate(setup, 'sandbox-deletes');
    await createTenant(registry.admin, { tenantId: 'live-1', environment: 'live' });
    await setAllowlisted(registry.admin, 'live-1', true);
    await setLane(registry.admin, 'live', true);
    const headers = headersFor(await keyFor({ tenantId: 'live-1' }), 'live-1');
    const body = JSON.stringify(remove({ tenant_id: 'live-1' }));
    const { json } = await engine.call({ path: '/v1/agent/admissions', headers, body });
    expect(json).toMatchObject({ code: 'policy_denied', reasons: ['deletes-only-in-sandbox'] });
  });
});

it.skipIf(missingTools.length > 0 && process.env['CI'] === undefined)(
  `documented commands recompute a decision from a disclosed export${withoutTools}`,
  async ({ setup }) => {
    await activate(setup, 'daily-limit');
    const key = await setup.keyFor({ restriction: { agent_id: 'support-3' } });
    const send = async (amount: string): Promise<string> => {
      const body = refund(euros(amount), agent('support-3'));
      const { json } = await setup.post('/v1/agent/admissions', body, { 'X-Svc-Api-Key': key });
      return (json['registry_proof_id'] ??
        (json['receipt'] as Fields)['registry_proof_id']) as string;
    };
    const [admitted, denied] = [await send('100.00'), await send('1950.00')];
    await setup.publish();
    const place = await workplace({});
    const [block = ''] = await shellBlocks('docs/verify.md', '### Disclosed values');
    const recompute = async (id: string, disclosed: string, set: string, option = '') => {
      const { bytes } = await setup.get(`/v1/proofs/${id}/export?disclose=${disclosed}`);
      await place.write('proof.json', bytes);
      const admin = `node ${join(packageRoot, 'dist/programs/admin.js')}`;
      const folder = join(packageRoot, 'examples/policies', set);
      const commands = block
        .replace('npm run --silent admin --', admin)
        .replace('policies/2026-12', folder)
        .replace('case.json --json', `case.json --json ${option}`);
      return place.paste(commands).then(
        () => true,
        () => false,
      );
    };
    const counted = 'amount,currency,budget.daily_refunds';
    expect(await recompute(denied, counted, 'daily-limit')).toBe(true);
    expect(await recompute(denied, 'amount,currency', 'daily-limit')).toBe(false);
    expect(await recompute(admitted, counted, 'daily-limit')).toBe(true);
    // The policy set `refunds` makes the same decision as `daily-limit`, but has another digest.
    expect(await recompute(admitted, 'amount,currency', 'refunds')).toBe(false);

    const rule = 'forbid (principal, action, resource) when { context.facts has currency };';
    const rules = { 'no-refunds': rule };
    const { json } = await setup.post('/v1/overlays', overlayBody(rules));
    const input = { ...overlayCase('ISSUE_REFUND').input, facts: euros('1.00') };
    const body = activationBody([{ name: 'refund', input, expect: 'DENY' }]);
    await setup.post(`/v1/overlays/${String(json['overlay_id'])}/activate`, body);
    const forbidden = await send('3.00');
    await setup.publish();
    await place.write('no-refunds.cedar', Buffer.from(rule));
    expect(await recompute(forbidden, counted, 'daily-limit', '--overlay .')).toBe(true);
    expect(await recompute(forbidden, counted, 'daily-limit')).toBe(false);
  },
  120_000,
);
