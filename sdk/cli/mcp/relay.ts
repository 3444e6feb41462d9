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
/** Maximum number of open requests: a host with more is broken or hostile. */
const PENDING_MAX = 1_000;
/** After a cancellation, the time in which a result still counts as the outcome. */
const CANCEL_GRACE_MS = 2_000;
/** Interval of progress notifications, which keep a host from giving up while an approval is pending. */
const PROGRESS_MS = 5_000;

/** Maximum number of tool lists whose last page the host has not read. */
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
  /** Ends the call with the response, or with null without one; set once the server has the request. */
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
export class Relay {
  private readonly pending = new Map<string, Pending>();
  private readonly tools = openToolList();
  private readonly tasks = openTasks(outcomeIn);

  readonly host: Receiver = {
    message: (message) => this.fromHost(message),
    garbage: (reason) => this.reject(null, ERROR.parse, reason),
  };
  readonly server: Receiver = {
    message: (message) => this.fromServer(message),
    garbage: (reason) =>
      Promise.resolve(this.options.log(`dropped output of the server: ${reason}`)),
  };

  constructor(private readonly options: RelayOptions) {}

  /** Called when the host has ended: calls that wait for their admission do not run. */
  stopAdmitting(): void {
    for (const found of this.pending.values()) {
      if ('stop' in found && found.settle === undefined) found.stop.abort();
    }
  }

  /** Called when the server has ended: answers every open request with an error. */
  async close(): Promise<void> {
    for (const found of this.pending.values()) {
      if ('method' in found) await this.reject(found.id, ERROR.internal, 'the MCP server ended');
      else if (found.settle !== undefined) found.settle(null);
      else if (!found.stop.signal.aborted) {
        found.stop.abort();
        await this.reject(found.id, ERROR.internal, 'the MCP server ended');
      }
      if ('stop' in found) await found.done;
    }
    this.tasks.close();
  }

  private async fromHost(message: Message): Promise<void> {
    const [id, method] = [idOf(message), methodOf(message)];
    if (!isValid(message)) return this.reject(null, ERROR.invalidRequest, INVALID);
    if (method === undefined || id === null) return this.options.toServer(message);
    if (id === undefined) return this.fromHostNotification(method, message);
    const key = keyOf(id);
    // Rejects without the id, because a response with this id would end the open request.
    if (this.pending.has(key))
      return this.reject(null, ERROR.invalidRequest, `the id ${key} is in use`);
    if (this.pending.size >= PENDING_MAX) {
      return this.reject(id, ERROR.internal, 'too many requests without a response');
    }
    if (method === 'tools/call') return this.callTool(id, message);
    this.pending.set(key, { id, method, params: paramsOf(message) });
    return this.options.toServer(message);
  }

  private async fromHostNotification(method: string, message: Message): Promise<void> {
    // Drops a call without an id: a server could run it, but no answer could be sent.
    if (method === 'tools/call') return this.options.log('dropped a tools/call without an id');
    const found = this.pending.get(keyOf(paramsOf(message)['requestId']));
    if (method === 'notifications/cancelled' && found !== undefined && 'stop' in found) {
      found.stop.abort();
      // Drops the cancellation of a request that the server did not get.
      if (found.settle === undefined) return;
      setTimeout(found.settle, CANCEL_GRACE_MS, null);
    } else if (method === 'notifications/cancelled' && found !== undefined) {
      setTimeout(() => this.forget(found), CANCEL_GRACE_MS).unref();
    }
    return this.options.toServer(message);
  }

  /** Forgets a cancelled request, to which a server need not respond. */
  private forget(request: Pending): void {
    const key = keyOf(request.id);
    if (this.pending.get(key) === request) this.pending.delete(key);
  }

  /** Starts a call, so that other messages do not wait for its admission. */
  private async callTool(id: RequestId, message: Message): Promise<void> {
    const params = paramsOf(message);
    const { name, arguments: args = {} } = params;
    const isClear = message.isStrict && !hasOtherCase(params, ['name', 'arguments']);
    if (!isClear || typeof name !== 'string' || !isObject(args)) {
      const why = isClear
        ? 'tools/call needs a name, and arguments that are an object'
        : 'two JSON parsers could read this call differently';
      return this.reject(id, ERROR.invalidParams, why);
    }
    if (!this.tools.mayHave(name))
      return this.reject(id, ERROR.invalidParams, `Unknown tool: ${name}`);
    const call: ToolCall = { id, stop: new AbortController() };
    this.pending.set(keyOf(id), call);
    call.done = this.guard(call, name, args, message);
  }

