import { generateKeyPairSync } from 'node:crypto';
import { expect } from 'vitest';
import { buildReceipt } from '#protocol/aep';
import { verifyRegistration } from '#protocol/approvals';
import { readApprovalRequest as checkRequest } from '#protocol/approval-request';
import { documentHash, nobleSha256 } from '#protocol/hash';
import { approvalRequestSchema } from '#protocol/schemas/approval-request';
import { formatTime } from '#protocol/time';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import {
  admitBatchHttp,
  admitHttp,
  agentEnvelope,
  type AgentEnvelope,
  type Approver,
  createApproverRegistration,
  type EngineOptions,
  executeIntentHttp,
  executeRequest,
  followAdmissionHttp,
  readApprovalRequest,
  readReceiptEvidenceHttp,
  type Receipt,
  type SdkErrorCode,
  signApproval,
  submitApproval,
  waitForApproval,
} from '#sdk/index';
import { addApprover } from '#sql/lifecycle/approvers';
import { activateApprovalSet, activateHold, refund } from '../fixtures/approval-world.js';
import type { Fault } from '../fixtures/broken-network.js';
import { issueKey } from '../fixtures/engine.js';
import { TENANT } from '../fixtures/registry.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { FAST, intent, type SdkWorld, sdkTest } from '../fixtures/sdk-world.js';

const it = sdkTest().extend<{ approver: Approver; asApprover: EngineOptions }>({
  approver: [
    async ({ world: { registry } }, use) => {
      await activateApprovalSet(registry);
      const privateKey = generateKeyPairSync('ed25519').privateKey.export({
        format: 'pem',
        type: 'pkcs8',
      }) as string;
      const registration = await createApproverRegistration({
        tenantId: TENANT,
        approver: 'ops-lead',
        privateKey,
      });
      await addApprover(registry.admin, registration);
      await use({ privateKey, registration });
    },
    { scope: 'file' },
  ],
  asApprover: [
    async ({ world }, use) => {
      const apiKey = await issueKey(world.registry, { scopes: ['approve'] });
      await use({ ...world.options, apiKey });
    },
    { scope: 'file' },
  ],
});

/** An envelope that requires an approval, with the error that reports it. */
async function held({ options }: SdkWorld) {
  const envelope: AgentEnvelope = agentEnvelope(TENANT, refund());
  const { approval, proofId } = await sdkError(admitHttp(options, envelope), 'approval_required');
  return { envelope, approval: approval!, proofId: proofId! };
}

async function decide(
  asApprover: EngineOptions,
  approver: Approver,
  proofId: string,
  decision: 'approve' | 'reject',
): Promise<string> {
  const { aepHash } = await readApprovalRequest(asApprover, { proof_id: proofId });
  const input = { proof_id: proofId, aep_hash: aepHash, decision, expires_at: inOneMinute() };
  const approval = await signApproval(approver, input);
  return (await submitApproval(asApprover, approval)).proof_id;
}
const inOneMinute = (): string => formatTime(Date.now() + 60_000);

