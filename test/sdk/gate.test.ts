import { expect } from 'vitest';
import {
  type AdapterOptions,
  type CallDetails,
  type GatedCall,
  openGate,
  openRun,
} from '#sdk/adapters/index';
import { openRounds } from '#sdk/adapters/rounds';
import { readRunHttp } from '#sdk/index';
import { notAdmitted } from '../fixtures/adapter-world.js';
import { activateApprovalSet } from '../fixtures/approval-world.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { FAST, openApprover, sdkTest, type SdkWorld } from '../fixtures/sdk-world.js';

const it = sdkTest().extend<{ activated: null }>({
  activated: [
    async ({ world }, use) => {
      await activateApprovalSet(world.registry);
      await use(null);
    },
    { auto: true, scope: 'file' },
  ],
});

const agent = { id: 'support-1' };
const optionsIn = ({ shaky }: SdkWorld, more: Partial<AdapterOptions> = {}): AdapterOptions =>
  ({ engine: shaky, agent, onOutcomeError: () => undefined, ...more }) as AdapterOptions;

/** Above 200 a refund requires an approval, above 500 it is denied. */
const refund = (amount = '100.00', more: Partial<GatedCall> = {}): GatedCall => ({
  tool: 'issue-refund',
  arguments: { order: 4821 },
  facts: { amount: { decimal: amount }, currency: 'EUR' },
  ...more,
});

it('describe > replaces members of the envelope, and stops a call whose facts change during the admission', async ({
  world,
}) => {
  let amount = '100.00';
  const describe = ({ arguments: given, context }: GatedCall) => ({
    hashed: (given as { order: number }).order,
    facts: { amount: { decimal: amount }, currency: 'EUR' },
    toolCallId: String(context),
  });
  const gate = openGate(optionsIn(world, { describe }));
  const call = { tool: 'issueRefund', arguments: { order: 1, secret: new Date() }, context: 'c-1' };
  await gate.begin(call);
  expect(JSON.parse(world.network.seen[0]!.body)).toMatchObject({ tool_call_id: 'c-1' });
  world.network.faults.push({ kind: 'late', ms: 50 });
  const changing = gate.begin(call);
  amount = '499.00';
  await notAdmitted(changing, 'arguments_changed');
  amount = '600.00';
  await notAdmitted(gate.begin(call), 'policy_denied');
  amount = 'much';
  const { message } = await notAdmitted(gate.begin(call), 'invalid_input');
  expect(message).toContain('/facts/amount');
});

it('describe > stops the call if it returns a promise, because the decision would ignore the promised facts', async ({
  world,
}) => {
  const { facts } = refund('600.00');
  const describe = (() => Promise.resolve({ facts })) as unknown as () => CallDetails;
  const gate = openGate(optionsIn(world, { describe, action: () => 'READ_ORDER' }));
  const { message } = await notAdmitted(
    gate.guard({ tool: 'read-order', arguments: {} }, () => expect.unreachable()),
    'invalid_input',
  );
  expect(message).toContain('/describe');
  expect(world.network.seen).toEqual([]);
});

it('guard > runs no tool whose arguments, action or name change after the last step of the admission', async ({
  world,
}) => {
  const newCall = () => ({
    ...{ tool: 'issueRefund', action: 'ISSUE_REFUND' },
    ...{ arguments: { order: 1 }, facts: refund().facts },
  });
  let call = newCall();
  let described = 0;
  const describe = () => {
    // The microtask runs after the comparison of the arguments, before the next task.
    if (++described === 2) queueMicrotask(() => (call.arguments.order = 2));
    return {};
  };
  const ran: number[] = [];
  const run = () => ran.push(call.arguments.order);
  await openGate(optionsIn(world, { describe })).guard(call, run);
  expect(ran).toEqual([1]);
  for (const onAdmitted of [
    () => (call.arguments.order = 2),
    () => (call.action = 'WIRE_MONEY'),
    () => (call.tool = 'wireMoney'),
  ]) {
    call = newCall();
    const guarding = openGate(optionsIn(world, { onAdmitted })).guard(call, run);
    await notAdmitted(guarding, 'arguments_changed');
  }
  expect(ran).toEqual([1]);
});

