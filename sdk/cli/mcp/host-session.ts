import { EventEmitter, once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import {
  type Connection,
  idOf,
  isResponse,
  type JsonObject,
  makeMessage,
  type Message,
  META_SUBSCRIPTION,
  methodOf,
  objectIn,
  paramsOf,
  type Receiver,
  type RequestId,
} from './message.js';
import { openReply, reject, type Reply } from './reply.js';

/** Maximum number of messages kept for a host that has no open GET stream. */
const WAITING_MAX = 100;

/** An open request, with the id and the progress token that the host chose. */
interface OpenRequest {
  id: RequestId;
  progressToken: unknown;
  reply: Reply;
}

/**
 * A connection of one host, made of single HTTP exchanges. Stateless requests come from several hosts,
 * whose ids and progress tokens may be equal: the session renumbers them.
 */
export class HostSession implements Connection {
  private readonly open = new Map<RequestId, OpenRequest>();
  private readonly waiting: Message[] = [];
  private readonly closing = new AbortController();
  private readonly ended = once(this.closing.signal, 'abort');
  private readonly started = new EventEmitter();
  private readonly ready = once(this.started, 'ready', { signal: this.closing.signal }).catch(
    () => undefined,
  );
  private receiver: Receiver | undefined;
  private general: Reply | null = null;
  private counter = 0;

  constructor(private readonly isStateless: boolean) {}

  readonly send = async (message: Message): Promise<void> => {
    const inner = message.json['id'] as RequestId;
    if (isResponse(message)) {
      const found = this.open.get(inner);
      this.open.delete(inner);
      return found?.reply.finish(this.restore(message, found), this.isStateless);
    }
    const found = this.requestOf(message);
    const reply =
      found?.reply ??
      this.general ??
      (this.isStateless ? undefined : [...this.open.values()][0]?.reply);
    if (reply !== undefined) {
      return reply.event(found === undefined ? message : this.restore(message, found));
    }
    if (this.waiting.length < WAITING_MAX) this.waiting.push(message);
  };

  async read(receiver: Receiver): Promise<void> {
    this.receiver = receiver;
    this.started.emit('ready');
    await this.ended;
  }

  close(): Promise<void> {
    for (const { reply } of this.open.values()) reply.end();
    this.open.clear();
    this.general?.end();
    this.closing.abort();
    return Promise.resolve();
  }

  /** Opens the stream of messages that belong to no request. */
  listen(res: ServerResponse): void {
    this.general?.end();
    const stream = openReply(res);
    this.general = stream;
    stream.open();
    res.on('close', () => (this.general = this.general === stream ? null : this.general));
    for (const message of this.waiting.splice(0)) void stream.event(message);
  }

  async receive(message: Message, res: ServerResponse): Promise<void> {
    await this.ready;
    if (this.receiver === undefined) return reject(res, 502, 'the MCP server does not start');
    const id = idOf(message);
    if (methodOf(message) === undefined || id === undefined || id === null) {
      const isCancellation = methodOf(message) === 'notifications/cancelled';
      // A host cancels a stateless request by closing its stream. A cancellation by id is dropped, because the id
      // could belong to a request of another host.
      if (!isCancellation || !this.isStateless) await this.receiver.message(message);
      const { requestId } = paramsOf(message);
      // The cancelled request gets no response.
      if (isCancellation && !this.isStateless) this.finish(requestId as RequestId)?.end();
      return void res.writeHead(202).end();
    }
    const inner = this.isStateless ? ++this.counter : id;
    const { progressToken } = objectIn(paramsOf(message), '_meta');
    // Rejects the request here, because a rejection by the relay would belong to no stream.
    if (this.open.has(inner)) {
      return reject(res, 400, 'another request with this id has no response yet');
    }
    const reply = openReply(res);
    this.open.set(inner, { id, progressToken, reply });
    res.on('close', () => {
      if (this.finish(inner) !== undefined && this.isStateless)
        void this.receiver?.message(cancellation(inner));
    });
    await this.receiver.message(
      this.isStateless ? renumber(message, inner, progressToken) : message,
    );
  }

  private finish(inner: RequestId): Reply | undefined {
    const found = this.open.get(inner);
    this.open.delete(inner);
    return found?.reply;
  }

  private requestOf(message: Message): OpenRequest | undefined {
    const { progressToken, ...params } = paramsOf(message);
    if (message.relatedTo !== undefined) return this.open.get(message.relatedTo);
    const subscription = objectIn(params, '_meta')[META_SUBSCRIPTION];
    if (subscription !== undefined) return this.open.get(subscription as RequestId);
    if (methodOf(message) !== 'notifications/progress') return undefined;
    return this.isStateless
      ? this.open.get(progressToken as RequestId)
      : [...this.open.values()].find((one) => isDeepStrictEqual(one.progressToken, progressToken));
  }

  private restore(message: Message, { id, progressToken }: OpenRequest): Message {
    if (!this.isStateless) return message;
    const { json } = message;
    if (isResponse(message)) {
      const result = objectIn(json, 'result');
      return makeMessage({
        ...json,
        id,
        ...('result' in json && { result: withSubscription(result, id) }),
      });
    }
    const params = withSubscription(objectIn(json, 'params'), id);
    const isProgress = methodOf(message) === 'notifications/progress';
    return makeMessage({ ...json, params: isProgress ? { ...params, progressToken } : params });
  }
}

function renumber(message: Message, id: RequestId, progressToken: unknown): Message {
  const { isStrict, json } = message;
  const { params, ...rest } = json;
  if (progressToken === undefined) return { ...makeMessage({ ...json, id }), isStrict };
  const _meta = { ...objectIn(params as JsonObject, '_meta'), progressToken: id };
  const renumbered = { ...rest, id, params: { ...(params as JsonObject), _meta } };
  return { ...makeMessage(renumbered), isStrict };
}

function withSubscription(holder: JsonObject, id: RequestId): JsonObject {
  const meta = objectIn(holder, '_meta');
  if (meta[META_SUBSCRIPTION] === undefined) return holder;
  return { ...holder, _meta: { ...meta, [META_SUBSCRIPTION]: id } };
}

const cancellation = (requestId: RequestId): Message =>
  makeMessage({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } });
