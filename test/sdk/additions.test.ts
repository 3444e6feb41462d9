import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JsonValue } from '#protocol/json';
import * as sdk from '#sdk/index';
import { listOf } from '../fixtures/list-of.js';
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
  'svc.aep/1.1',
  'svc.registry.proof_record/1.1',
  'svc.registry.entry/1.1',
];
const isFixed = (object: Record<string, JsonValue>): boolean =>
  FIXED.some((version) => object['schema_version'] === version) || 'payloadType' in object;

type Change = (object: Record<string, JsonValue>) => Record<string, JsonValue>;

/** Applies `change` to each object outside signed documents, and `inFixed` to each signed document. */
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

const execution = (action?: string) =>
  sdk.executeRequest('acme', intent(action === undefined ? {} : { action }));

type Calls = (engine: sdk.EngineOptions, registry: sdk.PublicOptions) => Promise<unknown>[];

/** Calls that cover each form of response; all functions use one parser. */
const calls: Record<string, Calls> = {
  executeIntentHttp: (engine) => [sdk.executeIntentHttp(engine, intent())],
  admitHttp: (engine) => [
    sdk.admitHttp(engine, { kind: 'admission', agent: { id: 'a' }, action: 'SEND' }),
  ],
  admitBatchHttp: (engine) => [
    listOf(
      sdk.admitBatchHttp(engine, [execution(), execution('DELETE_AUDIT_LOG')], {
        onProgress: (progress) => expect(progress).not.toHaveProperty('added_since'),
      }),
    ).then((results) => {
      expect(results.map(({ state }) => state)).toEqual(['admitted', 'denied']);
    }),
  ],
  readProofHttp: (engine) => [sdk.readProofHttp(engine, proof)],
  exportProofHttp: (engine) => [sdk.exportProofHttp(engine, proof)],
  lookupHttp: (_engine, registry) => [
    sdk.lookupHttp(registry, { kind: 'proof', identifier: facades.proof }),
    sdk.lookupHttp(registry, { kind: 'package', identifier: facades.packageId }),
    sdk.lookupHttp(registry, { kind: 'trust', identifier: 'trust_unknown' }),
    sdk.lookupHttp(registry, { kind: 'proof', identifier: 'unknown' }),
  ],
  readPublicKeysHttp: (_engine, registry) => [
    sdk.readPublicKeysHttp(registry).then((keys) => {
      expect(sdk.pinsOf(keys.record).aepKeys?.length).toBeGreaterThan(0);
      return keys;
    }),
  ],
};

/** Calls a function of the SDK with this `fetch`. */
const callsWith = (name: string, fetcher: typeof fetch) =>
  calls[name]!(
    { ...world.options, fetch: fetcher },
    { publicUrl: facades.good.server.url, fetch: fetcher },
  );

/** Functions whose results the SDK creates, or whose results are signed documents. */
const WITHOUT = ['executeIntentHttp', 'admitHttp', 'admitBatchHttp'];

describe('response member that a later version adds', () => {
  it.each(Object.keys(calls))('is accepted and returned by %s', async (name) => {
    const [first] = await Promise.all(callsWith(name, adding));
    if (!WITHOUT.includes(name)) expect(JSON.stringify(first)).toContain('"added_since":"text"');
  });

  it('is accepted in a problem document', async () => {
    const unknown = { proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f' };
    const { problem } = await sdkError(
      sdk.readProofHttp({ ...world.options, fetch: adding }, unknown),
      'not_found',
    );
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
      const [first] = await Promise.allSettled(callsWith(name, fetcher));
      if (wasChanged) rejected++;
      const outcome = wasChanged
        ? { status: 'rejected', reason: { code: 'unexpected_response' } }
        : { status: 'fulfilled' };
      expect([name, first]).toMatchObject([name, outcome]);
    }
    expect(rejected).toBeGreaterThan(0);
  });
});
