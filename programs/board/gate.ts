import type { RequestHandler, Response } from 'express';
import { RateLimiterMemory } from 'rate-limiter-flexible';
import type { Logger } from '#runtime/process/log';
import type { HasKey } from './key.js';

/** Wrong keys per address and minute; further attempts are not checked. */
const FAILURES = 10;
const WITHIN_S = 60;

/** The page uses inline styles, no inline scripts and no external resources. */
const CONTENT_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "font-src 'self'; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'";

/**
 * Runs before every route. Only reads pass: no request changes anything, so cross-site requests
 * from a browser that stores the key are harmless.
 */
export function boardGate(hasKey: HasKey, log: Logger): RequestHandler {
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
      say(res, 429, 'Too many wrong keys. Retry in a minute.');
      return;
    }
    if (!hasKey(req.get('authorization'))) {
      // A browser's first request has no key; it does not count as an attempt.
      if (req.get('authorization') !== undefined) {
        await failures.penalty(address);
        log.warn({ address }, 'queue dashboard: wrong key presented');
      }
      res.setHeader('WWW-Authenticate', 'Basic realm="board", charset="UTF-8"');
      say(res, 401, 'The dashboard key is required.');
      return;
    }
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      res.setHeader('Allow', 'GET, HEAD');
      say(res, 405, 'The dashboard is read-only: workers requeue lost and failed jobs.');
      return;
    }
    next();
  };
}

function say(res: Response, status: number, text: string): void {
  res.status(status).type('text/plain; charset=utf-8').send(`${text}\n`);
}
