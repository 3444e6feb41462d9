import { randomBytes } from 'node:crypto';
import { setAllowlisted, setLane } from '#sql/tenants/administration';
import { BATCHES, LINES } from './batches.js';
import type { GoodCall } from './common-scenarios.js';
import { breakOff } from './spoiled-call.js';
import { eventually } from './stack.js';
import { executeBody, headersFor, without, workBatches } from './engine.js';
import { get, post, type EngineWorld } from './engine-world.js';
import { TENANT } from './registry.js';
import { ABSENT_ID, call, JSON_200, type OperationScenarios } from './scenario-steps.js';

const good: GoodCall = (world) =>
  Promise.resolve(post(world, BATCHES, [executeBody(), { schema_version: 'x' }]));

/** One with something of every kind that there is. */
async function batchOf(world: EngineWorld): Promise<string> {
  const items = [executeBody(), {}, executeBody({ action: 'DELETE_AUDIT_LOG' })];
  const reply = await world.engine.call(post(world, BATCHES, items));
  await workBatches(world.registry);
  return String(reply.json['batch_id']);
}

const readGood: GoodCall = async (world) => get(world, `${BATCHES}/${await batchOf(world)}`);
const resultsGood: GoodCall = async (world) =>
  get(world, `${BATCHES}/${await batchOf(world)}/results`);
const listGood: GoodCall = async (world) => {
  await batchOf(world);
  return get(world, BATCHES);
};

const sent = (body: string, headers: Record<string, string> = {}) =>
  call(async (world) => {
    const request = await good(world);
    return { ...request, headers: { ...request.headers, ...headers }, body };
  });

export const BATCH_SCENARIOS: Record<string, OperationScenarios> = {
  createBatch: {
    good,
    own: {
      '202 application/json': call(good),
      '400 malformed_json': sent('[{"a"'),
      '400 invalid_field': sent('{}'),
      '400 empty_batch': sent('[]'),
      // As lines, or what comes first is that this is no array.
      '400 incomplete_body': async (world) => {
        const request = await good(world);
        return breakOff(world.engine.url, {
          ...request,
          headers: { ...request.headers, ...LINES },
        });
      },
      '408 upload_too_slow': async (world) => {
        // Two of these exceed the memory of one batch.
        const padding = ' '.repeat(3.5 * 1024 * 1024);
        const upload = { body: `[${padding}`, length: padding.length + 2, ends: false };
        let isAnswered = false;
        const slow = breakOff(world.narrow.url, await good(world), upload).finally(() => {
          isAnswered = true;
        });
        const sendAnother = async (): Promise<true | null> => {
          const request = await good(world);
          await world.narrow.call({ ...request, body: `${padding}${String(request.body)}` });
          return isAnswered ? true : null;
        };
        await eventually(sendAnother, 10_000, 'an eviction');
        return slow;
      },
      '413 too_many_items': sent('[' + '1,'.repeat(10_000) + '1]'),
      '422 idempotency_conflict': async (world) => {
        const headers = { 'X-Svc-Idempotency-Key': randomBytes(8).toString('hex') };
        await world.engine.call(post(world, BATCHES, [executeBody()], headers));
        return world.engine.call(post(world, BATCHES, [executeBody()], headers));
      },
      '423 lane_locked': async (world) => {
        await setLane(world.registry.admin, 'sandbox', false);
        const reply = await world.engine.call(await good(world));
        await setLane(world.registry.admin, 'sandbox', true);
        return reply;
      },
      '403 tenant_not_allowlisted': async (world) => {
        await setAllowlisted(world.registry.admin, TENANT, false);
        const reply = await world.engine.call(await good(world));
        await setAllowlisted(world.registry.admin, TENANT, true);
        return reply;
      },
      '503 queue_too_deep': async (world) => world.full.call(await good(world)),
      '503 too_many_batches': async (world) => world.batchless.call(await good(world)),
      '503 policy_missing': async (world) =>
        world.noPolicy.call({ ...(await good(world)), headers: headersFor(world.noPolicy.key) }),
    },
  },
  readBatch: {
    good: readGood,
    own: {
      [JSON_200]: call(readGood),
      '404 batch_not_found': call((world) => get(world, `${BATCHES}/batch_${ABSENT_ID}`)),
    },
  },
  batchResults: {
    good: resultsGood,
    own: {
      [JSON_200]: call(resultsGood),
      '200 application/x-ndjson': call(async (world) => {
        const request = await resultsGood(world);
        const headers = { ...request.headers, Accept: LINES['Content-Type'] };
        return { ...request, headers: without(headers, 'Content-Type') };
      }),
      '404 batch_not_found': call((world) => get(world, `${BATCHES}/batch_${ABSENT_ID}/results`)),
    },
  },
  listBatches: { good: listGood, own: { [JSON_200]: call(listGood) } },
};
