import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { idsOf } from '#protocol/ids';
import type { JsonValue } from '#protocol/json';
import * as sdk from '#sdk/index';
import { openPublicServers, type PublicServers } from '../fixtures/public-servers.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';

let world: SdkWorld;
let facades: PublicServers;
let receipt: sdk.Receipt;
let proof: { proof_id: string };
beforeAll(async () => {
  [world, facades] = await Promise.all([openSdkWorld(), openPublicServers()]);
  receipt = await sdk.executeIntentHttp(world.options, intent());
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
  'svc.registry.entry/1.1',
];
const isFixed = (object: Record<string, JsonValue>): boolean =>
  FIXED.some((version) => object['schema_version'] === version) || 'payloadType' in object;

type Change = (object: Record<string, JsonValue>) => Record<string, JsonValue>;

/** Adds a member to each object outside signed documents; `inFixed` adds to those within. */
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

/** Calls of each function that reads a response, one for each form of the response. */
const calls: Record<string, (fetcher: typeof fetch) => (() => Promise<unknown>)[]> = {
  executeIntentHttp: (fetcher) => [() => sdk.executeIntentHttp(engine(fetcher), intent())],
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
  readReceiptEvidenceHttp: (fetcher) => [
    () => sdk.readReceiptEvidenceHttp(engine(fetcher), receipt),
  ],
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

/** Functions whose results are created by the SDK, or are signed documents. */
const WITHOUT = [
  'executeIntentHttp',
  'admitHttp',
  'followAdmissionHttp',
  'admitBatchHttp',
  'followBatchHttp',
  'readReceiptEvidenceHttp',
];

describe('response member that a later version adds', () => {
  it('is tested below for every function of the SDK', () => {
    // `readEvidenceHttp` returns the bytes as sent.
    const functions = Object.keys(sdk).filter(
      (name) => name.endsWith('Http') && name !== 'readEvidenceHttp',
    );
    expect(Object.keys(calls).sort()).toEqual(functions.sort());
  });

  it.each(Object.keys(calls))('is accepted and returned by %s', async (name) => {
    const [first] = await Promise.all(calls[name]!(adding).map((call) => call()));
    if (!WITHOUT.includes(name)) expect(JSON.stringify(first)).toContain('"added_since":"text"');
  });

  it('is accepted in a problem document', async () => {
    const unknown = { proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f' };
    const { problem } = await sdkError(sdk.readProofHttp(engine(adding), unknown), 'not_found');
    expect(problem).toMatchObject({ code: 'proof_not_found', added_since: 'text' });
  });

  it.each([...FIXED, 'payloadType'])('is rejected in the signed document %s', async (version) => {
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
