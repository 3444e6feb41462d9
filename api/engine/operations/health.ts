import type { Request, Response } from 'express';
import * as z from 'zod';
import { healthCheck, type Readiness } from '#runtime/ops/health';
import type { EngineContext } from '../context.js';
import type { EngineDeps, Operation } from '../operation.js';
import { sendJson } from '../http/send-json.js';

const conditionSchema = z.enum(['up', 'down']);
const readinessSchema = z.strictObject({
  status: z.enum(['ready', 'degraded', 'unavailable', 'stopping']),
  dependencies: z.strictObject({ database: conditionSchema, queue: conditionSchema }),
});

export const healthzOperation: Operation = {
  spec: {
    id: 'healthz',
    method: 'get',
    path: '/healthz',
    tag: 'Service',
    summary: 'Check liveness',
    scopes: [],
    produces: ['application/json'],
    responses: {
      200: {
        description: 'The process is running.',
        content: { 'application/json': z.strictObject({ status: z.literal('ok') }) },
      },
    },
    problems: [],
  },
  handler: () => healthz,
};

export const readyzOperation: Operation = {
  spec: {
    id: 'readyz',
    method: 'get',
    path: '/readyz',
    tag: 'Service',
    summary: 'Check readiness',
    scopes: [],
    produces: ['application/json'],
    responses: {
      200: {
        description: 'Ready; `degraded` while the queue is down.',
        content: { 'application/json': readinessSchema },
      },
      503: {
        description: 'The database is down, or this engine is shutting down.',
        content: { 'application/json': readinessSchema },
        headers: { 'Retry-After': 'Seconds.' },
      },
    },
    problems: [],
  },
  handler: readyz,
};

function healthz(_req: Request, res: Response): void {
  sendJson(res, 200, Buffer.from('{"status":"ok"}'));
}

/**
 * Without the database the engine can serve nothing. Without the queue it still accepts admissions
 * and reads proofs, and all engines share one queue: `degraded`, but ready.
 */
export function engineReadiness({
  sql,
  queue,
  stopping,
}: Pick<EngineContext, 'sql' | 'queue' | 'stopping'>): () => Promise<Readiness> {
  const database = healthCheck(() => sql`select 1`);
  const reachesQueue = healthCheck(() => queue.ping());
  return async () => {
    const [ofDatabase, ofQueue] = await Promise.all([database(), reachesQueue()]);
    const isStopping = stopping?.aborted === true;
    const ready = ofDatabase === 'up' && !isStopping;
    const status = isStopping
      ? 'stopping'
      : !ready
        ? 'unavailable'
        : ofQueue === 'up'
          ? 'ready'
          : 'degraded';
    return { ready, says: { status, dependencies: { database: ofDatabase, queue: ofQueue } } };
  };
}

function readyz({ ctx }: EngineDeps) {
  const find = engineReadiness(ctx);
  return async (_req: Request, res: Response): Promise<void> => {
    const { ready, says } = await find();
    if (!ready) res.setHeader('Retry-After', '1');
    sendJson(res, ready ? 200 : 503, Buffer.from(JSON.stringify(says)));
  };
}
