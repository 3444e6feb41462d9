import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { ExpressAdapter } from '@bull-board/express';
import type { Queue } from 'bullmq';
import express, { type ErrorRequestHandler, type Express, type RequestHandler } from 'express';
import type { Logger } from '#runtime/process/log';
import type { QueueToRead } from '#runtime/queue/queues';
import { boardGate, sendText, type HasKey } from './gate.js';

/** Bull Board behind a key, read-only. */
export function createBoard(queues: readonly QueueToRead[], hasKey: HasKey, log: Logger): Express {
  const adapter = new QuietAdapter(log);
  adapter.setBasePath('');
  createBullBoard({
    queues: queues.map((queue) => new BullMQAdapter(queue as Queue, { readOnlyMode: true })),
    serverAdapter: adapter,
    options: {
      uiConfig: {
        boardTitle: 'Queues',
        hideDocsLink: true,
        // Listing workers costs the queue's server too much per page view.
        showWorkers: false,
        pollingInterval: { showSetting: true },
      },
    },
  });
  const app = express();
  app.disable('x-powered-by');
  app.use(boardGate(hasKey, log));
  app.use(boundPages);
  app.use(adapter.getRouter() as Express);
  app.use(handleError(log));
  return app;
}

const UNREADABLE = 'The queue is unreachable.';
const NOT_FOUND = 'Not found.';

/** Express rejected the URL. */
const isBadRequest = (error: unknown): boolean => (error as { status?: unknown }).status === 400;

type HandleError = Parameters<ExpressAdapter['setErrorHandler']>[0];

/** Bull Board would expose error messages of Redis or PostgreSQL. */
class QuietAdapter extends ExpressAdapter {
  constructor(private readonly log: Logger) {
    super();
  }

  override setErrorHandler(_handler: HandleError): this {
    return super.setErrorHandler((error) => {
      if (isBadRequest(error)) return { status: 400, body: `${NOT_FOUND}\n` };
      this.log.error({ err: error }, 'queue dashboard: request failed');
      return { status: 500, body: `${UNREADABLE}\n` };
    });
  }
}

/** Far above the page's own limit. All jobs of a page are in memory with their data. */
const MAX_PAGE = 100;

const boundPages: RequestHandler = (req, res, next) => {
  const { jobsPerPage } = req.query;
  if (jobsPerPage === undefined || (Number(jobsPerPage) >= 1 && Number(jobsPerPage) <= MAX_PAGE)) {
    next();
    return;
  }
  sendText(res, 400, `At most ${String(MAX_PAGE)} jobs per page.`);
};

/** Answers a bad request or a queue failure without internal details. */
function handleError(log: Logger): ErrorRequestHandler {
  return (error: unknown, _req, res, next) => {
    if (!isBadRequest(error)) log.error({ err: error }, 'queue dashboard: request failed');
    if (res.headersSent) next(error);
    else if (isBadRequest(error)) sendText(res, 400, NOT_FOUND);
    else sendText(res, 503, UNREADABLE);
  };
}
