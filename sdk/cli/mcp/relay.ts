import { failedTool } from '../../adapters/mcp.js';
import { NotAdmittedError, type PendingApproval } from '../../adapters/options.js';
import type { Calls, OpenCall } from './calls.js';
import {
  ERROR,
  errorResponse,
  idOf,
  isObject,
  isResponse,
  isValid,
  type JsonObject,
  makeMessage,
  type Message,
  methodOf,
  objectIn,
  paramsOf,
  type Receiver,
  type RequestId,
  versionIn,
} from './message.js';

const INVALID = 'the message is not a JSON-RPC 2.0 message';
/** A host with more open requests is broken or hostile. */
const PENDING_MAX = 1_000;
/** After a cancellation, the time in which a result still counts as the outcome. */
const CANCEL_GRACE_MS = 2_000;
/** Progress keeps a host from giving up while an approval is pending. */
const PROGRESS_MS = 5_000;

/** A request of the host without a response. */
type Pending = { id: RequestId } & (
  | { state: 'sent'; method: string; params: JsonObject }
  | { state: 'admitting'; stop: AbortController }
  | { state: 'running'; call: OpenCall }
  | { state: 'cancelled'; call: OpenCall; timer: NodeJS.Timeout }
);

export interface RelayOptions {
  calls: Calls;
  toHost: (message: Message) => Promise<void>;
  toServer: (message: Message) => Promise<void>;
  /** What approvers do, for people. */
  howToApprove: (proofId: string) => string;
  log: (text: string) => void;
}

export type Relay = ReturnType<typeof openRelay>;

/**
 * Passes messages between a host and a server. Every `tools/call` waits for its admission; nothing else
 * is held back. Responses reach the host only for requests that the server got, and once.
 */
