import type { IncomingMessage, ServerResponse } from 'node:http';
import { Registry } from 'prom-client';
import type { OpsConfig } from '../config.js';
import { listen, type HttpServer } from '../http/server.js';
import { singleFlight, withTimeout } from '../concurrency/promises.js';
import type { Readiness } from './health.js';

/** The data behind /metrics, in Prometheus' text format, and /readyz. */
export interface OpsSource {
  metrics(): Promise<string>;
  readiness(): Promise<Readiness>;
}

/** Upper bound of every answer, shorter than the scrape timeout of Prometheus. */
const TIMEOUT_MS = 3_000;

const JSON_TYPE = 'application/json; charset=utf-8';
const TEXT_TYPE = 'text/plain; charset=utf-8';

interface Answer {
  status: number;
  type: string;
  body: string;
  headers?: Record<string, string>;
}

const AGAIN_SOON = { 'Retry-After': '1' };

/**
 * The operations listener. It serves three paths without authentication, so it must not expose
 * tenant data.
 */
export function openOpsListener(
  source: OpsSource,
  { bind, port }: OpsConfig,
  patienceMs = TIMEOUT_MS,
): Promise<HttpServer> {
  const bounded = <T>(promise: Promise<T>): Promise<T> =>
    withTimeout(promise, patienceMs, () => new Error('no answer in time'));
  // Concurrent requests share one collection: clients must not be able to multiply its cost.
  const gather = singleFlight(() => bounded(source.metrics()));
  const look = singleFlight(() => bounded(source.readiness()));

  async function answer(path: string): Promise<Answer> {
    switch (path) {
      case '/healthz':
        return { status: 200, type: JSON_TYPE, body: '{"status":"ok"}' };
      case '/readyz':
        return readyz();
      case '/metrics':
        return metrics();
      default:
        return { status: 404, type: TEXT_TYPE, body: 'Use /healthz, /readyz or /metrics.\n' };
    }
  }

  async function readyz(): Promise<Answer> {
    const { ready, details } = await look().catch(() => ({
      ready: false,
      details: { status: 'unavailable', detail: 'readiness check timed out' },
    }));
    const body = JSON.stringify(details);
    if (ready) return { status: 200, type: JSON_TYPE, body };
    return { status: 503, type: JSON_TYPE, body, headers: AGAIN_SOON };
  }

  async function metrics(): Promise<Answer> {
    try {
      const body = await gather();
      return { status: 200, type: Registry.PROMETHEUS_CONTENT_TYPE, body };
    } catch {
      const body = 'Metrics collection timed out.\n';
      return { status: 503, type: TEXT_TYPE, body, headers: AGAIN_SOON };
    }
  }

  async function respond(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const isRead = req.method === 'GET' || req.method === 'HEAD';
    const path = (req.url ?? '').replace(/\?.*$/s, '');
    const { status, type, body, headers } = isRead
      ? await answer(path)
      : {
          status: 405,
          type: TEXT_TYPE,
          body: 'Use GET or HEAD.\n',
          headers: { Allow: 'GET, HEAD', Connection: 'close' },
        };
    res.writeHead(status, {
      'Content-Type': type,
      'Content-Length': String(Buffer.byteLength(body)),
      'Cache-Control': 'no-store',
      'X-Content-Type-Options': 'nosniff',
      ...headers,
    });
    res.end(req.method === 'HEAD' ? undefined : body);
  }

  return listen((req, res) => void respond(req, res), {
    host: bind,
    port,
    // Otherwise the processes of one public API would share the port that Node picks for 0.
    exclusive: true,
    portVariable: 'OPS_PORT',
    hostVariable: 'OPS_BIND',
    limits: { headersMs: 5_000, requestMs: 5_000, idleMs: 30_000 },
  });
}