it('an approver with the scope approve reads, signs and submits; the waiting agent may act', async ({
  approver,
  asApprover,
  world,
}) => {
  expect(verifyRegistration(nativeCrypto, approver.registration)).toBe(true);
  const { approval, envelope, proofId } = await held(world);
  const sentences = { 'refunds-above-200': 'A refund above 200.00 needs an approval.' };
  expect(approval).toMatchObject({ reasons: ['refunds-above-200'], sentences });
  const subject = await readApprovalRequest(asApprover, { proof_id: proofId });
  expect(subject).toMatchObject({
    aep: { subject: { action: 'ISSUE_REFUND', agent: { id: 'support-1', bound: false } } },
    values: [
      ['fact.amount', { decimal: '480.00' }],
      ['fact.currency', 'EUR'],
    ],
    requestHash: approval.receipt.request_hash,
    notes: {
      expires_at: approval.expires_at,
      sentences,
    },
  });
  const waiting = [approval.receipt, { proof_id: proofId }].map((input) =>
    waitForApproval({ ...world.options, retry: FAST }, input),
  );
  const second = await decide(asApprover, approver, proofId, 'approve');
  const receipt = await followAdmissionHttp(asApprover, { proof_id: second });
  expect(receipt).toMatchObject({ status: 'ADMITTED', registry_proof_id: second });
  expect(await Promise.all(waiting)).toEqual([receipt, receipt]);
  expect(await admitHttp(world.options, envelope)).toEqual(receipt);
  for (const call of [waitForApproval, followAdmissionHttp]) {
    expect(await call(world.options, { proof_id: proofId })).toEqual(receipt);
  }
  const again = await sdkError(
    readApprovalRequest(asApprover, { proof_id: proofId }),
    'invalid_request',
  );
  expect(again).toMatchObject({ retryable: false, problem: { code: 'already_decided' } });
});

it('a rejection is a denial for the waiting agent', async ({ approver, asApprover, world }) => {
  const { approval, proofId } = await held(world);
  const second = await decide(asApprover, approver, proofId, 'reject');
  const error = await sdkError(waitForApproval(world.options, approval.receipt), 'policy_denied');
  expect(error.denial?.receipt.registry_proof_id).toBe(second);
  expect(error.message).toMatch(/^An approver rejected this action\. /);
  const followed = followAdmissionHttp(world.options, { proof_id: proofId });
  expect(await sdkError(followed, 'policy_denied')).toMatchObject({ denial: error.denial });
});

it.for(['approve', 'reject'] as const)(
  'the receipt of a second decision to %s is rejected for another pending proof',
  async (decision, { approver, asApprover, world }) => {
    const [wanted, other] = [await held(world), await held(world)];
    const second = await decide(asApprover, approver, other.proofId, decision);
    await followAdmissionHttp(asApprover, { proof_id: second }).catch(() => undefined);
    const swapped: typeof fetch = (url, init) =>
      fetch(
        (url as URL).href.replace(`admissions/${wanted.proofId}`, `admissions/${second}`),
        init,
      );
    for (const call of [waitForApproval, followAdmissionHttp]) {
      const options = { ...world.options, fetch: swapped };
      await sdkError(call(options, { proof_id: wanted.proofId }), 'unexpected_response');
    }
  },
);

type Changed = { evidence: { disclosures: [string, string, unknown][]; entry: object } };
const changed = (change: (request: Changed) => void): Fault => ({
  kind: 'changed',
  change: (body) => {
    const request = JSON.parse(body) as Changed;
    change(request);
    return JSON.stringify(request);
  },
});
const LIES: Record<string, (request: Changed) => void> = {
  'another amount': ({ evidence }) => (evidence.disclosures[0]![2] = '4.80'),
  'no amount': ({ evidence }) => void evidence.disclosures.shift(),
  'another hash': ({ evidence }) =>
    void Object.assign(evidence.entry, { aep_hash: documentHash(nativeSha256, {}) }),
};
it.for(Object.entries(LIES))(
  'an approver does not sign for a server that shows %s',
  async ([, lie], { approver, asApprover, world }) => {
    expect(approver).toBeDefined();
    const { proofId } = await held(world);
    world.network.faults.push(changed(lie));
    const options = { ...asApprover, engineUrl: world.network.url };
    await sdkError(readApprovalRequest(options, { proof_id: proofId }), 'evidence_rejected');
  },
);

it('an approver does not sign for a server that shows a proof other than the requested one', async ({
  asApprover,
  world,
}) => {
  const [wanted, shown] = [await held(world), await held(world)];
  const other = await readRaw(asApprover, shown.proofId);
  world.network.faults.push({ kind: 'changed', change: () => other });
  const options = { ...asApprover, engineUrl: world.network.url };
  await sdkError(readApprovalRequest(options, { proof_id: wanted.proofId }), 'evidence_rejected');
});

