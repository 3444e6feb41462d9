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

const RECONNECT_MS = 1_000;
const RECONNECTS_MAX = 10;
const BODY_MAX_MIB = 64;

/**
 * A server behind streamable HTTP. Speaks the revision of each message: with sessions and a GET stream
 * up to 2025-11-25, and stateless since 2026-07-28. Follows no redirects, so the token stays with the
 * server.
 */
export class HttpServer implements Connection {
  private readonly closing = new AbortController();
  private readonly open = new Map<RequestId, AbortController>();
  private readonly parameters = openParameterHeaders();
  private readonly ended = once(this.closing.signal, 'abort');
  private receiver: Receiver | undefined;
  private session: { id?: string; version?: string } = {};

  constructor(
    private readonly url: URL,
    private readonly token: string | undefined,
  ) {}

  readonly send = async (message: Message): Promise<void> => {
    const id = idOf(message);
    const method = methodOf(message);
    if (method === undefined || id === undefined || id === null) {
      const { requestId } = paramsOf(message);
      const stream = this.open.get(requestId as RequestId);
      // A stateless request is cancelled by closing its stream.
      if (method === 'notifications/cancelled' && stream !== undefined) return stream.abort();
      await this.notify(message);
      if (method === 'notifications/initialized') void this.listen();
      return;
    }
    // Not awaited: other messages do not wait for the response.
    void this.call(id, message);
  };

  async read(receiver: Receiver): Promise<void> {
    this.receiver = receiver;
    await this.ended;
  }

  async close(): Promise<void> {
    if (this.closing.signal.aborted) return;
    const goodbye =
      this.session.id === undefined
        ? null
        : this.exchange('DELETE', {}, undefined, AbortSignal.timeout(1_000));
    await goodbye?.then((response) => response.resume()).catch(() => undefined);
    this.closing.abort();
  }

  private async notify(message: Message): Promise<void> {
    try {
      const response = await this.post(message, this.closing.signal);
      response.resume();
      if (response.statusCode! >= 400) throw new Error(`status ${String(response.statusCode)}`);
    } catch (error) {
      await this.receiver?.garbage(
        `the server rejected ${methodOf(message) ?? 'a response'}: ${textOf(error)}`,
      );
    }
  }

  /** Sends a request. Always ends with a response, except after a cancellation. */
  private async call(id: RequestId, message: Message): Promise<void> {
    const stop = new AbortController();
    const isStateless = versionIn(message) !== undefined;
    if (isStateless) this.open.set(id, stop);
    const signal = AbortSignal.any([stop.signal, this.closing.signal]);
    try {
      if (methodOf(message) === 'initialize') this.session = {};
      const response = await this.post(message, signal);
      await this.readResponse(id, message, response, signal);
    } catch (error) {
      if (!signal.aborted) {
        await this.receiver?.message(
          errorResponse(id, ERROR.internal, `MCP server: ${textOf(error)}`),
        );
      }
    } finally {
      this.open.delete(id);
    }
  }

  private async readResponse(
    id: RequestId,
    request: Message,
    response: IncomingMessage,
    signal: AbortSignal,
  ): Promise<void> {
    const status = response.statusCode ?? 0;
    const type = response.headers['content-type'] ?? '';
    if (/^text\/event-stream\b/i.test(type) && status === 200) {
      return this.readResponseStream(id, request, response, signal);
    }
    const body = await readBody(response, 'response', BODY_MAX_MIB);
    // Errors of the protocol have a status of 400 or above, and a JSON-RPC error as body.
    if (/^application\/json\b/i.test(type)) {
      const message = { ...readMessage(body), relatedTo: id };
      this.note(request, message, response);
      if (isResponse(message) && message.json['id'] === id) return this.receiver?.message(message);
    }
    if (status === 404 && this.session.id !== undefined) {
      this.closing.abort();
      throw new Error('the session expired');
    }
    if (status === 401) throw new Error('a token is required: set SVC_MCP_SERVER_TOKEN');
    throw new Error(`unexpected response with status ${String(status)} and type ${type}`);
  }

  private async readResponseStream(
    id: RequestId,
    request: Message,
    response: IncomingMessage,
    signal: AbortSignal,
  ): Promise<void> {
    for await (const data of this.events(response, signal)) {
      const message = { ...readMessage(utf8(data)), relatedTo: id };
      const isAnswer = isResponse(message);
      if (isAnswer && message.json['id'] !== id) {
        throw new Error('the response does not have the id of its request');
      }
      if (isAnswer) this.note(request, message, response);
      await this.receiver?.message(message);
      if (isAnswer) return;
    }
    throw new Error('the response stream ended early');
  }

