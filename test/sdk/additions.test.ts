import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { idsOf } from '#protocol/ids';
import type { JsonValue } from '#protocol/json';
import * as sdk from '#sdk/index';
import { openPublicServers, type PublicServers } from '../fixtures/public-servers.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';

let world: SdkWorld;
let facades: PublicServers;
let proof: { proof_id: string };
beforeAll(async () => {
  [world, facades] = await Promise.all([openSdkWorld(), openPublicServers()]);
  const receipt = await sdk.executeIntentHttp(world.options, intent());
  proof = { proof_id: receipt.registry_proof_id };
  await world.registry.verifyAll();
  await world.log.publish();
});
afterAll(() => Promise.all([world.close(), facades.close()]));

const FIXED = [
  'svc.runtime.intent_execute.response/1.0',
  'svc.agent.admission.response/1.0',
  'svc.aep/1.0',
  'svc.registry.proof_record/1.0',
  'svc.registry.entry/1.0',
];
const isFixed = (object: Record<string, JsonValue>): boolean =>
  FIXED.some((version) => object['schema_version'] === version) || 'payloadType' in object;

type Change = (object: Record<string, JsonValue>) => Record<string, JsonValue>;

/** Changes every object outside fixed documents; `inFixed` changes the fixed documents. */
function changed(value: JsonValue, change: Change, inFixed: Change = (same) => same): JsonValue {
  if (Array.isArray(value)) return value.map((one) => changed(one, change, inFixed));
  if (value === null || typeof value !== 'object') return value;
  if (isFixed(value)) return inFixed(value);
  const members = Object.entries(value).map(([name, one]) => [name, changed(one, change, inFixed)]);
  return change(Object.fromEntries(members) as Record<string, JsonValue>);
}

const same: Change = (object) => object;
const added: Change = (object) => ({ ...object, added_since: 'text' });

/** A `fetch` that changes JSON responses. */
const through =
  (change: (document: JsonValue) => JsonValue): typeof fetch =>
  async (input, init) => {
    const response = await fetch(input, init);
    const { status, headers } = response;
    if (!/[/+]json/.test(headers.get('content-type') ?? '')) return response;
    const text = JSON.stringify(change((await response.json()) as JsonValue));
    return new Response(text, { status, headers });
  };
const adding = through((document) => changed(document, added));

const PROBLEM = {
  type: 'urn:svc:problem:invalid_body',
  title: 'Invalid body',
  status: 400,
  detail: 'text',
  code: 'invalid_body',
};

/** Replaces the first receipt by the 202 that precedes it. */
function pendingFirst(then: typeof fetch): typeof fetch {
  let isFirst = true;
  return async (input, init) => {
    const response = await then(input, init);
    if (!isFirst) return response;
    isFirst = false;
    const { registry_proof_id: id } = (await response.json()) as { registry_proof_id: string };
    const body = { schema_version: 'svc.runtime.admission_status/1.0', proof_id: id };
    return new Response(JSON.stringify(added({ ...body, state: 'pending' })), {
      status: 202,
      headers: {
        'Content-Type': 'application/json',
        Location: `/v1/admissions/${id}`,
        'Retry-After': '0',
      },
    });
  };
}

async function listOf<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

const engine = (fetcher: typeof fetch) => ({ ...world.options, fetch: fetcher });
const registry = (fetcher: typeof fetch) => ({
  publicUrl: facades.good.server.url,
  fetch: fetcher,
});
const trust = () => ({ kind: 'trust', identifier: idsOf(facades.proof).trust_id }) as const;
const exported = async () => (await sdk.exportProofHttp(world.options, proof)).response;

/** Every function that reads a response, with one call per form of its response. */
const calls: Record<string, (fetcher: typeof fetch) => (() => Promise<unknown>)[]> = {
  executeIntentHttp: (fetcher) => [
    () => sdk.executeIntentHttp(engine(fetcher), intent()),
    () => sdk.executeIntentHttp(engine(pendingFirst(fetcher)), intent()),
  ],
  admitHttp: (fetcher) => [
    () => sdk.admitHttp(engine(fetcher), { kind: 'admission', agent: { id: 'a' }, action: 'SEND' }),
  ],
  followAdmissionHttp: (fetcher) => [() => sdk.followAdmissionHttp(engine(fetcher), proof)],
  admitBatchHttp: (fetcher) => [
    () =>
      listOf(
        sdk.admitBatchHttp(
          engine(fetcher),
          [
            sdk.executeRequest('acme', intent()),
            sdk.executeRequest('acme', intent({ action: 'DELETE_AUDIT_LOG' })),
          ],
          { onProgress: (progress) => expect(progress).not.toHaveProperty('added_since') },
        ),
      ).then((results) => {
        expect(results.map(({ state }) => state)).toEqual(['admitted', 'denied']);
      }),
  ],
  followBatchHttp: (fetcher) => [
    async () => {
      const item = sdk.executeRequest('acme', intent());
      const [accepted] = await listOf(sdk.admitBatchHttp(world.options, [item]));
      return sdk.followBatchHttp(engine(fetcher), { batch_id: accepted!.batch_id });
    },
  ],
  readProofHttp: (fetcher) => [() => sdk.readProofHttp(engine(fetcher), proof)],
  exportProofHttp: (fetcher) => [
    () => sdk.exportProofHttp(engine(fetcher), proof),
    () => sdk.exportProofHttp(engine(fetcher), { ...proof, format: 'aep-json' }),
  ],
  getProofInclusionHttp: (fetcher) => [() => sdk.getProofInclusionHttp(engine(fetcher), proof)],
  verifyProofHttp: (fetcher) => [
    () => sdk.verifyProofHttp(engine(fetcher), proof),
    () => exported().then((document) => sdk.verifyProofHttp(engine(fetcher), document)),
  ],
  replayProofHttp: (fetcher) => [() => sdk.replayProofHttp(engine(fetcher), proof)],
  listProofPageHttp: (fetcher) => [() => sdk.listProofPageHttp(engine(fetcher))],
  listProofsHttp: (fetcher) => [() => listOf(sdk.listProofsHttp(engine(fetcher)))],
  lookupHttp: (fetcher) => [
    () => sdk.lookupHttp(registry(fetcher), { kind: 'proof', identifier: facades.proof }),
    () => sdk.lookupHttp(registry(fetcher), { kind: 'package', identifier: facades.packageId }),
    () => sdk.lookupHttp(registry(fetcher), { kind: 'trust', identifier: 'trust_unknown' }),
    () => sdk.lookupHttp(registry(fetcher), { kind: 'proof', identifier: 'unknown' }),
  ],
  lookupByBodyHttp: (fetcher) => [
    () => sdk.lookupByBodyHttp(registry(fetcher), { proof_id: facades.proof }),
  ],
  readHistoryHttp: (fetcher) => [() => sdk.readHistoryHttp(registry(fetcher), trust())],
  readTrustChainHttp: (fetcher) => [() => sdk.readTrustChainHttp(registry(fetcher), trust())],
  readTrustPackageHttp: (fetcher) => [
    () => sdk.readTrustPackageHttp(registry(fetcher), { trust_id: trust().identifier }),
  ],
  readPublicKeysHttp: (fetcher) => [
    () =>
      sdk.readPublicKeysHttp(registry(fetcher)).then((keys) => {
        const { aepKeys } = sdk.pinsOf(keys.record);
        expect(aepKeys?.length).toBeGreaterThan(0);
        return keys;
      }),
  ],
  waitForVerdictHttp: (fetcher) => [
    () => sdk.waitForVerdictHttp(registry(fetcher), { proof_id: facades.proof }),
  ],
};

