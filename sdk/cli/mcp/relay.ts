import type { Gate, CallOutcome } from '../../adapters/gate.js';
import { failedTool, outcomeOf, withProof } from '../../adapters/mcp-result.js';
import type { Admission, GatedCall, PendingApproval } from '../../adapters/options.js';
import type { AgentRun } from '../../adapters/run.js';
import { isNotAdmitted } from '../../errors.js';
import { traceparentSchema } from '../../../protocol/schemas/admission.js';
import { keptNumberIn } from './exact-numbers.js';
import { describe, type Mapping } from './mapping.js';
import {
  ERROR,
  errorResponse,
  hasOtherCase,
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
import { openTasks } from './tasks.js';

const INVALID = 'the message is not a JSON-RPC 2.0 message';
/** A host with more open requests is broken or hostile. */
const PENDING_MAX = 1_000;
/** After a cancellation, the time in which a result still counts as the outcome. */
const CANCEL_GRACE_MS = 2_000;
/** Progress keeps a host from giving up while an approval is pending. */
const PROGRESS_MS = 5_000;

/** Limit of tool lists of which the host has not read the last page. */
const UNFINISHED_MAX = 100;

/** A request of the host without a response. */
type Pending = SentRequest | ToolCall;

interface SentRequest {
  id: RequestId;
  method: string;
  params: JsonObject;
}

interface ToolCall {
  id: RequestId;
  /** Aborted when the host cancels the call, which then gets no response. */
  stop: AbortController;
  /** Ends the call with the response, or null without one. Present once the server has the request. */
  settle?: (response: Message | null) => void;
  /** Resolves after the response was sent to the host. */
  done?: Promise<void>;
}

export interface RelayOptions {
  gate: Gate;
  mapping: Mapping;
  /** The run in which the requests are numbered. */
  run: AgentRun | undefined;
  toHost: (message: Message) => Promise<void>;
  toServer: (message: Message) => Promise<void>;
  /** Instructions for approvers. */
  howToApprove: (proofId: string) => string;
  log: (text: string) => void;
}

/**
 * Passes messages between a host and a server. Every `tools/call` waits for its admission; all other
 * messages pass at once. A response of the server passes once, and only if the server got the request.
 */
export function openRelay(options: RelayOptions) {
  const { gate, mapping, run: numbers, toHost, toServer, howToApprove, log } = options;
  const pending = new Map<string, Pending>();
  const tools = openToolList();
  const tasks = openTasks(outcomeIn);

  async function fromHost(message: Message): Promise<void> {
    const [id, method] = [idOf(message), methodOf(message)];
    if (!isValid(message)) return reject(null, ERROR.invalidRequest, INVALID);
    if (method === undefined || id === null) return toServer(message);
    if (id === undefined) return fromHostNotification(method, message);
    const key = keyOf(id);
    // Rejects without the id, because a response with this id would end the open request.
    if (pending.has(key)) return reject(null, ERROR.invalidRequest, `the id ${key} is in use`);
    if (pending.size >= PENDING_MAX) {
      return reject(id, ERROR.internal, 'too many requests without a response');
    }
    if (method === 'tools/call') return callTool(id, message);
    pending.set(key, { id, method, params: paramsOf(message) });
    return toServer(message);
  }

  async function fromHostNotification(method: string, message: Message): Promise<void> {
    // Drops a call without an id: a server could run it, but no answer could be sent.
    if (method === 'tools/call') return log('dropped a tools/call without an id');
    const found = pending.get(keyOf(paramsOf(message)['requestId']));
    if (method === 'notifications/cancelled' && found !== undefined && 'stop' in found) {
      found.stop.abort();
      // The server did not get the cancelled request.
      if (found.settle === undefined) return;
      setTimeout(found.settle, CANCEL_GRACE_MS, null);
    } else if (method === 'notifications/cancelled' && found !== undefined) {
      setTimeout(forget, CANCEL_GRACE_MS, found).unref();
    }
    return toServer(message);
  }

  /** A server need not respond to a cancelled request, so the request would stay pending. */
  function forget(request: Pending): void {
    const key = keyOf(request.id);
    if (pending.get(key) === request) pending.delete(key);
  }

  /** Starts a call, so that other messages do not wait for its admission. */
  async function callTool(id: RequestId, message: Message): Promise<void> {
    const params = paramsOf(message);
    const { name, arguments: args = {} } = params;
    const isClear = message.isStrict && !hasOtherCase(params, ['name', 'arguments']);
    if (!isClear || typeof name !== 'string' || !isObject(args)) {
      const why = isClear
        ? 'tools/call needs a name, and arguments that are an object'
        : 'two JSON parsers could read this call differently';
      return reject(id, ERROR.invalidParams, why);
    }
    if (!tools.mayHave(name)) return reject(id, ERROR.invalidParams, `Unknown tool: ${name}`);
    const call: ToolCall = { id, stop: new AbortController() };
    pending.set(keyOf(id), call);
    call.done = guard(call, name, args, message);
  }

  /** Never rejects. */
  async function guard(
    call: ToolCall,
    tool: string,
    args: JsonObject,
    message: Message,
  ): Promise<void> {
    const { id, stop } = call;
    const { signal } = stop;
    const params = paramsOf(message);
    const progress = openProgress(id, objectIn(params, '_meta')['progressToken']);
    const { hashed, ...described } = describe(mapping, tool, args);
    const rounded = keptNumberIn(args);
    const gated: GatedCall = {
      tool,
      get arguments() {
        if (rounded !== undefined) throw inexact(rounded);
        return hashed;
      },
      ...described,
      run: numbers,
      // The trace of the host (SEP-414). A malformed trace is ignored, as W3C Trace Context requires.
      traceparent: traceparentSchema.safeParse(objectIn(params, '_meta')['traceparent']).data,
      continues: params['inputResponses'] !== undefined || params['requestState'] !== undefined,
      context: progress.start,
      signal,
    };
    let proof: Admission | null = null;
    const run = (admission: Admission | null): Promise<Message> => {
      proof = admission;
      progress.stop();
      return new Promise((resolve, noResponse) => {
        call.settle = (response) => {
          if (response === null) noResponse(new Error('the MCP server ended'));
          else resolve(response);
        };
        void toServer(message);
      });
    };
    try {
      const endOf = (response: Message) => outcomeIn(response) ?? tasks.begin(response);
      const response = await gate.guard(gated, run, endOf);
      if (!signal.aborted) await toHost(withProofIn(response, proof));
    } catch (error) {
      if (!signal.aborted) await toHost(rejectionOf(id, message, error));
    } finally {
      progress.stop();
      pending.delete(keyOf(id));
    }
  }

  /** Reports a pending approval under the token of the request. */
  function openProgress(id: RequestId, progressToken: unknown) {
    let timer: NodeJS.Timeout | undefined;
    let sent = 0;
    const start = ({ proofId }: PendingApproval): void => {
      const text = `Waiting for an approval: ${howToApprove(proofId)}`;
      log(text);
      if (progressToken === undefined) return;
      const report = (): void => {
        // The values are tiny, because progress must increase when the server later reports its own values.
        const params = { progressToken, progress: ++sent / 1e6, message: text };
        void toHost(makeMessage({ jsonrpc: '2.0', method: 'notifications/progress', params }, id));
      };
      report();
      timer = setInterval(report, PROGRESS_MS);
    };
    return { start, stop: () => clearInterval(timer) };
  }

  async function fromServer(message: Message): Promise<void> {
    if (!isResponse(message)) {
      const method = methodOf(message);
      if (method === 'notifications/tools/list_changed') tools.forget();
      else if (method?.startsWith('notifications/tasks')) tasks.read(paramsOf(message), message);
      return toHost(message);
    }
    const key = keyOf(message.json['id']);
    const found = pending.get(key);
    if (found !== undefined && 'method' in found) {
      pending.delete(key);
      if (found.method === 'tools/list') tools.note(found.params, objectIn(message.json, 'result'));
      else tasks.response(found.method, found.params, message);
      return toHost(message);
    }
    if (found?.settle === undefined) {
      return log('dropped a response of the server: no open request has its id');
    }
    found.settle(message);
    // Waits for the host, so that messages keep their order and a slow host slows the server.
    return found.done;
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
    /** Called when the host has ended: calls that wait for their admission do not run. */
    stopAdmitting: (): void => {
      for (const found of pending.values()) {
        if ('stop' in found && found.settle === undefined) found.stop.abort();
      }
    },
    /** Called when the server has ended: answers every open request with an error. */
    close: async (): Promise<void> => {
      for (const found of pending.values()) {
        if ('method' in found) await reject(found.id, ERROR.internal, 'the MCP server ended');
        else if (found.settle !== undefined) found.settle(null);
        else if (!found.stop.signal.aborted) {
          found.stop.abort();
          await reject(found.id, ERROR.internal, 'the MCP server ended');
        }
        if ('stop' in found) await found.done;
      }
      tasks.close();
    },
  };
}

/** The error for a number that JSON parsers round: the hash could cover another value than the tool reads. */
function inexact(digits: string): Error {
  const shown = digits.length > 40 ? `${digits.slice(0, 40)}…` : digits;
  return new Error(
    `the argument ${shown} is a number that JSON parsers round; send it as a string`,
  );
}

/** 1 and "1" are different ids. */
const keyOf = (id: unknown): string => JSON.stringify(id) ?? '';

function outcomeIn({ json, isStrict }: Message): CallOutcome {
  const outcome = isObject(json['result'])
    ? outcomeOf(json['result'])
    : { result: 'failed' as const };
  if (outcome === null || outcome === 'next_round') return outcome;
  // Two parsers could read an ambiguous result differently, so no hash describes it.
  const isHashed = isStrict && keptNumberIn(json['result'] ?? null) === undefined;
  return isHashed ? outcome : { result: outcome.result };
}

function withProofIn(response: Message, admission: Admission | null): Message {
  const { json, relatedTo } = response;
  if (admission === null || !isObject(json['result'])) return response;
  return makeMessage({ ...json, result: withProof(json['result'], admission) }, relatedTo);
}

/** The message that the model reads. A call that starts a task has no tool result. */
function rejectionOf(id: RequestId, call: Message, error: unknown): Message {
  if (!isNotAdmitted(error)) {
    return errorResponse(id, ERROR.internal, (error as Error).message);
  }
  if (paramsOf(call)['task'] !== undefined) {
    return errorResponse(id, ERROR.notAdmitted, error.message);
  }
  // Revisions since 2026-07-28 require `resultType`.
  const type = versionIn(call) === undefined ? {} : { resultType: 'complete' };
  return makeMessage({ jsonrpc: '2.0', id, result: { ...type, ...failedTool(error) } });
}

/** The tools of a server, as far as its `tools/list` has shown them. */
function openToolList() {
  let known: ReadonlySet<string> | null = null;
  /** Incomplete lists, by the cursor of the next page. */
  const unfinished = new Map<string, Set<string>>();
  return {
    /** Reads a page. */
    note: (request: JsonObject, result: JsonObject): void => {
      const { cursor } = request;
      const { nextCursor, tools } = result;
      const names = typeof cursor === 'string' ? unfinished.get(cursor) : new Set<string>();
      if (names === undefined || !Array.isArray(tools)) return;
      for (const tool of tools) {
        if (isObject(tool) && typeof tool['name'] === 'string') names.add(tool['name']);
      }
      if (typeof nextCursor !== 'string') known = names;
      else if (unfinished.size < UNFINISHED_MAX) unfinished.set(nextCursor, names);
      if (typeof cursor === 'string') unfinished.delete(cursor);
    },
    forget: (): void => {
      known = null;
      unfinished.clear();
    },
    /** False only if the list is complete and lacks the tool. */
    mayHave: (name: string): boolean => known?.has(name) ?? true,
  };
}
