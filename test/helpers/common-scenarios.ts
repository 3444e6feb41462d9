import { SCOPES } from '#api/engine/http/gates';
import type { OperationSpec } from '#api/engine/operation';
import type { ProblemCode } from '#api/engine/http/problem';
import { issueKey, without, type Call, type Reply, type TestEngine } from './engine.js';
import type { EngineWorld } from './engine-world.js';
import { holdLock } from './held.js';
import { breakOff, SPOILED_BODIES, withHeaders, withMembers } from './spoiled-call.js';

/** Makes a call of the operation that is answered as it should be. */
export type GoodCall = (world: EngineWorld) => Promise<Call>;

/** Gets one particular answer out of a real engine. */
export type Scenario = (world: EngineWorld) => Promise<Reply>;

type Change = (call: Call, world: EngineWorld, spec: OperationSpec) => Call | Promise<Call>;

/** What spoils a good call, for each problem that operations have in common. */
const CHANGES: Partial<Record<ProblemCode, Change>> = {
  malformed_path: (call, _world, { path }) => ({
    ...call,
    path: path.replaceAll(/\{\w+\}/g, '%zz'),
  }),
  unauthenticated: withHeaders({ 'X-Svc-Api-Key': 'wrong' }),
  tenant_header_missing: (call) => ({
    ...call,
    headers: without(call.headers ?? {}, 'X-Svc-Tenant-Id'),
  }),
  tenant_mismatch: withHeaders({ 'X-Svc-Tenant-Id': 'somebody-else' }),
  scope_missing: async (call, world, { scopes }) => {
    const others = SCOPES.filter((scope) => scope !== 'admin' && !scopes.includes(scope));
    const key = await issueKey(world.registry, { scopes: others });
    return { ...call, headers: { ...call.headers, 'X-Svc-Api-Key': key } };
  },
  unsupported_api_version: withHeaders({ 'svc-api-version': 'v2' }),
  duplicate_header: withHeaders({ 'svc-api-version': ['v1', 'v1'] }),
  not_acceptable: withHeaders({ Accept: 'image/png' }),
  invalid_query: (call) => ({ ...call, path: `${call.path ?? ''}?no-such-parameter=1` }),
  ...SPOILED_BODIES,
  missing_field: withMembers((body) => {
    const [, dropped = ''] = Object.keys(body);
    return without(body, dropped);
  }),
  invalid_idempotency_key: withHeaders({ 'X-Svc-Idempotency-Key': 'tab\there' }),
};

/** Where the engine itself, not the call, makes the difference. */
const ENGINES: Partial<Record<ProblemCode, (world: EngineWorld) => TestEngine & { key?: string }>> =
  {
    database_unavailable: ({ dbDown }) => dbDown,
    internal_error: ({ broken }) => broken,
  };

/** The scenario of a problem that is the same for every operation; undefined when it is its own. */
export function commonScenario(
  code: ProblemCode,
  spec: OperationSpec,
  good: GoodCall,
): Scenario | undefined {
  const change = CHANGES[code];
  if (change !== undefined) {
    return async (world) => world.engine.call(await change(await good(world), world, spec));
  }
  const engineOf = ENGINES[code];
  if (engineOf !== undefined) {
    return async (world) => {
      const engine = engineOf(world);
      return engine.call(keyedFor(engine, await good(world)));
    };
  }
  if (code === 'rate_limited') return async (world) => untilLimited(world, await good(world));
  if (code === 'tenant_busy') return async (world) => whileLocked(world, await good(world));
  if (code === 'incomplete_body')
    return async (world) => breakOff(world.engine.url, await good(world));
  return undefined;
}

function keyedFor({ key }: { key?: string }, call: Call): Call {
  return key === undefined ? call : { ...call, headers: { ...call.headers, 'X-Svc-Api-Key': key } };
}

/** Nothing can be accepted while another transaction has the lock. */
async function whileLocked({ db, busy }: EngineWorld, call: Call): Promise<Reply> {
  const unlock = await holdLock(db.sql, 'lock table svc.intake in exclusive mode');
  try {
    return await busy.call(call);
  } finally {
    await unlock();
  }
}

async function untilLimited({ limited }: EngineWorld, call: Call): Promise<Reply> {
  // The second of a pair is over the limit, unless a new second began between them.
  for (;;) {
    const pair = await Promise.all([limited.call(call), limited.call(call)]);
    const over = pair.find(({ status }) => status === 429);
    if (over !== undefined) return over;
  }
}
