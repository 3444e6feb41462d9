import { openGate } from './gate.js';
import { gatedCall, type McpRequest } from './mcp-call.js';
import { requireMcpV1 } from './mcp-v1.js';
import type { AdapterOptions } from './options.js';

/** A `Client` of `@modelcontextprotocol/sdk`, or what is one. */
export interface AnyMcpClient {
  /** What every other method of it comes to. */
  request(request: never, schema: never, options?: never): Promise<unknown>;
}

interface CallOptions {
  signal?: AbortSignal;
  task?: unknown;
}

/**
 * Has every tool call of an MCP client admitted before it is sent to the server, by whichever method
 * it is made. A call that is not admitted is not sent, and answered as a tool that failed. Throws
 * `SdkError` (`invalid_input`) for a client of MCP SDK v2. Returns the same client.
 */
export function admitClient<C extends AnyMcpClient>(client: C, options: AdapterOptions): C {
  const gate = openGate({ ...options, agent: { framework: 'mcp', ...options.agent } });
  requireMcpV1(client);
  const own = client as unknown as {
    request(request: McpRequest, schema: unknown, options?: CallOptions): Promise<unknown>;
  };
  const send = own.request.bind(client);
  own.request = (request, schema, how) =>
    request.method === 'tools/call'
      ? gatedCall(gate, request, how?.signal, {
          isTask: how?.task !== undefined || request.params?.['task'] !== undefined,
          run: () => send(request, schema, how),
        })
      : send(request, schema, how);
  return client;
}
