import type { Express, Response } from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { PublicMetrics } from '../metrics.js';

type Handler = (req: IncomingMessage, res: ServerResponse) => void;

/** Of the lookups one in so many is timed: looking at a clock twice is more than counting. */
const TIMED = 64;

/**
 * A facade's handler, counted and timed. Lookups count themselves where they are answered, so that
 * nothing is hung onto a response for it; what Express answers is counted at its end.
 *
 * @param lookup answers lookups, and says of other requests that they are none
 * @param routeOf the documented path of a lookup's URL
 */
export function counted(
  metrics: PublicMetrics,
  lookup: (req: IncomingMessage, res: ServerResponse) => boolean,
  app: Express,
  routeOf: (url: string) => string | null,
): Handler {
  let turn = 0;
  return (req, res) => {
    turn = (turn + 1) % TIMED;
    if (turn === 0) {
      timed(req, res);
    } else if (!lookup(req, res)) {
      answeredByApp(req, res, performance.now());
    }
  };

  function timed(req: IncomingMessage, res: ServerResponse): void {
    const began = performance.now();
    let isLookup = false;
    res.once('close', () => {
      if (isLookup) metrics.took(routeOf(req.url ?? ''), performance.now() - began);
    });
    isLookup = lookup(req, res);
    if (!isLookup) answeredByApp(req, res, began);
  }

  function answeredByApp(req: IncomingMessage, res: ServerResponse, began: number): void {
    res.once('close', () => {
      const route = (res as Response).locals['route'] as string | undefined;
      const status = res.headersSent ? res.statusCode : null;
      metrics.answered(route ?? null, req.method ?? '', status);
      metrics.took(route ?? null, performance.now() - began);
    });
    app(req, res);
  }
}
