import type { Express, Response } from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { PublicMetrics } from '../metrics.js';

type Handler = (req: IncomingMessage, res: ServerResponse) => void;

/** Times one in 64 lookups: two clock reads cost more than the count. */
const SAMPLE_INTERVAL = 64;

/**
 * Counts and times requests. Lookups count themselves when they respond, which avoids a `close`
 * listener on the hot path; Express responses are counted on `close`.
 *
 * @param lookup handles lookups and returns false for other requests
 * @param routeOf returns the documented path of a lookup URL
 */
export function meteredHandler(
  metrics: PublicMetrics,
  lookup: (req: IncomingMessage, res: ServerResponse) => boolean,
  app: Express,
  routeOf: (url: string) => string | null,
): Handler {
  let sequence = 0;
  return (req, res) => {
    sequence = (sequence + 1) % SAMPLE_INTERVAL;
    if (sequence === 0) {
      timed(req, res);
    } else if (!lookup(req, res)) {
      answeredByApp(req, res, performance.now());
    }
  };

  function timed(req: IncomingMessage, res: ServerResponse): void {
    const began = performance.now();
    let isLookup = false;
    res.once('close', () => {
      if (isLookup) metrics.observeDuration(routeOf(req.url ?? ''), performance.now() - began);
    });
    isLookup = lookup(req, res);
    if (!isLookup) answeredByApp(req, res, began);
  }

  function answeredByApp(req: IncomingMessage, res: ServerResponse, began: number): void {
    res.once('close', () => {
      const route = (res as Response).locals['route'] as string | undefined;
      const status = res.headersSent ? res.statusCode : null;
      metrics.countRequest(route ?? null, req.method ?? '', status);
      metrics.observeDuration(route ?? null, performance.now() - began);
    });
    app(req, res);
  }
}
