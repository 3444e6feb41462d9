import * as z from 'zod';
import { logIndexSchema, timeSchema } from '#protocol/schemas/primitives';
import { formatTime } from '#protocol/time';
import type { Exchange, PublicContext, Operation, PublicSpec } from '../operation.js';
import { CACHE_NEVER, JSON_TYPE, send } from './answer.js';

const healthSchema = z.strictObject({ status: z.literal('ok') });

const readinessMembers = {
  source: z.enum(['directory', 'http']).meta({ description: 'The kind of snapshot source.' }),
  refusal: z.string().nullable().meta({
    description: 'Why the newest snapshot is not served; null when it is.',
  }),
};

const servedMembers = {
  ...readinessMembers,
  generation: z.int().nonnegative(),
  tree_size: logIndexSchema,
  lookup_from: logIndexSchema.meta({
    description: 'The leaf index from which generic lookups cover proofs.',
  }),
  issued_at: timeSchema,
  valid_until: timeSchema,
  age_ms: z.int().nonnegative(),
};

const readySchema = z.strictObject({ status: z.literal('ready'), ...servedMembers });
const notReadySchema = z.discriminatedUnion('status', [
  z.strictObject({ status: z.enum(['no snapshot', 'stopping']), ...readinessMembers }),
  z.strictObject({ status: z.literal('snapshot expired'), ...servedMembers }),
]);

const healthz: PublicSpec = {
  id: 'healthz',
  method: 'get',
  path: '/healthz',
  tag: 'Service',
  summary: 'Check that the process responds',
  fromSnapshot: true,
  responses: {
    200: { description: 'The process responds.', content: { 'application/json': healthSchema } },
  },
  problems: [],
};

const readyz: PublicSpec = {
  id: 'readyz',
  method: 'get',
  path: '/readyz',
  tag: 'Service',
  summary: 'Check that lookups return verdicts',
  description:
    'Ready until the served snapshot expires, also while a newer one is rejected or cannot be read: ' +
    '`refusal` then has the reason.',
  fromSnapshot: true,
  responses: {
    200: {
      description: 'Lookups return verdicts from this snapshot.',
      content: { 'application/json': readySchema },
      example: {
        status: 'ready',
        source: 'directory',
        generation: 4711,
        tree_size: 5,
        lookup_from: 0,
        issued_at: '2026-11-22T08:00:01.000Z',
        valid_until: '2026-11-22T08:15:01.000Z',
        age_ms: 420,
        refusal: null,
      },
    },
    503: {
      description:
        'No snapshot is loaded, the snapshot is expired, or the server is shutting down.',
      content: { 'application/json': notReadySchema },
      headers: { 'Retry-After': 'Seconds.' },
      example: {
        status: 'no snapshot',
        source: 'directory',
        refusal: 'no snapshot is published',
      },
    },
  },
  problems: [],
};

function getHealth(exchange: Exchange): void {
  sendState(exchange, 200, { status: 'ok' });
}

export function publicReadiness(
  ctx: Pick<PublicContext, 'poller' | 'source' | 'clock' | 'stopping'>,
): PublicReadiness {
  const { current, rejection: refusal } = ctx.poller;
  const source = ctx.source.kind;
  if (ctx.stopping?.aborted === true) {
    return { ready: false, details: { status: 'stopping', source, refusal } };
  }
  if (current === null)
    return { ready: false, details: { status: 'no snapshot', source, refusal } };
  const { generation, entry, log, issuedAt, validUntil } = current;
  const now = ctx.clock.now();
  const served = {
    source,
    generation,
    tree_size: log.size,
    lookup_from: log.lookup_from,
    issued_at: entry.time,
    valid_until: formatTime(validUntil),
    age_ms: Math.max(0, now - issuedAt),
    refusal,
  };
  if (now < validUntil) return { ready: true, details: { status: 'ready', ...served } };
  return { ready: false, details: { status: 'snapshot expired', ...served } };
}

function getReadiness(exchange: Exchange): void {
  const { ready, details } = publicReadiness(exchange.ctx);
  sendState(exchange, ready ? 200 : 503, details);
}

type PublicReadiness =
  | { ready: true; details: z.infer<typeof readySchema> }
  | { ready: false; details: z.infer<typeof notReadySchema> };

type State =
  z.infer<typeof healthSchema> | z.infer<typeof readySchema> | z.infer<typeof notReadySchema>;

function sendState(exchange: Exchange, status: 200 | 503, state: State): void {
  send(exchange, exchange.ctx.poller.current, {
    status,
    type: JSON_TYPE,
    cache: CACHE_NEVER,
    body: Buffer.from(JSON.stringify(state)),
    ...(status === 503 && { headers: { 'Retry-After': '2' } }),
  });
}

export const HEALTH_OPERATIONS: readonly Operation[] = [
  { spec: healthz, handler: getHealth },
  { spec: readyz, handler: getReadiness },
];