  /**
   * The data of an event stream. After an interruption, resumes from the last event id, as MCP revisions up to
   * 2025-11-25 allow.
   */
  private async *events(response: IncomingMessage, signal: AbortSignal): AsyncGenerator<string> {
    const place: { id?: string; retryMs?: number } = {};
    let stream: IncomingMessage | null = response;
    for (let attempts = 0; attempts < RECONNECTS_MAX; attempts++) {
      for await (const event of stream === null ? [] : readEvents(stream)) {
        if (event.id !== undefined) [place.id, attempts] = [event.id, 0];
        if (event.retryMs !== undefined) place.retryMs = event.retryMs;
        if (event.data !== '') yield event.data;
      }
      if (place.id === undefined || signal.aborted) return;
      await sleep(place.retryMs ?? RECONNECT_MS, undefined, { signal });
      stream = await this.get({ 'Last-Event-ID': place.id }, signal).catch(() => null);
    }
  }

  /** Reads the stream of messages that belong to no request. Servers may have none (405). */
  private async listen(): Promise<void> {
    const { signal } = this.closing;
    for (let attempts = 0; attempts < RECONNECTS_MAX && !signal.aborted; attempts++) {
      try {
        const response = await this.get({}, signal);
        if (response === null) return;
        for await (const data of this.events(response, signal)) {
          const message = readMessage(utf8(data));
          // Ignores responses: a response belongs to the stream of its request.
          if (!isResponse(message)) await this.receiver?.message(message);
        }
        attempts = 0;
      } catch {
        // Ignored: the next attempt may succeed, and if the server is gone, the requests report it.
      }
      await sleep(RECONNECT_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  private async get(
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<IncomingMessage | null> {
    const accept = { Accept: 'text/event-stream', ...headers };
    const response = await this.exchange('GET', accept, undefined, signal);
    if (response.statusCode === 200) return response;
    response.resume();
    return null;
  }

  private post(message: Message, signal: AbortSignal): Promise<IncomingMessage> {
    const headers = {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      ...this.parameters.of(message),
    };
    return this.exchange('POST', headers, message.text, signal);
  }

  private async exchange(
    method: string,
    headers: Record<string, string>,
    body: string | undefined,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const all = {
      ...(this.token !== undefined && { Authorization: `Bearer ${this.token}` }),
      ...(this.session.id !== undefined && { 'Mcp-Session-Id': this.session.id }),
      ...(this.session.version !== undefined && { 'MCP-Protocol-Version': this.session.version }),
      ...headers,
    };
    const start = this.url.protocol === 'https:' ? httpsRequest : httpRequest;
    const sent = start(this.url, { method, headers: all, signal });
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    // Ignored here: the code that reads a broken stream reports the error.
    response.on('error', () => undefined);
    sent.on('error', () => undefined);
    return response;
  }

  /** Keeps session, version and tool headers for later requests. */
  private note(request: Message, { json }: Message, { headers }: IncomingMessage): void {
    const { result } = json;
    if (!isObject(result)) return;
    if (methodOf(request) === 'tools/list') this.parameters.note(result);
    if (methodOf(request) !== 'initialize') return;
    const id = headers['mcp-session-id'];
    const version = result['protocolVersion'];
    this.session = {
      ...(typeof id === 'string' && { id }),
      ...(typeof version === 'string' && { version }),
    };
  }
}

const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

interface ServerSentEvent {
  data: string;
  id?: string;
  retryMs?: number;
}

const MAX_EVENT_CHARS = 64 * 2 ** 20;

/** Reads events as the HTML standard describes. A broken stream ends like a closed one. */
export async function* readEvents(
  stream: AsyncIterable<Uint8Array>,
): AsyncGenerator<ServerSentEvent> {
  const decoder = new TextDecoder();
  let rest = '';
  let data: string[] = [];
  let size = 0;
  let event: Omit<ServerSentEvent, 'data'> = {};
  try {
    for await (const chunk of stream) {
      rest += decoder.decode(chunk, { stream: true });
      // Keeps a CR at the end, which may be the first half of CRLF.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? '';
      if (rest.length + size > MAX_EVENT_CHARS) return;
      for (const line of lines) {
        const [, field = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
        size += line.length;
        if (field === 'data') data.push(value);
        else if (field === 'id') event.id = value;
        else if (field === 'retry' && /^[0-9]+$/.test(value)) event.retryMs = Number(value);
        else if (line === '') {
          yield { ...event, data: data.join('\n') };
          [data, event, size] = [[], {}, 0];
        }
      }
    }
  } catch {
    // Ignored: callers detect a broken stream by its missing events.
  }
}
