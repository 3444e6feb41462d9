import type { IncomingMessage, ServerResponse } from 'node:http';
import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import { singleFlight, withTimeout } from '../concurrency.js';
import { defaultOpsPort, type OpsConfig, type ServingProgram } from '../config.js';
import { listen, type HttpServer } from '../http/server.js';
import type { ProgramContext } from '../process/lifecycle.js';
import { version } from '../process/files.js';
import type { Readiness } from './health.js';

/** Time limit of the readiness check in a scrape, after which the scrape omits the dependencies. */
const READINESS_MS = 2_000;
const UNKNOWN: Readiness = { ready: false, details: {} };

export interface Ops {
  registry: Registry;
  /** Sets the readiness check. Until then, the program reports "starting". */
  readyWhen(find: () => Readiness | Promise<Readiness>): void;
}

/**
 * Opens the operations listener before slow dependencies, so that a program reports that it waits
 * for its database. The listener closes last. While the program drains, the listener reports not ready.
 */
export async function openOps(
  name: ServingProgram,
  config: OpsConfig,
  { signal, log, onStop }: Pick<ProgramContext, 'signal' | 'log' | 'onStop'>,
): Promise<Ops> {
  const registry = createRegistry(name);
  let find = (): Readiness | Promise<Readiness> => ({
    ready: false,
    details: { status: 'starting' },
  });
  const dependencyUp = new Gauge({
    name: 'svc_dependency_up',
    help: '1 while the dependency answers this program, else 0',
    labelNames: ['dependency'],
    registers: [registry],
  });
  const isReady = new Gauge({
    name: 'svc_ready',
    help: '1 while /readyz answers 200, else 0',
    registers: [registry],
  });
  const readiness = async (): Promise<Readiness> =>
    signal.aborted ? { ready: false, details: { status: 'stopping' } } : find();
  const metrics = async (): Promise<string> => {
    const { ready, details } = await withTimeout(readiness(), READINESS_MS).catch(() => UNKNOWN);
    isReady.set(Number(ready));
    dependencyUp.reset();
    for (const [dependency, state] of Object.entries(details['dependencies'] ?? {})) {
      dependencyUp.set({ dependency }, state === 'up' ? 1 : 0);
    }
    return registry.metrics().catch((error: unknown) => {
      log.error({ err: error }, 'the metrics could not be collected');
      throw error;
    });
  };
  const server = await openOnDefault({ metrics, readiness }, name, config);
  onStop(() => server.close(0));
  log.info({ ops_url: server.url }, 'operations listener started');
  return { registry, readyWhen: (finder) => void (find = finder) };
}

/** Number of instances of a program on one host that have default ports. */
const INSTANCES = 10;
/** Distance between the ports of two instances: greater than the number of programs, so that no ports collide. */
const INSTANCE_STEP = 10;

/**
 * Without a configured port, each of ten instances takes its default port, further instances any free port.
 */
async function openOnDefault(
  source: OpsSource,
  name: ServingProgram,
  { bind, port }: OpsConfig,
): Promise<HttpServer> {
  if (port !== null) return openOpsListener(source, { bind, port });
  for (let instance = 0; instance < INSTANCES; instance += 1) {
    try {
      const next = defaultOpsPort(name) + instance * INSTANCE_STEP;
      return await openOpsListener(source, { bind, port: next });
    } catch (error) {
      const { code } = ((error as Error).cause ?? {}) as NodeJS.ErrnoException;
      if (code !== 'EADDRINUSE') throw error;
    }
  }
  return openOpsListener(source, { bind, port: 0 });
}

/** The metrics registry of one program. Every value has the name of the program as the label `program`. */
export function createRegistry(program: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ program });
  // The default precision, 10 ms, would wake an idle process a hundred times a second, and cost 0.3 % of a core.
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 500 });
  const info = new Gauge({
    name: 'svc_build_info',
    help: 'Always 1; the version is in the label',
    labelNames: ['version'],
    registers: [registry],
  });
  info.set({ version }, 1);
  return registry;
}

/** The data behind /metrics, in Prometheus' text format, and /readyz. */
export interface OpsSource {
  metrics(): Promise<string>;
  readiness(): Promise<Readiness>;
}

/** Time limit of every response, shorter than Prometheus' scrape timeout. */
const TIMEOUT_MS = 3_000;

const JSON_TYPE = 'application/json; charset=utf-8';
const TEXT_TYPE = 'text/plain; charset=utf-8';

interface Answer {
  status: number;
  type: string;
  body: string;
}

/**
 * The operations listener serves three paths without authentication, so it must not expose tenant data.
 */
export function openOpsListener(
  source: OpsSource,
  { bind, port }: { bind: string; port: number },
  patienceMs = TIMEOUT_MS,
): Promise<HttpServer> {
  // Concurrent requests share one collection, so that clients cannot multiply its cost.
  const gather = singleFlight(() => withTimeout(source.metrics(), patienceMs));
  const look = singleFlight(() => withTimeout(source.readiness(), patienceMs));
  const text = (status: number, body: string): Answer => ({ status, type: TEXT_TYPE, body });

  async function answer(path: string): Promise<Answer> {
    switch (path) {
      case '/healthz':
        return { status: 200, type: JSON_TYPE, body: '{"status":"ok"}' };
      case '/readyz': {
        const { ready, details } = await look().catch(() => ({
          ready: false,
          details: { status: 'unavailable', detail: 'readiness check timed out' },
        }));
        return { status: ready ? 200 : 503, type: JSON_TYPE, body: JSON.stringify(details) };
      }
      case '/metrics':
        return gather().then(
          (body) => ({ status: 200, type: Registry.PROMETHEUS_CONTENT_TYPE, body }),
          () => text(503, 'Metrics collection failed or timed out.\n'),
        );
      default:
        return text(404, 'Use /healthz, /readyz or /metrics.\n');
    }
  }

  async function respond(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const isRead = req.method === 'GET' || req.method === 'HEAD';
    const path = (req.url ?? '').replace(/\?.*$/s, '');
    const { status, type, body } = isRead ? await answer(path) : text(405, 'Use GET or HEAD.\n');
    res.writeHead(status, {
      'Content-Type': type,
      'Content-Length': String(Buffer.byteLength(body)),
      'Cache-Control': 'no-store',
      'X-Content-Type-Options': 'nosniff',
      ...(status === 405 && { Allow: 'GET, HEAD', Connection: 'close' }),
      ...(status === 503 && { 'Retry-After': '1' }),
    });
    res.end(req.method === 'HEAD' ? undefined : body);
  }

  return listen((req, res) => void respond(req, res), {
    host: bind,
    port,
    // Without `exclusive`, the processes of a public API would share the port that Node picks for 0.
    exclusive: true,
    portVariable: 'OPS_PORT',
    hostVariable: 'OPS_BIND',
    limits: { headersMs: 5_000, requestMs: 5_000, idleMs: 30_000 },
  });
}
