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

/** Limit of messages that a server sent before the host opened its GET stream. */
const WAITING_MAX = 100;

/** An open request, with the id and the progress token that the host chose. */
interface OpenRequest {
  id: RequestId;
  progressToken: unknown;
  reply: Reply;
}

export interface HostSession extends Connection {
  receive(message: Message, res: ServerResponse): Promise<void>;
  /** Opens the stream of messages that belong to no request. */
  listen(res: ServerResponse): void;
}

/**
 * A connection of one host, made of single HTTP exchanges. Stateless requests come from several hosts,
 * whose ids and progress tokens may be equal: the session renumbers them.
 */
export function openHostSession(isStateless: boolean): HostSession {
  const open = new Map<RequestId, OpenRequest>();
  const waiting: Message[] = [];
  const closing = new AbortController();
  const ended = once(closing.signal, 'abort');
  const started = new EventEmitter();
  const ready = once(started, 'ready', { signal: closing.signal }).catch(() => undefined);
  let receiver: Receiver | undefined;
  let general: Reply | null = null;
  let counter = 0;

  async function receive(message: Message, res: ServerResponse): Promise<void> {
    await ready;
    if (receiver === undefined) return reject(res, 502, 'the MCP server does not start');
    const id = idOf(message);
    if (methodOf(message) === undefined || id === undefined || id === null) {
      const isCancellation = methodOf(message) === 'notifications/cancelled';
      // A host cancels a stateless request by closing its stream. A cancellation by id is dropped, because the id
      // could belong to a request of another host.
      if (!isCancellation || !isStateless) await receiver.message(message);
      const { requestId } = paramsOf(message);
      // The cancelled request gets no response.
      if (isCancellation && !isStateless) finish(requestId as RequestId)?.end();
      return void res.writeHead(202).end();
    }
    const inner = isStateless ? ++counter : id;
    const { progressToken } = objectIn(paramsOf(message), '_meta');
    // Rejects the request here, because a rejection by the relay would belong to no stream.
    if (open.has(inner)) {
      return reject(res, 400, 'another request with this id has no response yet');
    }
    const reply = openReply(res);
    open.set(inner, { id, progressToken, reply });
    res.on('close', () => {
      if (finish(inner) !== undefined && isStateless) void receiver?.message(cancellation(inner));
    });
    await receiver.message(isStateless ? renumber(message, inner, progressToken) : message);
  }

  function finish(inner: RequestId): Reply | undefined {
    const found = open.get(inner);
    open.delete(inner);
    return found?.reply;
  }

  async function send(message: Message): Promise<void> {
    const inner = message.json['id'] as RequestId;
    if (isResponse(message)) {
      const found = open.get(inner);
      finish(inner)?.finish(found === undefined ? message : restore(message, found), isStateless);
      return;
    }
    const found = requestOf(message);
    const reply = found?.reply ?? general ?? (isStateless ? undefined : firstReply());
    if (reply !== undefined) {
      return reply.event(found === undefined ? message : restore(message, found));
    }
    if (waiting.length < WAITING_MAX) waiting.push(message);
  }

  const firstReply = (): Reply | undefined => [...open.values()][0]?.reply;

  function requestOf(message: Message): OpenRequest | undefined {
    const { progressToken, ...params } = paramsOf(message);
    if (message.relatedTo !== undefined) return open.get(message.relatedTo);
    const subscription = objectIn(params, '_meta')[META_SUBSCRIPTION];
    if (subscription !== undefined) return open.get(subscription as RequestId);
    if (methodOf(message) !== 'notifications/progress') return undefined;
    return isStateless
      ? open.get(progressToken as RequestId)
      : [...open.values()].find((one) => isDeepStrictEqual(one.progressToken, progressToken));
  }

  function restore(message: Message, { id, progressToken }: OpenRequest): Message {
    if (!isStateless) return message;
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

  return {
    receive,
    send,
    listen: (res) => {
      general?.end();
      const stream = openReply(res);
      general = stream;
      stream.open();
      res.on('close', () => (general = general === stream ? null : general));
      for (const message of waiting.splice(0)) void stream.event(message);
    },
    read: async (given) => {
      receiver = given;
      started.emit('ready');
      await ended;
    },
    close: () => {
      for (const { reply } of open.values()) reply.end();
      open.clear();
      general?.end();
      closing.abort();
      return Promise.resolve();
    },
  };
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