/** Functions whose results are the SDK's own, or fixed documents. */
const WITHOUT = [
  'executeIntentHttp',
  'admitHttp',
  'followAdmissionHttp',
  'admitBatchHttp',
  'followBatchHttp',
];

describe('an added member', () => {
  it('is tested for every function', () => {
    const functions = Object.keys(sdk).filter((name) => name.endsWith('Http'));
    expect(Object.keys(calls).sort()).toEqual(functions.sort());
  });

  it.each(Object.keys(calls))('is accepted and returned by %s', async (name) => {
    const [first] = await Promise.all(calls[name]!(adding).map((call) => call()));
    if (!WITHOUT.includes(name)) expect(JSON.stringify(first)).toContain('"added_since":"text"');
  });

  it('is accepted in problem documents and denials', async () => {
    const invalid = through(() =>
      changed({ ...PROBLEM, errors: [{ pointer: '/a', detail: 'text' }] }, added),
    );
    const rejecting: typeof fetch = async (input, init) => {
      const { headers, body } = await invalid(input, init);
      const type = { ...Object.fromEntries(headers), 'content-type': 'application/problem+json' };
      return new Response(body, { status: 400, headers: type });
    };
    const read = sdk.readProofHttp(engine(rejecting), proof);
    const { problem } = await sdkError(read, 'invalid_request');
    expect(problem).toMatchObject({ added_since: 'text', errors: [{ added_since: 'text' }] });
    const denied = sdk.executeIntentHttp(engine(adding), intent({ action: 'DELETE_AUDIT_LOG' }));
    expect((await sdkError(denied, 'policy_denied')).denial?.receipt.status).toBe('DENIED');
    const lookup = sdk.lookupHttp(registry(rejecting), {
      kind: 'proof',
      identifier: facades.proof,
    });
    await sdkError(lookup, 'invalid_request');
  });

  it.each([...FIXED, 'payloadType'])('is rejected in the fixed document %s', async (version) => {
    const isOne: Change = (object) =>
      object['schema_version'] === version || version in object ? added(object) : object;
    let rejected = 0;
    for (const name of ['executeIntentHttp', 'admitHttp', 'readProofHttp', 'exportProofHttp']) {
      let wasChanged = false;
      const fetcher = through((document) => {
        const other = changed(document, same, isOne);
        wasChanged ||= JSON.stringify(other) !== JSON.stringify(document);
        return other;
      });
      const [call] = calls[name]!(fetcher);
      const outcome = await call!().then(
        () => 'accepted',
        (error: sdk.SdkError) => error.code,
      );
      if (outcome !== 'accepted') rejected++;
      expect([name, outcome]).toEqual([name, wasChanged ? 'unexpected_response' : 'accepted']);
    }
    expect(rejected).toBeGreaterThan(0);
  });
});

describe('an unknown value', () => {
  const inAnswer = (name: string, value: JsonValue): typeof fetch =>
    through((document) =>
      changed(document, (object) => (name in object ? { ...object, [name]: value } : object)),
    );

  it.each([
    ['a status', 'verification_status', 'SUPER_VALID'],
    ['a contradictory status', 'verification_status', 'REVOKED'],
    ['an effect', 'effect', 'MAYBE'],
    ['a hash', 'aep_hash', 'none'],
  ])('is rejected in a lookup: %s', async (_what, name, value) => {
    const call = calls['waitForVerdictHttp']!(inAnswer(name, value))[0]!();
    await sdkError(call, 'unexpected_response');
  });

  it('is rejected in a verdict and in the counts of a batch', async () => {
    const verdict = calls['verifyProofHttp']!(inAnswer('status', 'SUPER_VALID'))[0]!();
    await sdkError(verdict, 'unexpected_response');
    const batch = calls['followBatchHttp']!(inAnswer('total', 2))[0]!();
    await sdkError(batch, 'unexpected_response');
  });
});
