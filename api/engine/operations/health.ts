import type { Request, Response } from 'express';
import { z } from 'zod';
import { within } from '#runtime/within';
import type { EngineDeps, Operation } from '../operation.js';
import { sendJson } from '../http/send-json.js';

const PATIENCE_MS = 1_000;

type Condition = 'up' | 'down';

const conditionSchema = z.enum(['up', 'down']);
const readinessSchema = z.strictObject({
  status: z.enum(['ready', 'degraded', 'unavailable']),
  dependencies: z.strictObject({ database: conditionSchema, queue: conditionSchema }),
});

export const healthzOperation: Operation = {
  spec: {
    id: 'healthz',
    method: 'get',
    path: '/healthz',
    tag: 'Service',
    summary: 'Whether the process answers',
    scopes: [],
    produces: ['application/json'],
    responses: {
      200: {
        description: 'It does.',
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
    summary: 'Whether to send requests here, and which dependency is down',
    scopes: [],
    produces: ['application/json'],
    responses: {
      200: {
        description: 'Ready; `degraded` while the queue is down.',
        content: { 'application/json': readinessSchema },
      },
      503: {
        description: 'The database is down.',
        content: { 'application/json': readinessSchema },
        headers: { 'Retry-After': 'Seconds.' },
      },
    },
    problems: [],
  },
  handler: readyz,
};

/** The process answers. Nothing that it depends on is asked. */
function healthz(_req: Request, res: Response): void {
  sendJson(res, 200, Buffer.from('{"status":"ok"}'));
}

/**
 * Without the database
 * nothing can be answered. Without the queue admissions are still durable and proofs still read,
 * and every other engine has the same queue, so that is `degraded` and no reason to send them away.
 */
function readyz({ ctx }: EngineDeps) {
  return async (_req: Request, res: Response): Promise<void> => {
    const [database, queue] = await Promise.all([
      condition(async () => ctx.sql`select 1`),
      condition(() => ctx.queue.ping()),
    ]);
    const isReady = database === 'up';
    const status = !isReady ? 'unavailable' : queue === 'up' ? 'ready' : 'degraded';
    if (!isReady) res.setHeader('Retry-After', '1');
    sendJson(
      res,
      isReady ? 200 : 503,
      Buffer.from(JSON.stringify({ status, dependencies: { database, queue } })),
    );
  };
}

async function condition(ask: () => Promise<unknown>): Promise<Condition> {
  return within(ask(), PATIENCE_MS, () => new Error('no answer in time')).then(
    () => 'up',
    () => 'down',
  );
}
