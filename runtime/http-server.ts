import { createServer, type RequestListener, type Server } from 'node:http';
import { isIPv6, type AddressInfo } from 'node:net';
import { OperatorError } from './operator-error.js';

export interface ListenOptions {
  host: string;
  /** 0 takes any free port. */
  port: number;
  /** The variable that sets `port`, named in the message when the port is taken. */
  portVariable?: string;
  timeouts?: {
    /** For a request's headers to arrive, in milliseconds. */
    headersMs?: number;
    /** For the whole request to arrive. */
    requestMs?: number;
    /** For an idle connection; longer than a load balancer's own, so that it is the one to hang up. */
    keepAliveMs?: number;
  };
}

export interface HttpServer {
  url: string;
  port: number;
  server: Server;
  /** Takes no new connection, finishes what is in flight; what is not done after `graceMs` is cut. */
  close(graceMs?: number): Promise<void>;
}

/** The address cannot be listened on; the message says which setting to change. */
export class ListenError extends OperatorError {
  override name = 'ListenError';
}

function explain(error: NodeJS.ErrnoException, options: ListenOptions): Error {
  const { host, port, portVariable = 'the port' } = options;
  const sayings: Record<string, string> = {
    EADDRINUSE: `Port ${String(port)} is taken: set ${portVariable} to another one, or to 0 for any free one.`,
    EACCES: `Port ${String(port)} may not be used: set ${portVariable} to one above 1023.`,
    EADDRNOTAVAIL: `${host} is no address of this machine: set BIND to one that is.`,
    ENOTFOUND: `${host} is no address of this machine: set BIND to one that is.`,
  };
  const saying = sayings[error.code ?? ''];
  return saying === undefined ? error : new ListenError(saying, { cause: error });
}

const DEFAULT_GRACE_MS = 15_000;

export async function listen(
  handler: RequestListener,
  options: ListenOptions,
): Promise<HttpServer> {
  const { headersMs = 10_000, requestMs = 30_000, keepAliveMs = 65_000 } = options.timeouts ?? {};
  let closing = false;
  const server = createServer(
    { headersTimeout: headersMs, requestTimeout: requestMs, keepAliveTimeout: keepAliveMs },
    (request, response) => {
      // A client that keeps its connection would otherwise come back on it for ever.
      if (closing) response.setHeader('Connection', 'close');
      handler(request, response);
    },
  );
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(explain(error, options)));
    server.listen({ host: options.host, port: options.port }, resolve);
  });
  server.removeAllListeners('error');
  const { port } = server.address() as AddressInfo;
  const host = isIPv6(options.host) ? `[${options.host}]` : options.host;

  function close(graceMs = DEFAULT_GRACE_MS): Promise<void> {
    closing = true;
    return new Promise((resolve) => {
      const sweep = setInterval(() => server.closeIdleConnections(), 50);
      const cut = setTimeout(() => server.closeAllConnections(), graceMs);
      server.close(() => {
        clearInterval(sweep);
        clearTimeout(cut);
        resolve();
      });
      server.closeIdleConnections();
    });
  }

  return { url: `http://${host}:${String(port)}`, port, server, close };
}
