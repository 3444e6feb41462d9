import * as z from 'zod';
import { attempt } from '../../protocol/errors.js';
import { isObject } from '../../protocol/json.js';
import { isNotAdmitted, SdkError } from '../errors.js';
import { type Gate, openGate } from './gate.js';
import { failedTool, outcomeOf, withProof } from './mcp-result.js';
import type { AdapterOptions } from './options.js';

export { NOT_ADMITTED_META, PROOF_ID_META } from './mcp-result.js';

/** A `Server` of `@modelcontextprotocol/sdk` or `@modelcontextprotocol/server`. */
export interface LowLevelServer {
  /** Throws if the method has a handler already. */
  assertCanSetRequestHandler(method: string): void;
  /** Registers the handler that every tool call reaches. */
  setRequestHandler(schemaOrMethod: never, handler: never): void;
}

/** An `McpServer` or a `Server`. */
export type AnyMcpServer = LowLevelServer | { server: LowLevelServer };

/** A `Client` of `@modelcontextprotocol/sdk` or `@modelcontextprotocol/client`. */
export interface AnyMcpClient {
  /** Every method that calls tools sends its requests through `request`. */
  request(request: never, schemaOrOptions: never, options?: never): Promise<unknown>;
}

/** The context that v1 (first member) and v2 pass to a handler beside the request. */
interface HandlerContext {
  signal?: AbortSignal;
  mcpReq?: { signal?: AbortSignal; inputResponses?: unknown; requestState?: () => unknown };
}

type Handler = (request: unknown, context: HandlerContext) => unknown;

/** The methods that clients and servers share, and a server's fallback handler. */
interface Handlers {
  assertCanSetRequestHandler(method: string): void;
  /**
   * Arguments in v1: schema and handler. In v2: method and handler, or method, schemas and a handler of only the
   * params.
   */
  setRequestHandler(...form: unknown[]): void;
  removeRequestHandler(method: string): void;
  fallbackRequestHandler?: Handler | undefined;
}

/**
 * Admits every tool call of an MCP server before it reaches a tool, including tools that are
 * registered later. The hash covers the arguments as sent. Call this before the first
 * tool is registered: throws `SdkError` (`invalid_input`) afterwards. Returns the same server.
 *
 * @param options pass the same gate to all servers of a factory, such as that of `createMcpHandler`:
 *   the gate links the repeated requests of a call that requires input
 */
export function admitServer<S extends AnyMcpServer>(server: S, options: AdapterOptions | Gate): S {
  const gate = openGate(options, 'mcp');
  const handlers = ('server' in server ? server.server : server) as unknown as Handlers;
  requireMcp(handlers);
  try {
    handlers.assertCanSetRequestHandler('tools/call');
  } catch (cause) {
    const message =
      'the server has tools already: call admitServer before you register the first tool';
    throw new SdkError('invalid_input', message, { cause });
  }

  const isSettingOwn = watchOwnHandlers(server);
  const guarded = (
    handler: Handler,
    requestOf = (input: unknown) => input as McpRequest,
    isOwn = false,
  ): Handler => {
    return (input, context) => {
      const request = requestOf(input);
      const run = () => handler(input, context);
      if (request.method !== 'tools/call' || (isOwn && lacksTool(server, request))) return run();
      const { inputResponses, requestState, signal = context.signal } = context.mcpReq ?? {};
      return gateToolCall(gate, request, {
        isTask: request.params?.['task'] !== undefined,
        continues: inputResponses !== undefined || requestState?.() !== undefined,
        context,
        signal,
        run,
      });
    };
  };

  const register = handlers.setRequestHandler.bind(handlers);
  handlers.setRequestHandler = (schemaOrMethod, ...rest) => {
    const handler = rest.pop() as Handler;
    const paramsOnly = (params: unknown) => ({ method: schemaOrMethod, params }) as McpRequest;
    const isRequest = typeof schemaOrMethod !== 'string' || rest.length === 0;
    const requestOf = isRequest ? undefined : paramsOnly;
    register(schemaOrMethod, ...rest, guarded(handler, requestOf, isSettingOwn()));
  };
  // Receives every request without its own handler, including tool calls.
  let fallback = handlers.fallbackRequestHandler;
  Object.defineProperty(handlers, 'fallbackRequestHandler', {
    configurable: true,
    enumerable: true,
    get: () => (fallback === undefined ? undefined : guarded(fallback)),
    set: (handler: Handler | undefined) => (fallback = handler),
  });
  return server;
}

/**
 * Returns whether an `McpServer` is setting its own handlers, which reject unknown tools. A handler that other code
 * sets may run tools that the `McpServer` does not know.
 */
