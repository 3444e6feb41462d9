import { createHash } from 'node:crypto';
import { describe, expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import {
  admitHttp,
  canonicalJson,
  executeIntentHttp,
  exportProofHttp,
  exportRunHttp,
  followAdmissionHttp,
  followBatchHttp,
  getProofInclusionHttp,
  listProofPageHttp,
  listProofsHttp,
  readProofHttp,
  readRunHttp,
  replayProofHttp,
  verifyProofHttp,
  type JsonValue,
  type RequestHashEnvelope,
} from '#sdk/index';
import { parseTlogProof } from '#protocol/checkpoint';
import { newRunId } from '../fixtures/agent.js';
import { headersFor } from '../fixtures/engine.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, sdkTest, type SdkWorld } from '../fixtures/sdk-world.js';
import { openFolder, svc } from '../fixtures/svc.js';

const UNKNOWN = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

/** `proof` has a verdict, and a published checkpoint covers it; `run` is a closed run. */
const it = sdkTest().extend<{
  proof: { proof_id: string };
  run: Awaited<ReturnType<typeof closedRun>>;
}>({
  run: [async ({ world }, use) => use(await closedRun(world)), { scope: 'file' }],
  proof: [
    async ({ world }, use) => {
      const receipt = await executeIntentHttp(world.options, intent());
      await world.registry.verifyAll();
      await world.log.publish();
      await use({ proof_id: receipt.registry_proof_id });
    },
    { scope: 'file' },
  ],
});

const sha256 = (bytes: string | Uint8Array): string =>
  createHash('sha256').update(bytes).digest('hex');

/** Recomputes the hashes of a request and its response. */
function expectEnvelope(envelope: RequestHashEnvelope<unknown>, request: JsonValue): void {
  expect(envelope.canonical_request).toBe(canonicalJson(request));
  expect(envelope.request_hash).toBe(sha256(envelope.canonical_request));
  const bytes =
    envelope.response instanceof Uint8Array
      ? envelope.response
      : typeof envelope.response === 'string'
        ? envelope.response
        : canonicalJson(envelope.response as JsonValue);
  expect(envelope.response_hash).toBe(sha256(bytes));
  expect(envelope.request_id).toMatch(/^[0-9a-f-]{32,36}$/);
}

const got = (path: string, query: Record<string, string> = {}): JsonValue => ({
  method: 'GET',
  path,
  query,
});

/** The bytes of the engine's response, read without the SDK. */
async function answered({ options, engine }: SdkWorld, path: string): Promise<Buffer> {
  const headers = { ...headersFor(options.apiKey), Accept: 'application/json' };
  return (await engine.call({ method: 'GET', path, headers })).bytes;
}

describe('readProofHttp', () => {
  it("returns the engine's unchanged response, and adds the hash of the request", async ({
    world,
    proof,
  }) => {
    const envelope = await readProofHttp(world.options, proof);
    expectEnvelope(envelope, got(`/v1/proofs/${proof.proof_id}`));
    const bytes = await answered(world, `/v1/proofs/${proof.proof_id}`);
    expect(envelope.response).toEqual(JSON.parse(bytes.toString()));
    expect(envelope.response_hash).toBe(sha256(bytes));
    expect(envelope.response.verdict.can_assert_validity).toBe(true);
  });

  it('throws not_found for an unknown id, and sends no text that is not an id', async ({
    world,
  }) => {
    const error = await sdkError(readProofHttp(world.options, { proof_id: UNKNOWN }), 'not_found');
    const problem = { code: 'proof_not_found', request_id: error.requestId };
    expect(error).toMatchObject({ problem, requestId: expect.any(String) as string });
    const texts = ['', '../batches', `${UNKNOWN}/export`, UNKNOWN.toUpperCase()];
    for (const id of [...texts, undefined as never, [UNKNOWN] as never]) {
      const input = { proof_id: id };
      await sdkError(readProofHttp(world.shaky, input), 'invalid_input');
      await sdkError(exportProofHttp(world.shaky, input), 'invalid_input');
      await sdkError(getProofInclusionHttp(world.shaky, input), 'invalid_input');
      await sdkError(verifyProofHttp(world.shaky, input), 'invalid_input');
      await sdkError(replayProofHttp(world.shaky, input), 'invalid_input');
      await sdkError(followAdmissionHttp(world.shaky, input), 'invalid_input');
    }
    for (const batch_id of [undefined as never, [`batch_${UNKNOWN}`] as never]) {
      await sdkError(followBatchHttp(world.shaky, { batch_id }), 'invalid_input');
    }
    expect(world.network.seen).toEqual([]);
  });
});

it('verifyProofHttp > sends a canonical JSON body, and returns the verdict unless it contradicts itself', async ({
  world,
  proof,
}) => {
  const envelope = await verifyProofHttp(world.shaky, proof);
  const request = { schema_version: 'svc.verification.verify_request/1.0', ...proof };
  expectEnvelope(envelope, request);
  expect(world.network.seen[0]?.body).toBe(envelope.canonical_request);
  expect(envelope.response).toMatchObject({ status: 'VALID', can_assert_validity: true });
  const change = (body: string) => body.replace('"status":"VALID"', '"status":"REVOKED"');
  world.network.faults.push({ kind: 'changed', change });
  const error = await sdkError(verifyProofHttp(world.shaky, proof), 'unexpected_response');
  expect(error.message).toContain('can_assert_validity');
});

it('getProofInclusionHttp > returns JSON, or a C2SP tlog-proof', async ({ world, proof }) => {
  const path = `/v1/proofs/${proof.proof_id}/inclusion`;
  const json = await getProofInclusionHttp(world.options, proof);
  expectEnvelope(json, got(path));
  expect(json.response.state).toBe('included');
  const text = await getProofInclusionHttp(world.options, { ...proof, format: 'tlog-proof' });
  expectEnvelope(text, got(path));
  const { index, checkpoint } = parseTlogProof(text.response);
  expect(index).toBe(json.response.leaf_index);
  expect(checkpoint).toBe(json.response.inclusion?.checkpoint);
  world.network.faults.push({ kind: 'changed', change: (body) => body.replace('index ', 'at ') });
  const html = { 'Content-Type': 'text/html' };
  world.network.faults.push({ kind: 'answer', status: 200, headers: html, body: text.response });
  for (let i = 0; i < 2; i++) {
    const changed = getProofInclusionHttp(world.shaky, { ...proof, format: 'tlog-proof' });
    await sdkError(changed, 'unexpected_response');
  }
});

it('replayProofHttp > returns the replay with the hash of the request', async ({
  world,
  proof,
}) => {
  const envelope = await replayProofHttp(world.options, proof);
  const request = { schema_version: 'svc.verification.replay_request/1.0', ...proof };
  expectEnvelope(envelope, request);
  expect(envelope.response).toMatchObject({ result: 'match', differences: [] });
  const { policy_digest } = envelope.response;
  const other = await replayProofHttp(world.options, { ...proof, policy_digest });
  expect(other.response.counterfactual).toMatchObject({ differs: false });
  const change = (body: string) => body.replaceAll(policy_digest, 'f'.repeat(64));
  world.network.faults.push({ kind: 'changed', change });
  const changed = replayProofHttp(world.shaky, { ...proof, policy_digest });
  await sdkError(changed, 'unexpected_response');
});

describe('listProofsHttp', () => {
  it('yields all pages, the newest proof first', async ({ world }) => {
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) {
      const one = await executeIntentHttp(world.options, intent({ action: 'COUNT_TABLES' }));
      ids.unshift(one.registry_proof_id);
    }
    const filter = { action: 'COUNT_TABLES', effect: 'ADMIT', lane: 'execute' } as const;
    const listed: string[] = [];
    for await (const { proof_id } of listProofsHttp(world.options, filter)) listed.push(proof_id);
    expect(listed).toEqual(ids);

    const paged: string[] = [];
    let cursor: string | null = null;
    do {
      const page = await listProofPageHttp(world.options, {
        ...filter,
        limit: 2,
        ...(cursor !== null && { cursor }),
      });
      expect(page.proofs.length).toBeLessThanOrEqual(2);
      paged.push(...page.proofs.map(({ proof_id }) => proof_id));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(paged).toEqual(ids);
  });

  it('throws for a rejected query, and when a cursor repeats', async ({ world }) => {
    const all = async (): Promise<void> => {
      for await (const one of listProofsHttp(world.options, { from: 'yesterday' })) void one;
    };
    expect((await sdkError(all(), 'invalid_request')).problem?.code).toBe('invalid_query');
    const page = { limit: 1, action: 'COUNT_TABLES' };
    const { next_cursor: cursor } = await listProofPageHttp(world.options, page);
    world.network.faults.push({
      kind: 'changed',
      change: (body) => body.replace(/"next_cursor":"[^"]*"/, `"next_cursor":"${cursor ?? ''}"`),
    });
    const call = listProofPageHttp(world.shaky, { ...page, cursor: cursor ?? '' });
    await sdkError(call, 'unexpected_response');
  });
});

const agent = 'agent-7';

/** A run of two requests and its close, under a checkpoint. */
async function closedRun({ options, log }: SdkWorld) {
  const id = newRunId();
  const send = (seq: number) =>
    admitHttp(options, {
      ...{ kind: 'admission', agent: { id: agent }, action: 'BOOK', run: { id, seq } },
    });
  const receipts = [await send(0), await send(1)];
  await admitHttp(options, { kind: 'close', agent: { id: agent }, run: { id, seq: 2 } });
  await log.publish();
  return { id, members: receipts.map(({ registry_proof_id: proof }) => proof) };
}

it('readRunHttp and listProofPageHttp > return the requests of a run', async ({ run, world }) => {
  const { response } = await readRunHttp(world.options, { run: run.id, agent });
  expect(response).toMatchObject({ state: 'closed', missing: [] });
  expect(response.members.map(({ proof_id }) => proof_id)).toEqual(run.members);
  const listed = await listProofPageHttp(world.options, { run: run.id, agent, bound: false });
  const ids = listed.proofs.map(({ proof_id }) => proof_id);
  expect(ids).toEqual([response.close_proof_id, ...run.members.toReversed()]);
  await sdkError(readRunHttp(world.options, { run: run.id, agent: 'other' }), 'not_found');
  await sdkError(readRunHttp(world.shaky, { run: '../proofs', agent }), 'invalid_input');
});

it('exportRunHttp > rejects the package of another run', async ({ run, world }) => {
  const other = await closedRun(world);
  const { response } = await exportRunHttp(world.options, { run: other.id, agent });
  world.network.faults.push({ kind: 'changed', change: () => JSON.stringify(response) });
  await sdkError(exportRunHttp(world.shaky, { run: run.id, agent }), 'unexpected_response');
});

it('svc > exports a run, and verifies it offline', async ({ run, world }) => {
  const folder = await openFolder();
  const { apiKey, engineUrl, tenantId } = world.options;
  const env = { SVC_ENGINE_URL: engineUrl, SVC_API_KEY: apiKey, SVC_TENANT_ID: tenantId };
  const command = (...args: string[]) => svc(args, { cwd: folder.path, env });
  const pins = ['--log-vkey', world.log.vkey, '--log-origin', world.log.origin];
  const key = toBase64Url(world.registry.admit.signer.publicKey);
  const verify = ['verify', 'run.json', '--offline', '--aep-key', key];
  expect(await command('export', run.id, '--agent', agent, '-o', 'run.json')).toMatchObject({
    code: 0,
  });
  const verified = await command(...verify, ...pins);
  expect(verified).toMatchObject({ code: 0 });
  expect(verified.stdout).toContain(`${run.id} of ${agent} (claimed by the caller)`);
  for (const member of run.members) {
    expect(verified.stdout).toMatch(new RegExp(`${member}.*, agent claimed by the caller`));
  }
  expect(await command(...verify)).toMatchObject({ code: 3 });
  const pdf = await command('export', run.id, '--agent', agent, '--format', 'pdf');
  expect(pdf).toMatchObject({ code: 2 });
});
