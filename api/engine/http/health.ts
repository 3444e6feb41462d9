import * as z from 'zod';
import { utf8 } from '#protocol/bytes';
import { healthCheck, type Readiness } from '#runtime/ops/health';
import { requirePrimary } from '#sql/db/transaction';
import type { EngineContext } from '../context.js';
import { json, publicSpec, type Operation } from '../operation.js';
import { sendBytes } from './respond.js';

export const healthzOperation: Operation = {
  spec: publicSpec({
    id: 'healthz',
    path: '/healthz',
    summary: 'Check liveness',
    responses: {
      200: json('The process is running.', z.strictObject({ status: z.literal('ok') })),
    },
  }),
  handler: () => (_req, res) => sendBytes(res, 200, 'application/json', utf8('{"status":"ok"}')),
};

const conditionSchema = z.enum(['up', 'down']);
const readinessSchema = z.strictObject({
  status: z.enum(['ready', 'degraded', 'unavailable', 'stopping']),
  dependencies: z.strictObject({ database: conditionSchema, queue: conditionSchema }),
});

export const readyzOperation: Operation = {
  spec: publicSpec({
    id: 'readyz',
    path: '/readyz',
    summary: 'Check readiness',
    responses: {
      200: json('Ready; `degraded` while the queue is down.', readinessSchema),
      503: json('The database is down, or this engine is shutting down.', readinessSchema, {
        'Retry-After': 'Seconds to wait before trying again.',
      }),
    },
  }),
  handler: ({ ctx }) => {
    const find = engineReadiness(ctx);
    return async (_req, res) => {
      const { ready, details } = await find();
      if (!ready) res.setHeader('Retry-After', '1');
      sendBytes(res, ready ? 200 : 503, 'application/json', utf8(JSON.stringify(details)));
    };
  },
};

/**
 * Reports readiness. Without the database the engine can serve nothing. Without the queue it still accepts admissions
 * and reads proofs, so it reports `degraded` but ready: all engines share the queue.
 */
export function engineReadiness({
  sql,
  queue,
  stopping,
}: Pick<EngineContext, 'sql' | 'queue' | 'stopping'>): () => Promise<Readiness> {
  const database = healthCheck(() => requirePrimary(sql));
  const reachesQueue = healthCheck(() => queue.ping());
  return async () => {
    const [ofDatabase, ofQueue] = await Promise.all([database(), reachesQueue()]);
    const isStopping = stopping?.aborted === true;
    const ready = ofDatabase === 'up' && !isStopping;
    const whenReady = ofQueue === 'up' ? 'ready' : 'degraded';
    const status = isStopping ? 'stopping' : ready ? whenReady : 'unavailable';
    return { ready, details: { status, dependencies: { database: ofDatabase, queue: ofQueue } } };
  };
}
