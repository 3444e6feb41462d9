import * as z from 'zod';
import { attempt } from '../../protocol/errors.js';
import { SdkError } from '../errors.js';
import { type Gate, openGate } from './gate.js';
import { type AdapterOptions, type Admission, NotAdmittedError, type Outcome } from './options.js';

/** A `Server` of `@modelcontextprotocol/sdk`. */
export interface LowLevelServer {
  /** Throws if the method has a handler. */
  assertCanSetRequestHandler(method: string): void;
  /** Registers the handler that every tool call reaches. */
  setRequestHandler(schema: never, handler: never): void;
}

/** An `McpServer` or a `Server`. */
export type AnyMcpServer = LowLevelServer | { server: LowLevelServer };

/** A `Client` of `@modelcontextprotocol/sdk`. */
export interface AnyMcpClient {
  /** Every method that calls tools sends its requests through this one. */
  request(request: never, schema: never, options?: never): Promise<unknown>;
}

type Handler = (request: McpRequest, extra: { signal?: AbortSignal }) => unknown;

/** The common part of `Client` and `Server` of v1, and the fallback of a server. */
interface V1Handlers {
  assertCanSetRequestHandler(method: string): void;
  setRequestHandler(schema: unknown, handler: Handler): void;
  removeRequestHandler(method: string): void;
  fallbackRequestHandler?: Handler | undefined;
}

/**
 * Admits every tool call of an MCP server before it reaches a tool, including tools that are
 * registered later. The hash is of the arguments as the client sent them. Call this before the first
 * tool is registered: throws `SdkError` (`invalid_input`) afterwards, and for a server of MCP SDK v2.
 * Returns the same server.
 */
export function admitServer<S extends AnyMcpServer>(server: S, options: AdapterOptions): S {
  const gate = openGate(options, 'mcp');
  const handlers = ('server' in server ? server.server : server) as unknown as V1Handlers;
  requireMcpV1(handlers);
  try {
    handlers.assertCanSetRequestHandler('tools/call');
  } catch (cause) {
    const message = 'the server has tools already: call admitServer before the first of them';
    throw new SdkError('invalid_input', message, { cause });
  }

  const guarded =
    (handler: Handler): Handler =>
    (request, extra) =>
      request.method === 'tools/call'
        ? gateToolCall(gate, request, extra, {
            isTask: request.params?.['task'] !== undefined,
            run: () => handler(request, extra),
          })
        : handler(request, extra);

  const register = handlers.setRequestHandler.bind(handlers);
  handlers.setRequestHandler = (schema, handler) => register(schema, guarded(handler));
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

interface McpCallOptions {
  signal?: AbortSignal;
  task?: unknown;
}

/**
 * Admits every tool call of an MCP client, of any method, before the client sends it. A call without
 * an admission is not sent, and returns the result of a failed tool. Throws `SdkError`
 * (`invalid_input`) for a client of MCP SDK v2. Returns the same client.
 */
export function admitClient<C extends AnyMcpClient>(client: C, options: AdapterOptions): C {
  const gate = openGate(options, 'mcp');
  const own = client as unknown as V1Handlers & {
    request(request: McpRequest, schema: unknown, options?: McpCallOptions): Promise<unknown>;
  };
  requireMcpV1(own);
  const send = own.request.bind(client);
  own.request = (request, schema, callOptions) =>
    request.method === 'tools/call'
      ? gateToolCall(gate, request, callOptions, {
          isTask: callOptions?.task !== undefined || request.params?.['task'] !== undefined,
          run: () => send(request, schema, callOptions),
        })
      : send(request, schema, callOptions);
  return client;
}

const PROBE = 'svc/probe';
const probeSchema = z.object({ method: z.literal(PROBE) });

/**
 * Throws `invalid_input` unless the object registers handlers like v1, under the method that a
 * schema names. In v2 the signal is passed differently, and a call may send several requests.
 */
function requireMcpV1(object: V1Handlers): void {
  if (registersBySchema(object)) return;
  throw new SdkError(
    'invalid_input',
    'expected a server or client of @modelcontextprotocol/sdk, 1.12 or a later 1.x: no other MCP library is supported, nor are @modelcontextprotocol/server and @modelcontextprotocol/client 2.x',
  );
}

function registersBySchema(object: V1Handlers): boolean {
  const isFree = (): boolean =>
    attempt(() => {
      object.assertCanSetRequestHandler(PROBE);
      return true;
    }) ?? false;
  const isV1 = attempt(() => {
    if (!isFree()) return false;
    object.setRequestHandler(probeSchema, () => ({}));
    const isTaken = !isFree();
    object.removeRequestHandler(PROBE);
    return isTaken && isFree();
  });
  return isV1 ?? false;
}

/** Member of an MCP result's `_meta` with the proof of the decision. */
export const PROOF_ID_META = 'svc/proof_id';
/** Member of an MCP result's `_meta` with a `NotAdmittedCode`: the tool did not run. */
export const NOT_ADMITTED_META = 'svc/not_admitted';

interface McpRequest {
  method: string;
  params?: Record<string, unknown>;
}

/**
 * Runs a `tools/call`. A call without an admission returns MCP's result of a failed tool, whose text
 * the model reads. A call that starts a task has no such result, and throws.
 */
async function gateToolCall(
  gate: Gate,
  { params = {} }: McpRequest,
  context: { signal?: AbortSignal } | undefined,
  { isTask, run }: { isTask: boolean; run: () => unknown },
): Promise<unknown> {
  try {
    const call = {
      tool: params['name'] as string,
      get arguments() {
        return params['arguments'] ?? {};
      },
      context,
      signal: context?.signal,
    };
    return await gate.guard(
      call,
      async (admission) => withProof(await run(), admission),
      outcomeOf,
    );
  } catch (error) {
    if (error instanceof NotAdmittedError && !isTask) return failedTool(error);
    throw error;
  }
}

/** Hashes the result without `_meta`, which client and server may extend. */
export function outcomeOf(result: unknown): Outcome | null {
  if (!isObject(result)) return { result: 'succeeded', value: result };
  // A task has only begun, so its outcome is still unknown.
  if (isObject(result['task']) && !('content' in result)) return null;
  const own = Object.fromEntries(Object.entries(result).filter(([name]) => name !== '_meta'));
  return { result: own['isError'] === true ? 'failed' : 'succeeded', value: own };
}

export function withProof(result: unknown, admission: Pick<Admission, 'proofId'> | null): unknown {
  if (admission === null || !isObject(result)) return result;
  const meta = isObject(result['_meta']) ? result['_meta'] : {};
  return { ...result, _meta: { ...meta, [PROOF_ID_META]: admission.proofId } };
}

export function failedTool({ code, message, proofId }: NotAdmittedError): object {
  return {
    isError: true,
    content: [{ type: 'text', text: message }],
    _meta: {
      [NOT_ADMITTED_META]: code,
      ...(proofId !== undefined && { [PROOF_ID_META]: proofId }),
    },
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
