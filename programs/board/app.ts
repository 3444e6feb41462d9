import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { ExpressAdapter } from '@bull-board/express';
import type { Queue } from 'bullmq';
import express, {
  type ErrorRequestHandler,
  type Express,
  type RequestHandler,
  type Response,
} from 'express';
import { createHash, timingSafeEqual } from 'node:crypto';
import { RateLimiterMemory } from 'rate-limiter-flexible';
import { readPrivateFile } from '#runtime/process/files';
import type { Logger } from '#runtime/process/log';
import { OperatorError } from '#runtime/process/operator-error';
import type { QueueToRead } from '#runtime/queue/backend';

/** Bull Board, read-only and protected by a key. */
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
        // Listing workers at each page view would load the queue's server too much.
        showWorkers: false,
        pollingInterval: { showSetting: true },
      },
    },
  });
  // Hides error messages of Redis or PostgreSQL, which Bull Board would show.
  adapter.setErrorHandler((error) => {
    if (isBadRequest(error)) return { status: 400, body: `${NOT_FOUND}\n` };
    log.error({ err: error }, 'queue dashboard: request failed');
    return { status: 500, body: `${UNREADABLE}\n` };
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

/** Whether Express rejected the URL. */
const isBadRequest = (error: unknown): boolean => (error as { status?: unknown }).status === 400;

/** Limit of jobs per request, which loads them all into memory; the dashboard requests far fewer. */
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

/** Limit of wrong keys per address and minute; further attempts are not checked. */
const FAILURES = 10;
const WITHIN_S = 60;

/** Allows what the page uses: inline styles, but no inline scripts and no external resources. */
const CONTENT_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "font-src 'self'; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'";

/** Rejects every write, so cross-site requests from a browser that stores the key are harmless. */
function boardGate(hasKey: HasKey, log: Logger): RequestHandler {
  const failures = new RateLimiterMemory({ points: FAILURES, duration: WITHIN_S });
  return async (req, res, next) => {
    res.setHeader('Content-Security-Policy', CONTENT_POLICY);
    res.setHeader('X-Content-Type-Options', 'nosniff');
    res.setHeader('Referrer-Policy', 'no-referrer');
    res.setHeader('Cross-Origin-Resource-Policy', 'same-origin');
    res.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
    res.setHeader('Cache-Control', 'no-store');
    const address = req.socket.remoteAddress ?? '';
    const failed = await failures.get(address);
    if ((failed?.consumedPoints ?? 0) >= FAILURES) {
      res.setHeader('Retry-After', String(Math.ceil((failed?.msBeforeNext ?? 0) / 1_000)));
      sendText(res, 429, 'Too many wrong keys. Retry in a minute.');
      return;
    }
    if (!hasKey(req.get('authorization'))) {
      // A browser's first request has no key; it does not count as an attempt.
      if (req.get('authorization') !== undefined) {
        await failures.penalty(address);
        log.warn({ address }, 'queue dashboard: wrong key presented');
      }
      res.setHeader('WWW-Authenticate', 'Basic realm="board", charset="UTF-8"');
      sendText(res, 401, 'The dashboard key is required.');
      return;
    }
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      res.setHeader('Allow', 'GET, HEAD');
      sendText(res, 405, 'The dashboard is read-only: workers requeue lost and failed jobs.');
      return;
    }
    next();
  };
}

function sendText(res: Response, status: number, text: string): void {
  res.status(status).type('text/plain').send(`${text}\n`);
}

const MIN_CHARACTERS = 32;
const KEY = /^[\x21-\x7e]+$/;

const digest = (text: string): Buffer => createHash('sha256').update(text, 'utf8').digest();

/** Whether an `Authorization` header has the dashboard key, compared in constant time. */
type HasKey = (authorization: string | undefined) => boolean;

/** @throws when the file is unusable; the message never quotes its content */
export function loadBoardKey(file: string): HasKey {
  const key = readPrivateFile(file, 'board key').trim();
  if (key.length < MIN_CHARACTERS || !KEY.test(key)) {
    throw new OperatorError(
      `The dashboard key ${file} must hold one word of at least ${String(MIN_CHARACTERS)} characters. Create one with: openssl rand -hex 32`,
    );
  }
  const expected = digest(key);
  return (authorization) => {
    const given = passwordOf(authorization ?? '');
    // Compares hashes, which have equal length, in constant time.
    return timingSafeEqual(digest(given ?? ''), expected) && given !== null;
  };
}

/** The password of HTTP Basic (RFC 7617), for any user name. */
function passwordOf(authorization: string): string | null {
  const encoded = /^basic ([A-Za-z0-9+/]{1,1024}={0,2})$/i.exec(authorization)?.[1];
  if (encoded === undefined) return null;
  const pair = Buffer.from(encoded, 'base64').toString('utf8');
  const colon = pair.indexOf(':');
  return colon < 0 ? null : pair.slice(colon + 1);
}