it('approval option > waits for the second decision, and fails with approval_required without a second decision', async ({
  world,
}) => {
  const decide = await openApprover(world);
  const pending: string[] = [];
  const gateFor = (decision: 'approve' | 'reject' | null) => {
    const approval = {
      waitMs: decision === null ? 100 : 30_000,
      onPending: ({ proofId }: { proofId: string }) => {
        pending.push(proofId);
        if (decision !== null) void decide(proofId, decision);
      },
    };
    return openGate(optionsIn(world, { approval }));
  };
  const admission = await gateFor('approve').begin(refund('300.00'));
  expect(admission.receipt.status).toBe('ADMITTED');
  expect(admission.proofId).not.toBe(pending[0]);
  await notAdmitted(gateFor('reject').begin(refund('300.00')), 'policy_denied');
  const { proofId } = await notAdmitted(gateFor(null).begin(refund('300.00')), 'approval_required');
  expect(pending.at(-1)).toBe(proofId);
  await notAdmitted(openGate(optionsIn(world)).begin(refund('300.00')), 'approval_required');
});

it('openRounds > returns an admission only once, and only before it expires', async ({ world }) => {
  const admission = await openGate(optionsIn(world)).begin(refund());
  const [lasting, expired] = [openRounds(60_000), openRounds(0)];
  for (const rounds of [lasting, expired]) rounds.keep('call', admission);
  expect([lasting.take('call'), lasting.take('call')]).toEqual([admission, undefined]);
  expect(expired.take('call')).toBeUndefined();
});

it('breakerMs > makes calls fail at once while the engine is unreachable, and recovers', async ({
  world,
}) => {
  const engine = { ...world.shaky, retry: { ...FAST, attempts: 1 } };
  const silent = openGate(optionsIn(world, { engine, breakerMs: 60_000, decisionTimeoutMs: 100 }));
  world.network.faults.push({ kind: 'silent' });
  await notAdmitted(silent.begin(refund()), 'timeout');
  const { message } = await notAdmitted(silent.begin(refund()), 'unavailable');
  expect(message).toContain('the engine was unreachable a moment ago');
  expect(world.network.seen).toHaveLength(1);

  const gate = openGate(optionsIn(world, { engine, breakerMs: 1 }));
  world.network.faults.push({ kind: 'lost' }, { kind: 'late', ms: 50 });
  await notAdmitted(gate.begin(refund()), 'network');
  await expect.poll(() => gate.begin(refund()).catch(() => null)).not.toBeNull();
  // An aborted trial must not keep the breaker open.
  world.network.faults.push({ kind: 'lost' });
  await notAdmitted(gate.begin(refund()), 'network');
  const aborted = refund('1.00', { signal: AbortSignal.abort() });
  await expect.poll(async () => (await notAdmitted(gate.begin(aborted))).code).toBe('aborted');
  await gate.begin(refund());
});

it('openRun > numbers concurrent requests without a gap, and closes the run', async ({ world }) => {
  const run = openRun({ engine: world.options, agent });
  const gate = openGate(optionsIn(world));
  const call = async (amount: string, more: Partial<GatedCall> = {}): Promise<void> => {
    const admission = await gate.begin(refund(amount, { run, ...more }));
    await gate.end(admission, { result: 'succeeded' });
  };
  await call('1.00');
  // The engine gets this request only at the close, which records that the tool did not run.
  world.network.faults.push(...Array.from({ length: 5 }, () => ({ kind: 'lost' }) as const));
  await notAdmitted(call('2.00'), 'network');
  await Promise.all([
    call('3.00'),
    notAdmitted(call('600.00'), 'policy_denied'),
    notAdmitted(call('300.00'), 'approval_required'),
    // The engine rejects this request, so the next call gets its number.
    notAdmitted(call('4.00', { parentProofId: `${'0'.repeat(12)}7000a${'0'.repeat(15)}` })),
  ]);
  await call('5.00');
  const other = openGate(optionsIn(world, { agent: { id: 'other' } }));
  await notAdmitted(other.begin(refund('1.00', { run })), 'invalid_input');
  await run.close();
  const { response } = await readRunHttp(world.options, { run: run.id, agent: agent.id });
  expect(response).toMatchObject({ state: 'closed', missing: [] });
  const numbers = response.members.map(({ seq }) => seq).sort((a, b) => a - b);
  expect(numbers).toEqual(Array.from({ length: 10 }, (_, seq) => seq));
  const { message } = await notAdmitted(call('1.00'), 'invalid_input');
  expect(message).toBe('issue-refund did not run: not admitted: the run is closed');
});

