import type { Gate } from '../../adapters/gate.js';
import { outcomeOf, withProof } from '../../adapters/mcp.js';
import type { Admission, Outcome, PendingApproval } from '../../adapters/options.js';
import { canonicalHash } from '../../index.js';
import { describe, type Mapping } from './mapping.js';
import {
  isObject,
  type JsonObject,
  makeMessage,
  type Message,
  objectIn,
  paramsOf,
} from './message.js';
import { openToolList } from './tool-list.js';

/** How long the host may take to answer a server's questions; afterwards the call has failed. */
const ROUND_MS = 15 * 60_000;
const ROUNDS_MAX = 1_000;

/** A call that the proxy may send to the server. */
export interface OpenCall {
  /** Null for a call that is not admitted, which only the mode `observe` sends. */
  admission: Promise<Admission | null>;
  proofId?: string;
  /** Identifies tool and arguments. */
  fingerprint: string;
}

export type Calls = ReturnType<typeof openCalls>;

/** Admits the calls of all connections to one server, and records their outcomes. */
export function openCalls({
  gate,
  mapping,
  observe,
}: {
  gate: Gate;
  mapping: Mapping;
  observe: boolean;
}) {
  const tools = openToolList();
  /** Calls whose server waits for the next request of the host, by what that request must contain. */
  const rounds = new Map<string, { call: OpenCall; since: number }>();
  const records = new Set<Promise<void>>();

  return {
    tools,

    /**
     * Resolves when the request may be sent to the server. A further request of a call that the server
     * answered with `input_required` belongs to the admission of the first one. Throws
     * `NotAdmittedError`.
     */
    begin: async (
      message: Message,
      given: { signal: AbortSignal; onPending: (pending: PendingApproval) => void },
    ): Promise<OpenCall> => {
      const params = paramsOf(message);
      const tool = params['name'] as string;
      const args = objectIn(params, 'arguments');
      const fingerprint = canonicalHash({ tool, args });
      const earlier = takeRound(fingerprint, params);
      if (earlier !== undefined) return earlier;
      const { hashed, ...described } = describe(mapping, tool, args);
      const { signal, onPending: context } = given;
      const begun = gate.begin({ tool, arguments: hashed, ...described, signal, context });
      if (observe) return { admission: begun.catch(() => null), fingerprint };
      const { proofId } = await begun;
      return { admission: begun, proofId, fingerprint };
    },

    /** Records the outcome that the response shows; null if none will come. Returns what the host gets. */
    end: (call: OpenCall, response: Message | null): Message | null => {
      const result = response?.json['result'];
      if (response === null || !isObject(result)) {
        record(call, { result: 'failed' });
        return response;
      }
      if (result['resultType'] === 'input_required') {
        keepRound(call, result);
        return response;
      }
      const outcome = outcomeOf(result);
      if (outcome !== null) {
        // Two parsers could read an ambiguous result differently, so no hash describes it.
        record(call, response.isStrict ? outcome : { result: outcome.result });
      }
      const { proofId } = call;
      if (proofId === undefined) return response;
      const proven = withProof(result, { proofId });
      return makeMessage({ ...response.json, result: proven }, response.relatedTo);
    },

    /** Ends the calls that wait for the host. Resolves when every outcome is recorded or reported lost. */
    close: async (): Promise<void> => {
      for (const { call } of rounds.values()) record(call, { result: 'failed' });
      rounds.clear();
      await Promise.all(records);
    },
  };

  function record({ admission }: OpenCall, outcome: Outcome): void {
    const recorded = admission.then((one) => (one === null ? undefined : gate.end(one, outcome)));
    records.add(recorded);
    void recorded.finally(() => records.delete(recorded));
  }

  function keepRound(call: OpenCall, result: JsonObject): void {
    const now = performance.now();
    for (const [key, { call: old, since }] of rounds) {
      if (rounds.size < ROUNDS_MAX && now - since < ROUND_MS) break;
      rounds.delete(key);
      record(old, { result: 'failed' });
    }
    const key = roundKey(call.fingerprint, result);
    const same = rounds.get(key);
    if (same !== undefined) record(same.call, { result: 'failed' });
    rounds.delete(key);
    rounds.set(key, { call, since: now });
  }

  /** Each round continues once: a repeated request is another call. */
  function takeRound(fingerprint: string, params: JsonObject): OpenCall | undefined {
    if (params['requestState'] === undefined && params['inputResponses'] === undefined) return;
    const key = roundKey(fingerprint, params);
    const found = rounds.get(key);
    rounds.delete(key);
    return found !== undefined && performance.now() - found.since < ROUND_MS
      ? found.call
      : undefined;
  }
}

const roundKey = (fingerprint: string, { requestState }: JsonObject): string =>
  JSON.stringify([fingerprint, requestState ?? null]);