export function openRelay({ calls, toHost, toServer, howToApprove, log }: RelayOptions) {
  const pending = new Map<string, Pending>();

  async function fromHost(message: Message): Promise<void> {
    const [id, method] = [idOf(message), methodOf(message)];
    if (!isValid(message)) return reject(null, ERROR.invalidRequest, INVALID);
    if (method === undefined || id === null) return toServer(message);
    if (id === undefined) return fromHostNotification(method, message);
    const key = keyOf(id);
    // A response with this id would end the open request.
    if (pending.has(key)) return reject(null, ERROR.invalidRequest, `the id ${key} is in use`);
    if (pending.size >= PENDING_MAX) {
      return reject(id, ERROR.internal, 'too many requests are open');
    }
    if (method === 'tools/call') return void callTool(id, message);
    pending.set(key, { id, state: 'sent', method, params: paramsOf(message) });
    return toServer(message);
  }

  async function fromHostNotification(method: string, message: Message): Promise<void> {
    // A server could run it.
    if (method === 'tools/call') return log('dropped a tools/call without an id');
    const { requestId } = paramsOf(message);
    const key = keyOf(requestId);
    const found = method === 'notifications/cancelled' ? pending.get(key) : undefined;
    // The server does not know the request.
    if (found?.state === 'admitting') return found.stop.abort();
    if (found?.state === 'running') {
      const { id, call } = found;
      const timer = setTimeout(() => void end(key), CANCEL_GRACE_MS);
      pending.set(key, { id, state: 'cancelled', call, timer });
    }
    return toServer(message);
  }

  /** Never rejects. */
  async function callTool(id: RequestId, message: Message): Promise<void> {
    const params = paramsOf(message);
    const { name, arguments: args = {} } = params;
    if (!message.isStrict || typeof name !== 'string' || !isObject(args)) {
      const why = message.isStrict
        ? 'tools/call needs a name, and arguments that are an object'
        : 'two JSON parsers could read this call differently';
      return reject(id, ERROR.invalidParams, why);
    }
    if (!calls.tools.mayHave(name)) {
      return reject(id, ERROR.invalidParams, `Unknown tool: ${name}`);
    }
    const key = keyOf(id);
    const stop = new AbortController();
    pending.set(key, { id, state: 'admitting', stop });
    const progress = openProgress(id, objectIn(params, '_meta')['progressToken']);
    try {
      const call = await calls.begin(message, { signal: stop.signal, onPending: progress.start });
      if (stop.signal.aborted) {
        pending.delete(key);
        return void calls.end(call, null);
      }
      pending.set(key, { id, state: 'running', call });
      return await toServer(message);
    } catch (error) {
      pending.delete(key);
      // A cancelled request gets no response.
      if (!stop.signal.aborted) await toHost(refusal(id, message, error));
    } finally {
      progress.stop();
    }
  }

  /** Reports a pending approval under the token of the request. */
  function openProgress(id: RequestId, progressToken: unknown) {
    let timer: NodeJS.Timeout | undefined;
    let sent = 0;
    return {
      start: ({ proofId }: PendingApproval): void => {
        log(`waits for an approval: ${howToApprove(proofId)}`);
        if (progressToken === undefined) return;
        const report = (): void => {
          // Tiny, because progress must increase, and the server's own begins later.
          const progress = ++sent / 1e6;
          const text = `Waiting for an approval: ${howToApprove(proofId)}`;
          const params = { progressToken, progress, message: text };
          void toHost(
            makeMessage({ jsonrpc: '2.0', method: 'notifications/progress', params }, id),
          );
        };
        report();
        timer = setInterval(report, PROGRESS_MS);
      },
      stop: (): void => clearInterval(timer),
    };
  }

  async function fromServer(message: Message): Promise<void> {
    if (!isResponse(message)) {
      if (methodOf(message) === 'notifications/tools/list_changed') calls.tools.forget();
      return toHost(message);
    }
    const key = keyOf(message.json['id']);
    const found = pending.get(key);
    if (found === undefined || found.state === 'admitting') {
      return log('dropped a response of the server to no open request');
    }
    if (found.state !== 'sent') return end(key, message);
    pending.delete(key);
    if (found.method === 'tools/list') {
      calls.tools.note(found.params, objectIn(message.json, 'result'));
    }
    return toHost(message);
  }

  /** Ends a call that the server got. A cancelled request gets no response. */
  async function end(key: string, response: Message | null = null): Promise<void> {
    const found = pending.get(key);
    if (found === undefined || !('call' in found)) return;
    pending.delete(key);
    if (found.state === 'cancelled') clearTimeout(found.timer);
    const answer = calls.end(found.call, response);
    if (answer !== null && found.state === 'running') await toHost(answer);
  }

  function reject(id: RequestId | null, code: number, text: string): Promise<void> {
    return toHost(errorResponse(id, code, text));
  }

  return {
    host: {
      message: fromHost,
      garbage: (reason: string) => reject(null, ERROR.parse, reason),
    } satisfies Receiver,
    server: {
      message: fromServer,
      garbage: (reason: string) => Promise.resolve(log(`dropped output of the server: ${reason}`)),
    } satisfies Receiver,
    /** Calls that wait for their admission do not run: the host is gone. */
    stopAdmitting: (): void => {
      for (const found of pending.values()) if (found.state === 'admitting') found.stop.abort();
    },
    /** Answers every open request, because the server no longer does. */
    close: async (): Promise<void> => {
      for (const [key, found] of pending) {
        if (found.state === 'admitting') found.stop.abort();
        else await end(key);
        pending.delete(key);
        if (found.state !== 'cancelled')
          await reject(found.id, ERROR.internal, 'the MCP server ended');
      }
    },
  };
}

/** 1 and "1" are different ids. */
const keyOf = (id: unknown): string => JSON.stringify(id) ?? '';

/** What the model reads. A call that starts a task has no result of a tool. */
function refusal(id: RequestId, call: Message, error: unknown): Message {
  if (!(error instanceof NotAdmittedError)) {
    return errorResponse(id, ERROR.internal, 'the admission of the call failed');
  }
  if (paramsOf(call)['task'] !== undefined) {
    return errorResponse(id, ERROR.notAdmitted, error.message);
  }
  // Revisions since 2026-07-28 require the member.
  const type = versionIn(call) === undefined ? {} : { resultType: 'complete' };
  return makeMessage({ jsonrpc: '2.0', id, result: { ...type, ...failedTool(error) } });
}