it('an approver reads only pending proofs of its own tenant', async ({ asApprover, world }) => {
  const { proofId } = await held(world);
  const request = approvalRequestSchema.parse(JSON.parse(await readRaw(asApprover, proofId)));
  const expected = { proofId, tenantId: TENANT };
  expect(checkRequest(nobleSha256, request, expected)).toHaveProperty('subject');
  const foreign = { ...expected, tenantId: 'rival' };
  expect(checkRequest(nobleSha256, request, foreign)).toEqual({
    fault: 'the document is about another tenant',
  });
  const admitted = await admitHttp(world.options, refund('20.00'));
  const { evidence } = await readReceiptEvidenceHttp(world.options, admitted);
  const { registry_proof_id: id } = admitted;
  const other = { proofId: id, tenantId: TENANT };
  expect(checkRequest(nobleSha256, { ...request, evidence }, other)).toEqual({
    fault: 'the proof requires no approval',
  });
  await sdkError(readApprovalRequest(asApprover, { proof_id: id }), 'not_found');
});

async function readRaw({ apiKey, engineUrl, tenantId }: EngineOptions, id: string) {
  const headers = { 'X-Svc-Api-Key': apiKey, 'X-Svc-Tenant-Id': tenantId };
  return (await fetch(`${engineUrl}/v1/approvals/${id}`, { headers })).text();
}

it('a registration can be used only with its own key', async ({ approver }) => {
  const input = {
    proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    aep_hash: '00'.repeat(32),
    decision: 'approve',
    expires_at: inOneMinute(),
  } as const;
  for (const privateKey of [new Uint8Array(32), new Uint8Array(31), 'PRIVATE KEY']) {
    const error = await sdkError(signApproval({ ...approver, privateKey }, input), 'invalid_input');
    expect(error.pointer).toBe('/privateKey');
  }
});

it('waitForApproval outlasts failures of the service, and then returns the second decision', async ({
  approver,
  asApprover,
  world,
}) => {
  const { approval, proofId } = await held(world);
  const broken: Fault = { kind: 'answer', status: 503 };
  const retry = { ...FAST, attempts: 1 };
  const waiting = waitForApproval({ ...world.shaky, retry }, approval.receipt);
  await expect.poll(() => world.network.seen.length).toBeGreaterThan(0);
  world.network.faults.push(broken, { kind: 'lost' }, { kind: 'cut' }, broken);
  await expect.poll(() => world.network.faults.length).toBe(0);
  const second = await decide(asApprover, approver, proofId, 'approve');
  expect((await waiting).registry_proof_id).toBe(second);
});

it('waitForApproval compares the expiry with the clock of the service', async ({
  approver,
  asApprover,
  world,
}) => {
  const { approval, proofId } = await held(world);
  let polls = 0;
  const behind: typeof fetch = async (url, init) => {
    const answer = await fetch(url, init);
    polls++;
    if (answer.status !== 202) return answer;
    const status = { ...((await answer.json()) as object), expires_at: '2026-01-01T00:00:00.000Z' };
    const headers = { date: 'Wed, 31 Dec 2025 23:59:00 GMT', 'content-type': 'application/json' };
    return new Response(JSON.stringify(status), { status: 202, headers });
  };
  const waiting = waitForApproval(
    { ...world.options, fetch: behind, retry: FAST },
    approval.receipt,
  );
  await Promise.race([waiting, expect.poll(() => polls).toBeGreaterThan(1)]);
  const second = await decide(asApprover, approver, proofId, 'approve');
  expect((await waiting).registry_proof_id).toBe(second);
});