  /** Never rejects. */
  private async guard(
    call: ToolCall,
    tool: string,
    args: JsonObject,
    message: Message,
  ): Promise<void> {
    const { id, stop } = call;
    const { signal } = stop;
    const params = paramsOf(message);
    const progress = this.openProgress(id, objectIn(params, '_meta')['progressToken']);
    const { hashed, ...described } = describe(this.options.mapping, tool, args);
    const rounded = keptNumberIn(args);
    const gated: GatedCall = {
      tool,
      get arguments() {
        if (rounded !== undefined) throw inexact(rounded);
        return hashed;
      },
      ...described,
      run: this.options.run,
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
      return this.runCall(call, message);
    };
    try {
      const endOf = (response: Message) => outcomeIn(response) ?? this.tasks.begin(response);
      const response = await this.options.gate.guard(gated, run, endOf);
      if (!signal.aborted) await this.options.toHost(withProofIn(response, proof));
    } catch (error) {
      if (!signal.aborted) await this.options.toHost(rejectionOf(id, message, error));
    } finally {
      progress.stop();
      this.pending.delete(keyOf(id));
    }
  }

  /** Resolves with the response of the server. */
  private runCall(call: ToolCall, message: Message): Promise<Message> {
    return new Promise((resolve, noResponse) => {
      call.settle = (response) => {
        if (response === null) noResponse(new Error('the MCP server ended'));
        else resolve(response);
      };
      void this.options.toServer(message);
    });
  }

  /** Reports a pending approval under the token of the request. */
  private openProgress(id: RequestId, progressToken: unknown) {
    let timer: NodeJS.Timeout | undefined;
    let sent = 0;
    const start = ({ proofId }: PendingApproval): void => {
      const text = `Waiting for an approval: ${this.options.howToApprove(proofId)}`;
      this.options.log(text);
      if (progressToken === undefined) return;
      const report = (): void => {
        // Tiny values: progress must increase with each notification, and the server may later report its own values.
        const params = { progressToken, progress: ++sent / 1e6, message: text };
        void this.options.toHost(
          makeMessage({ jsonrpc: '2.0', method: 'notifications/progress', params }, id),
        );
      };
      report();
      timer = setInterval(report, PROGRESS_MS);
    };
    return { start, stop: () => clearInterval(timer) };
  }

  private async fromServer(message: Message): Promise<void> {
    if (!isResponse(message)) {
      const method = methodOf(message);
      if (method === 'notifications/tools/list_changed') this.tools.forget();
      else if (method?.startsWith('notifications/tasks'))
        this.tasks.read(paramsOf(message), message);
      return this.options.toHost(message);
    }
    const key = keyOf(message.json['id']);
    const found = this.pending.get(key);
    if (found !== undefined && 'method' in found) {
      this.pending.delete(key);
      if (found.method === 'tools/list')
        this.tools.note(found.params, objectIn(message.json, 'result'));
      else this.tasks.response(found.method, found.params, message);
      return this.options.toHost(message);
    }
    if (found?.settle === undefined) {
      return this.options.log('dropped a response of the server: no open request has its id');
    }
    found.settle(message);
    // Waits for the host, so that messages keep their order and a slow host slows the server.
    return found.done;
  }

  private reject(id: RequestId | null, code: number, text: string): Promise<void> {
    return this.options.toHost(errorResponse(id, code, text));
  }
}

/**
 * The error for a number that JSON parsers round: the hash could cover a value other than the one that the tool reads.
 */
function inexact(digits: string): Error {
  const shown = digits.length > 40 ? `${digits.slice(0, 40)}…` : digits;
  return new Error(
    `the argument ${shown} is a number that JSON parsers round; send it as a string`,
  );
}

/** The text of an id, which differs for 1 and "1". */
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

/** The message that the model reads: an error for a call that starts a task, which has no tool result. */
function rejectionOf(id: RequestId, call: Message, error: unknown): Message {
  if (!isNotAdmitted(error)) {
    return errorResponse(id, ERROR.internal, (error as Error).message);
  }
  if (paramsOf(call)['task'] !== undefined) {
    return errorResponse(id, ERROR.notAdmitted, error.message);
  }
  // Sets `resultType`, which revisions since 2026-07-28 require.
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
