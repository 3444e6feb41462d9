import { connect } from 'node:net';
import { SCOPES } from '#api/engine/http/gates';
import type { OperationSpec } from '#api/engine/operation';
import type { ProblemCode } from '#api/engine/http/problem';
import { issueKey, without, type Call, type Reply, type TestEngine } from './engine.js';
import type { EngineWorld } from './engine-world.js';

/** Makes a call of the operation that is answered as it should be. */
export type GoodCall = (world: EngineWorld) => Promise<Call>;

/** Gets one particular answer out of a real engine. */
export type Scenario = (world: EngineWorld) => Promise<Reply>;

type Change = (call: Call, world: EngineWorld, spec: OperationSpec) => Call | Promise<Call>;

const withHeaders =
  (headers: Record<string, string | string[]>): Change =>
  (call) => ({ ...call, headers: { ...call.headers, ...headers } });

const withBody =
  (body: string | Uint8Array): Change =>
  (call) => ({ ...call, body });

const withMembers =
  (change: (body: Record<string, unknown>) => unknown): Change =>
  (call) => ({
    ...call,
    body: JSON.stringify(change(JSON.parse(String(call.body)) as Record<string, unknown>)),
  });

const LARGER_THAN_ANY_LIMIT = 2 * 1024 * 1024;

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
  body_too_large: withBody(' '.repeat(LARGER_THAN_ANY_LIMIT)),
  unsupported_media_type: withHeaders({ 'Content-Type': 'text/plain' }),
  unsupported_content_encoding: withHeaders({ 'Content-Encoding': 'gzip' }),
  invalid_utf8: withBody(Buffer.from('7b2261223a22ff227d', 'hex')),
  malformed_json: withBody('{"a"'),
  duplicate_key: withBody('{"a":1,"a":1}'),
  lone_surrogate: withBody('{"a":"\\ud800"}'),
  nul_character: withBody('{"a":"\\u0000"}'),
  integer_out_of_range: withBody('{"a":9007199254740992}'),
  too_deep: withBody('['.repeat(33) + ']'.repeat(33)),
  unsupported_schema_version: withMembers((body) => ({ ...body, schema_version: 'svc.other/9.9' })),
  missing_field: withMembers((body) => {
    const [, dropped = ''] = Object.keys(body);
    return without(body, dropped);
  }),
  unknown_field: withMembers((body) => ({ ...body, no_such_field: 1 })),
  invalid_field: withBody('[]'),
  invalid_idempotency_key: withHeaders({ 'X-Svc-Idempotency-Key': 'tab\there' }),
};

/** Where the engine itself, not the call, makes the difference. */
const ENGINES: Partial<Record<ProblemCode, (world: EngineWorld) => TestEngine & { key?: string }>> =
  {
    database_unavailable: ({ cutOff }) => cutOff,
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
  if (code === 'incomplete_body') return async (world) => breakOff(world, await good(world));
  return undefined;
}

function keyedFor({ key }: { key?: string }, call: Call): Call {
  return key === undefined ? call : { ...call, headers: { ...call.headers, 'X-Svc-Api-Key': key } };
}

async function untilLimited({ limited }: EngineWorld, call: Call): Promise<Reply> {
  // The second of a pair is over the limit, unless a new second began between them.
  for (;;) {
    const pair = await Promise.all([limited.call(call), limited.call(call)]);
    const over = pair.find(({ status }) => status === 429);
    if (over !== undefined) return over;
  }
}

/** Sends half of what it says that it sends, and no more. */
async function breakOff({ engine }: EngineWorld, call: Call): Promise<Reply> {
  const { hostname, port } = new URL(engine.url);
  const head = [
    `${call.method ?? ''} ${call.path ?? ''} HTTP/1.1`,
    `Host: ${hostname}`,
    'Content-Length: 1000',
    ...Object.entries(call.headers ?? {}).map(([name, value]) => `${name}: ${String(value)}`),
  ];
  const raw = await new Promise<string>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
    let text = '';
    socket.setEncoding('utf8');
    socket.on('data', (piece: string) => (text += piece));
    socket.on('error', reject);
    socket.on('end', () => resolve(text));
    socket.write(`${head.join('\r\n')}\r\n\r\n{"a"`);
    // The engine reads the body now, and is told that this was all of it.
    setTimeout(() => socket.end(), 100);
  });
  return parseReply(raw);
}

function parseReply(raw: string): Reply {
  const at = raw.indexOf('\r\n\r\n');
  const [line = '', ...lines] = raw.slice(0, at).split('\r\n');
  const bytes = Buffer.from(raw.slice(at + 4));
  return {
    status: Number(line.split(' ')[1]),
    headers: Object.fromEntries(
      lines.map((text) => [
        text.slice(0, text.indexOf(':')).toLowerCase(),
        text.slice(text.indexOf(':') + 2),
      ]),
    ),
    bytes,
    json: JSON.parse(bytes.toString()) as Record<string, unknown>,
  };
}
