import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { utf8 } from '../../../protocol/bytes.js';
import { openParameterHeaders } from './http-headers.js';
import {
  type Connection,
  ERROR,
  errorResponse,
  idOf,
  isObject,
  isResponse,
  type Message,
  methodOf,
  paramsOf,
  readBody,
  readMessage,
  type Receiver,
  type RequestId,
  versionIn,
} from './message.js';
import { readEvents } from './sse.js';

const RECONNECT_MS = 1_000;
const RECONNECTS_MAX = 10;
const BODY_MAX_MIB = 64;

/**
 * A server behind streamable HTTP. Speaks the revision of each message: with sessions and a GET stream
 * up to 2025-11-25, and stateless since 2026-07-28. Follows no redirects, so the token stays with the
 * server.
 */
export function connectHttp(url: URL, token: string | undefined): Connection {
  const closing = new AbortController();
  const open = new Map<RequestId, AbortController>();
  const parameters = openParameterHeaders();
  const ended = once(closing.signal, 'abort');
  let receiver: Receiver | undefined;
  let session: { id?: string; version?: string } = {};

  async function send(message: Message): Promise<void> {
    const id = idOf(message);
    const method = methodOf(message);
    if (method === undefined || id === undefined || id === null) {
      const { requestId } = paramsOf(message);
      const stream = open.get(requestId as RequestId);
      // A stateless request is cancelled by closing its stream.
      if (method === 'notifications/cancelled' && stream !== undefined) return stream.abort();
      await notify(message);
      if (method === 'notifications/initialized') void listen();
      return;
    }
    // Not awaited: other messages do not wait for the response.
    void call(id, message);
  }

  async function notify(message: Message): Promise<void> {
    try {
      const response = await post(message, closing.signal);
      response.resume();
      if (response.statusCode! >= 400) throw new Error(`status ${String(response.statusCode)}`);
    } catch (error) {
      await receiver?.garbage(`it rejected ${methodOf(message) ?? 'a response'}: ${textOf(error)}`);
    }
  }

  /** Sends a request. Always ends with a response, except after a cancellation. */
  async function call(id: RequestId, message: Message): Promise<void> {
    const stop = new AbortController();
    const isStateless = versionIn(message) !== undefined;
    if (isStateless) open.set(id, stop);
    const signal = AbortSignal.any([stop.signal, closing.signal]);
    try {
      if (methodOf(message) === 'initialize') session = {};
      const response = await post(message, signal);
      await readResponse(id, message, response, signal);
    } catch (error) {
      if (!signal.aborted) {
        await receiver?.message(errorResponse(id, ERROR.internal, `MCP server: ${textOf(error)}`));
      }
    } finally {
      open.delete(id);
    }
  }

  async function readResponse(
    id: RequestId,
    request: Message,
    response: IncomingMessage,
    signal: AbortSignal,
  ): Promise<void> {
    const status = response.statusCode ?? 0;
    const type = response.headers['content-type'] ?? '';
    if (/^text\/event-stream\b/i.test(type) && status === 200) {
      let isAnswered = false;
      const deliver = async (data: string): Promise<void> => {
        const message = { ...readMessage(utf8(data)), relatedTo: id };
        if (isResponse(message)) {
          if (message.json['id'] !== id)
            throw new Error('the response has the id of another request');
          isAnswered = true;
          note(request, message, response);
        }
        await receiver?.message(message);
      };
      await follow(response, deliver, () => isAnswered, signal);
      if (!isAnswered) throw new Error('the response stream ended early');
      return;
    }
    const body = await readBody(response, 'response', BODY_MAX_MIB);
    // Errors of the protocol have a status of 400 or above, and a JSON-RPC error as body.
    if (/^application\/json\b/i.test(type)) {
      const message = { ...readMessage(body), relatedTo: id };
      note(request, message, response);
      if (isResponse(message) && message.json['id'] === id) return receiver?.message(message);
    }
    if (status === 404 && session.id !== undefined) {
      closing.abort();
      throw new Error('the session expired');
    }
    if (status === 401) throw new Error('it requires a token: set SVC_MCP_SERVER_TOKEN');
    throw new Error(`unexpected response with status ${String(status)} and type ${type}`);
  }

  /** Reads a stream of events, and resumes it where revisions up to 2025-11-25 allow that. */
  async function follow(
    response: IncomingMessage,
    deliver: (data: string) => Promise<void>,
    isDone: () => boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const place: { id?: string; retryMs?: number } = {};
    let stream: IncomingMessage | null = response;
    for (let attempts = 0; attempts < RECONNECTS_MAX; attempts++) {
      if (stream !== null) {
        for await (const event of readEvents(stream)) {
          if (event.id !== undefined) [place.id, attempts] = [event.id, 0];
          if (event.retryMs !== undefined) place.retryMs = event.retryMs;
          if (event.data !== '') await deliver(event.data);
          if (isDone()) return void stream.destroy();
        }
      }
      if (place.id === undefined || signal.aborted) return;
      await sleep(place.retryMs ?? RECONNECT_MS, undefined, { signal });
      const headers = { 'Last-Event-ID': place.id };
      stream = await get(headers, signal).catch(() => null);
    }
  }

  /** The stream of messages that belong to no request. Servers may have none (405). */
  async function listen(): Promise<void> {
    const deliver = async (data: string): Promise<void> => {
      const message = readMessage(utf8(data));
      // A response belongs to the stream of its request.
      if (!isResponse(message)) await receiver?.message(message);
    };
    for (let attempts = 0; attempts < RECONNECTS_MAX && !closing.signal.aborted; attempts++) {
      try {
        const response = await get({}, closing.signal);
        if (response === null) return;
        await follow(response, deliver, () => false, closing.signal);
        attempts = 0;
      } catch {
        // The next attempt may succeed; if the server is gone, requests report it.
      }
      await sleep(RECONNECT_MS, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  }

  async function get(
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<IncomingMessage | null> {
    const accept = { Accept: 'text/event-stream', ...headers };
    const response = await exchange('GET', accept, undefined, signal);
    if (response.statusCode === 200) return response;
    response.resume();
    return null;
  }

  function post(message: Message, signal: AbortSignal): Promise<IncomingMessage> {
    const headers = {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      ...parameters.of(message),
    };
    return exchange('POST', headers, message.text, signal);
  }

  async function exchange(
    method: string,
    headers: Record<string, string>,
    body: string | undefined,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const all = {
      ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      ...(session.id !== undefined && { 'Mcp-Session-Id': session.id }),
      ...(session.version !== undefined && { 'MCP-Protocol-Version': session.version }),
      ...headers,
    };
    const start = url.protocol === 'https:' ? httpsRequest : httpRequest;
    const sent = start(url, { method, headers: all, signal });
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    // The code that reads a broken stream reports the error.
    response.on('error', () => undefined);
    sent.on('error', () => undefined);
    return response;
  }

  /** Keeps session, version and tool headers for later requests. */
  function note(request: Message, { json }: Message, { headers }: IncomingMessage): void {
    const { result } = json;
    if (!isObject(result)) return;
    if (methodOf(request) === 'tools/list') parameters.note(result);
    if (methodOf(request) !== 'initialize') return;
    const id = headers['mcp-session-id'];
    const version = result['protocolVersion'];
    session = {
      ...(typeof id === 'string' && { id }),
      ...(typeof version === 'string' && { version }),
    };
  }

  return {
    send,
    read: async (given) => {
      receiver = given;
      await ended;
    },
    close: async () => {
      if (closing.signal.aborted) return;
      const goodbye =
        session.id === undefined
          ? null
          : exchange('DELETE', {}, undefined, AbortSignal.timeout(1_000));
      await goodbye?.then((response) => response.resume()).catch(() => undefined);
      closing.abort();
    },
  };
}

const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
