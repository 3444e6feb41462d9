import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { ExpressAdapter } from '@bull-board/express';
import type { Queue } from 'bullmq';
import express, { type ErrorRequestHandler, type Express } from 'express';
import type { Logger } from '#runtime/log';
import type { QueueToRead } from '#runtime/queues';
import { boardGate } from './gate.js';
import type { HasKey } from './key.js';

/** Bull Board behind a key, and unable to change anything. */
export function createBoard(queues: readonly QueueToRead[], hasKey: HasKey, log: Logger): Express {
  const adapter = new ExpressAdapter();
  adapter.setBasePath('');
  createBullBoard({
    queues: queues.map((queue) => new BullMQAdapter(queue as Queue, { readOnlyMode: true })),
    serverAdapter: adapter,
    options: {
      uiConfig: {
        boardTitle: 'Queues',
        hideDocsLink: true,
        // What they cost the queue's server at every look is worth more than what they say.
        showWorkers: false,
        pollingInterval: { showSetting: true },
      },
    },
  });
  const app = express();
  app.disable('x-powered-by');
  app.use(boardGate(hasKey, log));
  app.use(adapter.getRouter() as Express);
  app.use(toAnswer(log));
  return app;
}

/** An error says nothing of the inside to whoever looks. */
function toAnswer(log: Logger): ErrorRequestHandler {
  return (error: unknown, _req, res, next) => {
    log.error({ err: error }, 'the board cannot answer');
    if (res.headersSent) next(error);
    else res.status(503).type('text/plain').send('The queue cannot be read.\n');
  };
}
