import type { Request, Response } from 'express';
import type { EngineContext } from './context.js';
import { sendJson } from './send-json.js';

const PATIENCE_MS = 1_000;

type Condition = 'up' | 'down';

/** GET /healthz: the process answers. Nothing that it depends on is asked. */
export function healthz(_req: Request, res: Response): void {
  sendJson(res, 200, Buffer.from('{"status":"ok"}'));
}

/**
 * GET /readyz: whether to send requests here, and which dependency is down. Without the database
 * nothing can be answered. Without the queue admissions are still durable and proofs still read,
 * and every other engine has the same queue, so that is `degraded` and no reason to send them away.
 */
export function readyz(ctx: EngineContext) {
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
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Condition>((resolve) => {
    timer = setTimeout(() => resolve('down'), PATIENCE_MS);
  });
  const asked = ask().then(
    (): Condition => 'up',
    (): Condition => 'down',
  );
  const result = await Promise.race([asked, late]);
  clearTimeout(timer);
  return result;
}
