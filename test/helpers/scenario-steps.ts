import type { GoodCall, Scenario } from './common-scenarios.js';
import type { Call } from './engine.js';
import { get, type EngineWorld } from './engine-world.js';

/** What gets each operation's own answers out of a real engine, by status and code or media type. */
export interface OperationScenarios {
  good: GoodCall;
  own: Record<string, Scenario>;
}

/** Of the right form, and of nothing. */
export const ABSENT_ID = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
export const JSON_200 = '200 application/json';

export const call =
  (make: (world: EngineWorld) => Promise<Call> | Call): Scenario =>
  async (world) =>
    world.engine.call(await make(world));

export const notModified =
  (good: GoodCall): Scenario =>
  async (world) => {
    const request = await good(world);
    const first = await world.engine.call(request);
    const headers = { ...request.headers, 'If-None-Match': String(first.headers.etag) };
    return world.engine.call({ ...request, headers });
  };

/** A list that has something in it, and is filtered by nothing. */
export function listScenarios(
  path: string,
  fill: (world: EngineWorld) => Promise<void>,
): OperationScenarios {
  const good: GoodCall = async (world) => {
    await fill(world);
    return get(world, path);
  };
  return { good, own: { [JSON_200]: call(good) } };
}