it('waitForApproval ends although the clock of the service never advances', async ({
  approver,
  world,
}) => {
  expect(approver).toBeDefined();
  const { approval } = await held(world);
  let polls = 0;
  const stopped: typeof fetch = async (url, init) => {
    polls++;
    const status = (await (await fetch(url, init)).json()) as object;
    const body = JSON.stringify({ ...status, expires_at: '2026-01-01T00:00:00.000Z' });
    const headers = { date: 'Thu, 01 Jan 2026 00:00:29 GMT', 'content-type': 'application/json' };
    return new Response(body, { status: 202, headers });
  };
  const options = { ...world.options, fetch: stopped, retry: FAST };
  await sdkError(waitForApproval(options, approval.receipt), 'approval_required');
  expect(polls).toBeGreaterThan(1);
});

it('an agent may act only after the receipt of the second decision', async ({
  approver,
  world,
}) => {
  expect(approver).toBeDefined();
  const { approval } = await held(world);
  const { receipt } = approval;
  const foreign: Receipt = await admitHttp(world.options, refund('20.00'));
  const own = { ...foreign, request_hash: receipt.request_hash };
  const pendingAdmitted = buildReceipt(nativeSha256, {
    lane: 'agent',
    proof_id: receipt.registry_proof_id,
    request_hash: receipt.request_hash,
    effect: 'ADMIT',
  });
  const answers: [(body: string) => object, SdkErrorCode][] = [
    [
      (body) => ({ ...(JSON.parse(body) as object), expires_at: '2026-01-01T00:00:00.000Z' }),
      'approval_required',
    ],
    [() => ({ ...foreign }), 'unexpected_response'],
    [() => own, 'unexpected_response'],
    [() => receipt, 'unexpected_response'],
    [() => pendingAdmitted, 'unexpected_response'],
  ];
  for (const [change, code] of answers) {
    const status = code === 'approval_required' ? null : 200;
    const fetched: typeof fetch = async (url, init) => {
      const answer = await fetch(url, init);
      const body = JSON.stringify(change(await answer.text()));
      return new Response(body, { status: status ?? answer.status, headers: answer.headers });
    };
    await sdkError(waitForApproval({ ...world.options, fetch: fetched }, receipt), code);
  }
  // Given only the proof id, waitForApproval learns the request from the first response.
  const bodies = [null, JSON.stringify(foreign)];
  const first: typeof fetch = async (url, init) => {
    const body = bodies.shift() ?? null;
    const type = { 'content-type': 'application/json' };
    return body === null ? fetch(url, init) : new Response(body, { headers: type });
  };
  const unnamed = { ...world.options, fetch: first, retry: FAST };
  const { registry_proof_id: proof_id } = receipt;
  await sdkError(waitForApproval(unnamed, { proof_id }), 'unexpected_response');
  const stopped = { ...world.options, signal: AbortSignal.abort() };
  await sdkError(waitForApproval(stopped, receipt), 'aborted');
  const short = { ...world.options, timeoutMs: 200 };
  await sdkError(waitForApproval(short, receipt), 'timeout');
});

// Must run last: this test replaces the policy set.
it('a required approval is an error with its receipt, and never an admission', async ({
  world,
}) => {
  await activateHold(world.registry.admin);
  const input = intent({ action: 'PAY' });
  const error = await sdkError(executeIntentHttp(world.options, input), 'approval_required');
  const { approval, proofId } = error;
  expect(error).toMatchObject({ status: 202, retryable: false });
  expect(approval?.receipt).toMatchObject({
    status: 'APPROVAL_REQUIRED',
    registry_proof_id: proofId,
  });
  const { evidence } = await readReceiptEvidenceHttp(world.options, approval!.receipt);
  expect(evidence.entry.effect).toBe('REQUIRE_APPROVAL');
  const following = followAdmissionHttp(world.options, { proof_id: proofId! });
  expect((await sdkError(following, 'approval_required')).approval).toEqual(approval);
  for await (const result of admitBatchHttp(world.options, [executeRequest(TENANT, input)])) {
    expect(result).toMatchObject({ state: 'approval_required', approval, replayed: true });
  }
});
