import * as z from 'zod';
import { logIndexSchema, timeSchema } from '#protocol/schemas/primitives';
import { formatTime } from '#protocol/time';
import type { Readiness } from '#runtime/ops/health';
import type { Exchange, PublicContext, Operation } from '../operation.js';
import { CACHE_NEVER, JSON_TYPE, send } from './answer.js';

const readinessMembers = {
  source: z.enum(['directory', 'http', 'bucket']).describe('The kind of snapshot source.'),
  refusal: z
    .string()
    .nullable()
    .describe('Why the newest snapshot is not served; null when it is served.'),
};

const servedMembers = {
  ...readinessMembers,
  generation: z.int().nonnegative(),
  tree_size: logIndexSchema,
  lookup_from: logIndexSchema.describe('The first leaf index that generic lookups cover.'),
  issued_at: timeSchema,
  valid_until: timeSchema,
  age_ms: z.int().nonnegative(),
};

const readySchema = z.strictObject({ status: z.literal('ready'), ...servedMembers });
const notReadySchema = z.discriminatedUnion('status', [
  z.strictObject({ status: z.enum(['no snapshot', 'stopping']), ...readinessMembers }),
  z.strictObject({ status: z.literal('snapshot expired'), ...servedMembers }),
]);

export function publicReadiness(
  ctx: Pick<PublicContext, 'poller' | 'source' | 'clock' | 'stopping'>,
): Readiness {
  const { current, rejection: refusal } = ctx.poller;
  const source = ctx.source.kind;
  const isStopping = ctx.stopping?.aborted === true;
  if (isStopping || current === null) {
    const status = isStopping ? 'stopping' : 'no snapshot';
    return { ready: false, details: { status, source, refusal } };
  }
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
  const unusable = current.unusableAt(now);
  if (unusable === null) return { ready: true, details: { status: 'ready', ...served } };
  const cause =
    unusable === 'ahead'
      ? (refusal ?? 'its time is far ahead of the clock of this server')
      : refusal;
  return { ready: false, details: { status: 'snapshot expired', ...served, refusal: cause } };
}

function sendState(exchange: Exchange, status: 200 | 503, state: object): void {
  send(exchange, exchange.ctx.poller.current, {
    status,
    type: JSON_TYPE,
    cache: CACHE_NEVER,
    body: Buffer.from(JSON.stringify(state)),
    ...(status === 503 && { headers: { 'Retry-After': '2' } }),
  });
}

const service = { method: 'get', tag: 'Service', fromSnapshot: true, problems: [] } as const;

export const HEALTH_OPERATIONS: readonly Operation[] = [
  {
    spec: {
      ...service,
      id: 'healthz',
      path: '/healthz',
      summary: 'Check that the process responds',
      responses: {
        200: {
          description: 'The process responds.',
          content: { 'application/json': z.strictObject({ status: z.literal('ok') }) },
        },
      },
    },
    handler: (exchange) => sendState(exchange, 200, { status: 'ok' }),
  },
  {
    spec: {
      ...service,
      id: 'readyz',
      path: '/readyz',
      summary: 'Check that lookups return verdicts',
      description:
        'Ready until the served snapshot expires, also while a newer one is rejected or cannot be read: ' +
        '`refusal` then has the reason.',
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
            'No snapshot is loaded, the snapshot is expired or far ahead of the clock, or the server is shutting down.',
          content: { 'application/json': notReadySchema },
          headers: { 'Retry-After': 'Seconds to wait before trying again.' },
          example: {
            status: 'no snapshot',
            source: 'directory',
            refusal: 'no snapshot is published',
          },
        },
      },
    },
    handler: (exchange) => {
      const { ready, details } = publicReadiness(exchange.ctx);
      sendState(exchange, ready ? 200 : 503, details);
    },
  },
];
