import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isBearer, UsageError } from '../config.js';
import { HostSession } from './host-session.js';
import { decode, nameIn } from './http-headers.js';
import {
  type Connection,
  ERROR,
  idOf,
  isValid,
  type Message,
  methodOf,
  readBody,
  readMessage,
  versionIn,
} from './message.js';
import { reject } from './reply.js';

const BODY_MAX_MIB = 16;
/** Each session has its own server process. At the limit, the least recently used session ends. */
const SESSIONS_MAX = 32;

export interface HostListenerOptions {
  port: number;
  token: string;
  serve: (host: Connection) => Promise<void>;
}

/**
 * Listens on loopback for hosts that speak streamable HTTP. In MCP versions up to 2025-11-25 each host
 * has a session; requests of MCP 2026-07-28 are stateless, and share one session.
 */
export async function listenForHosts({ port, token, serve }: HostListenerOptions) {
  const sessions = new Map<string, HostSession>();
  let stateless: HostSession | undefined;
  const server = createServer((req, res) => {
    handle(req, res).catch(() => res.destroy());
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening').catch((cause: unknown) => {
    throw new UsageError(`port ${String(port)}: ${(cause as Error).message}`, { cause });
  });
  const { port: chosen } = server.address() as AddressInfo;
  const names = ['127.0.0.1', 'localhost'].map((name) => `${name}:${String(chosen)}`);

  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const [status, why] = rejection(req);
    if (status !== 200) return reject(res, status, why);
    const id = req.headers['mcp-session-id'];
    const session = typeof id === 'string' ? sessions.get(id) : undefined;
    if (typeof id === 'string') {
      if (session === undefined) return reject(res, 404, 'unknown session');
      // Keeps the map in the order of the last use.
      sessions.delete(id);
      sessions.set(id, session);
    }
    if (req.method === 'POST') return post(req, res, session);
    if (session === undefined) return reject(res, 405, 'only POST is allowed without a session');
    if (req.method === 'GET') {
      const isNew = req.headers['last-event-id'] === undefined;
      return isNew ? session.listen(res) : reject(res, 400, 'streams cannot be resumed');
    }
    if (req.method !== 'DELETE') return reject(res, 405, 'only GET, POST and DELETE are allowed');
    await end(String(id));
    res.writeHead(200).end();
  }

  /** Why a request is rejected. A web page could reach this port, also under another host name (DNS rebinding). */
  function rejection({ headers, url }: IncomingMessage): [number, string] {
    const { origin, host = '', authorization } = headers;
    if (!names.includes(host)) return [403, 'unknown host'];
    if (origin !== undefined && !names.includes(origin.replace(/^http:\/\//, ''))) {
      return [403, 'requests of web pages are not allowed'];
    }
    if (!isBearer(authorization, token)) return [401, 'a bearer token is required'];
    return url === '/mcp' ? [200, ''] : [404, 'the endpoint is /mcp'];
  }

  async function post(
    req: IncomingMessage,
    res: ServerResponse,
    found: HostSession | undefined,
  ): Promise<void> {
    if (!/^application\/json\b/i.test(req.headers['content-type'] ?? '')) {
      return reject(res, 415, 'the body must be application/json');
    }
    let message: Message;
    try {
      message = readMessage(await readBody(req, 'message', BODY_MAX_MIB));
    } catch (error) {
      return reject(res, 400, (error as Error).message, ERROR.parse);
    }
    if (!isValid(message)) return reject(res, 400, 'the message is not a JSON-RPC 2.0 message');
    const version = versionIn(message);
    if (version !== undefined && !mirrors(req, message, version)) {
      return reject(res, 400, 'the headers do not match the body', ERROR.headerMismatch);
    }
    const session = found ?? (version === undefined ? open(message, res) : openStateless());
    if (session === null) return reject(res, 400, 'initialize a session first');
    return session.receive(message, res);
  }

  function open(message: Message, res: ServerResponse): HostSession | null {
    if (methodOf(message) !== 'initialize') return null;
    const id = randomUUID();
    const session = start(false, () => sessions.delete(id));
    sessions.set(id, session);
    if (sessions.size > SESSIONS_MAX) void end([...sessions.keys()][0]!);
    res.setHeader('Mcp-Session-Id', id);
    return session;
  }

  /** Removes the session before its server ends, so that further requests of the session fail at once. */
  async function end(id: string): Promise<void> {
    const session = sessions.get(id);
    sessions.delete(id);
    await session?.close();
  }

  function openStateless(): HostSession {
    stateless ??= start(true, () => (stateless = undefined));
    return stateless;
  }

  function start(isStateless: boolean, onEnd: () => void): HostSession {
    const session = new HostSession(isStateless);
    void serve(session).finally(async () => {
      onEnd();
      await session.close();
    });
    return session;
  }

  return {
    url: `http://127.0.0.1:${String(chosen)}/mcp`,
    close: async (): Promise<void> => {
      server.close();
      for (const session of [...sessions.values(), stateless]) await session?.close();
      server.closeAllConnections();
    },
  };
}

/** Whether the headers repeat the body, as revisions since 2026-07-28 require. */
function mirrors({ headers }: IncomingMessage, message: Message, version: string): boolean {
  const method = methodOf(message) ?? '';
  const name = nameIn(message);
  const given = headers['mcp-name'];
  // Requests about tasks need no `Mcp-Name`, because some clients do not send it.
  const isNamed = typeof given === 'string' ? decode(given) === name : method.startsWith('tasks/');
  return (
    headers['mcp-protocol-version'] === version &&
    (headers['mcp-method'] === method || idOf(message) === undefined) &&
    (name === undefined || isNamed)
  );
}