it('openRun > closes a run although the engine rejects the repetition of a request', async ({
  world,
}) => {
  const run = openRun({ engine: world.options, agent });
  const gate = openGate(optionsIn(world));
  await gate.begin(refund('1.00', { run }));
  world.network.faults.push(...Array.from({ length: 5 }, () => ({ kind: 'lost' }) as const));
  const parentProofId = `${'0'.repeat(12)}7000a${'0'.repeat(15)}`;
  await notAdmitted(gate.begin(refund('2.00', { run, parentProofId })), 'network');
  await run.close();
  const { response } = await readRunHttp(world.options, { run: run.id, agent: agent.id });
  expect(response).toMatchObject({ state: 'closed', missing: [], members: [{ seq: 0 }] });
});

it('openRun > reports the number of a rejected request as missing, and gives it to the next call', async ({
  world,
}) => {
  const run = openRun({ engine: world.options, agent });
  const gate = openGate(optionsIn(world));
  const unknown = `${'0'.repeat(12)}7000a${'0'.repeat(15)}`;
  await Promise.all([
    notAdmitted(gate.begin(refund('1.00', { run, parentProofId: unknown }))),
    gate.begin(refund('2.00', { run })),
  ]);
  const { problem } = await sdkError(run.close(), 'not_ready');
  expect(problem).toMatchObject({ code: 'run_incomplete' });
  expect(problem?.detail).toMatch(/seq 0 is missing.*number of a rejected request/);
  await gate.begin(refund('3.00', { run }));
  await run.close();
  const { response } = await readRunHttp(world.options, { run: run.id, agent: agent.id });
  expect(response).toMatchObject({ state: 'closed', missing: [] });
});

it('openRun > returns the first close if the response to this close was lost', async ({
  world,
}) => {
  const run = openRun({ engine: optionsIn(world).engine, agent });
  // The engine closes the run at the first attempt, and no response arrives.
  const lost = { on: /^POST/, kind: 'unanswered' } as const;
  world.network.faults.push(...Array<typeof lost>(5).fill(lost));
  await sdkError(run.close(), 'network');
  const { registry_proof_id: closed } = await run.close();
  const { response } = await readRunHttp(world.options, { run: run.id, agent: agent.id });
  expect(response).toMatchObject({ state: 'closed', close_proof_id: closed });
});

it('openRun > states no failed outcome of an observed tool, and rejects a second close', async ({
  world,
}) => {
  const run = openRun({ engine: world.options, agent });
  const gate = openGate(optionsIn(world, { mode: 'observe', onNotAdmitted: () => undefined }));
  world.network.faults.push(...Array.from({ length: 5 }, () => ({ kind: 'lost' }) as const));
  expect(await gate.guard(refund('2.00', { run }), () => 'refunded')).toBe('refunded');
  const [closed, again] = await Promise.allSettled([run.close(), run.close()]);
  expect(closed).toMatchObject({ value: { status: 'ADMITTED' } });
  expect(again).toMatchObject({ reason: { code: 'invalid_input', message: 'the run is closed' } });
  const { response } = await readRunHttp(world.options, { run: run.id, agent: agent.id });
  // The only member is the admission.
  expect(response).toMatchObject({ state: 'closed', missing: [], members: [{ seq: 0 }] });
});