function watchOwnHandlers(server: AnyMcpServer): () => boolean {
  let isSetting = false;
  const set: unknown = Reflect.get(server, 'setToolRequestHandlers');
  if (typeof set === 'function') {
    Reflect.set(server, 'setToolRequestHandlers', () => {
      isSetting = true;
      try {
        Reflect.apply(set, server, []);
      } finally {
        isSetting = false;
      }
    });
  }
  return () => isSetting;
}

/** Whether an `McpServer` lacks the tool. The server rejects such a call, so the call needs no admission. */
function lacksTool(server: AnyMcpServer, { params = {} }: McpRequest): boolean {
  const tools: unknown = Reflect.get(server, '_registeredTools');
  return isObject(tools) && !(String(params['name']) in tools);
}

interface McpCallOptions {
  signal?: AbortSignal;
  task?: unknown;
}

/**
 * Admits every tool call of an MCP client, of any method, before the client sends it. A call without
 * an admission is not sent, and returns the result of a failed tool. Returns the same client.
 */
export function admitClient<C extends AnyMcpClient>(client: C, options: AdapterOptions | Gate): C {
  const gate = openGate(options, 'mcp');
  const own = client as unknown as Handlers & {
    request(request: McpRequest, ...rest: unknown[]): Promise<unknown>;
  };
  requireMcp(own);
  const send = own.request.bind(client);
  own.request = (request, ...rest) => {
    if (request.method !== 'tools/call') return send(request, ...rest);
    // v2 of the MCP SDK also accepts the options in place of the schema.
    const { signal, task } = (rest[1] ?? rest[0] ?? {}) as McpCallOptions;
    const { params = {} } = request;
    return gateToolCall(gate, request, {
      isTask: task !== undefined || params['task'] !== undefined,
      continues: params['inputResponses'] !== undefined || params['requestState'] !== undefined,
      context: request,
      signal,
      run: () => send(copyOf(request), ...rest),
    });
  };
  return client;
}

/** Copies a request, because the transport may write it after the caller has changed the arguments. */
function copyOf({ params, ...request }: McpRequest): McpRequest {
  const own = attempt(() => structuredClone(params?.['arguments']));
  return { ...request, params: { ...params, ...(own !== undefined && { arguments: own }) } };
}

const PROBE = 'svc/probe';

/** Throws `invalid_input` unless the object registers handlers like v1 or v2. */
function requireMcp(object: Handlers): void {
  const params = z.object({});
  const isV1 = registers(object, z.object({ method: z.literal(PROBE) }));
  if (isV1 || registers(object, PROBE, { params })) return;
  throw new SdkError(
    'invalid_input',
    'expected a server or client of @modelcontextprotocol/sdk, 1.12 or a later 1.x, or of @modelcontextprotocol/server or @modelcontextprotocol/client 2.x: no other MCP library is supported',
  );
}

function registers(object: Handlers, ...form: unknown[]): boolean {
  const isFree = (): boolean =>
    attempt(() => {
      object.assertCanSetRequestHandler(PROBE);
      return true;
    }) ?? false;
  const isTaken = attempt(() => {
    if (!isFree()) return false;
    object.setRequestHandler(...form, () => ({}));
    const isTaken = !isFree();
    object.removeRequestHandler(PROBE);
    return isTaken && isFree();
  });
  return isTaken ?? false;
}

interface McpRequest {
  method: string;
  params?: Record<string, unknown>;
}

interface McpCall {
  isTask: boolean;
  continues: boolean;
  context: unknown;
  signal: AbortSignal | undefined;
  run: () => unknown;
}

/**
 * Runs a `tools/call`. A call without an admission returns MCP's result of a failed tool, whose text
 * the model reads. A call that starts a task has no such result, and throws, like an aborted call.
 */
async function gateToolCall(
  gate: Gate,
  request: McpRequest,
  { isTask, run, ...rest }: McpCall,
): Promise<unknown> {
  // Getters, because the gate reads the call again after the admission and rejects a changed call.
  const call = {
    get tool() {
      return request.params?.['name'] as string;
    },
    get arguments() {
      return request.params?.['arguments'] ?? {};
    },
    ...rest,
  };
  const progress = { hasRun: false };
  try {
    return await gate.guard(
      call,
      async (admission) => {
        progress.hasRun = true;
        return withProof(await run(), admission);
      },
      outcomeOf,
    );
  } catch (error) {
    // The tool itself may call a second admitted tool and throw the error of that call.
    const isRejected = !progress.hasRun && isNotAdmitted(error);
    if (isRejected && error.code !== 'aborted' && !isTask) return failedTool(error);
    throw error;
  }
}
