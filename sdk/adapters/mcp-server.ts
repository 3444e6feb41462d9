import { SdkError } from '../errors.js';
import { openGate } from './gate.js';
import { gatedCall, type McpRequest } from './mcp-call.js';
import { requireMcpV1 } from './mcp-v1.js';
import type { AdapterOptions } from './options.js';

/** A `Server` of `@modelcontextprotocol/sdk`, or what is one. */
export interface LowLevelServer {
  /** Throws where there is a handler already. */
  assertCanSetRequestHandler(method: string): void;
  /** What every tool comes to be called through. */
  setRequestHandler(schema: never, handler: never): void;
}

/** An `McpServer` or a `Server`. */
export type AnyMcpServer = LowLevelServer | { server: LowLevelServer };

type Handler = (request: McpRequest, extra: { signal?: AbortSignal }) => unknown;

interface Handlers {
  assertCanSetRequestHandler(method: string): void;
  setRequestHandler(schema: unknown, handler: Handler): void;
  fallbackRequestHandler?: Handler | undefined;
}

/**
 * Has every tool call of an MCP server admitted before it reaches a tool, whichever tools are
 * registered, now or later; the arguments are hashed as the client sent them. To be called before the
 * first tool is registered: throws `SdkError` (`invalid_input`) after, and for a server of MCP SDK v2.
 * Returns the same server.
 */
export function admitServer<S extends AnyMcpServer>(server: S, options: AdapterOptions): S {
  const gate = openGate({ ...options, agent: { framework: 'mcp', ...options.agent } });
  const handlers = ('server' in server ? server.server : server) as unknown as Handlers;
  requireMcpV1(handlers);
  try {
    handlers.assertCanSetRequestHandler('tools/call');
  } catch (cause) {
    const message = 'the server has tools already: admitServer comes before the first of them';
    throw new SdkError('invalid_input', message, { cause });
  }

  const guarded =
    (handler: Handler): Handler =>
    (request, extra) =>
      request.method === 'tools/call'
        ? gatedCall(gate, request, extra.signal, {
            isTask: request.params?.['task'] !== undefined,
            run: () => handler(request, extra),
          })
        : handler(request, extra);

  const register = handlers.setRequestHandler.bind(handlers);
  handlers.setRequestHandler = (schema, handler) => register(schema, guarded(handler));
  // Whatever has no handler of its own goes there, tool calls too.
  let fallback = handlers.fallbackRequestHandler;
  Object.defineProperty(handlers, 'fallbackRequestHandler', {
    configurable: true,
    enumerable: true,
    get: () => (fallback === undefined ? undefined : guarded(fallback)),
    set: (handler: Handler | undefined) => (fallback = handler),
  });
  return server;
}
