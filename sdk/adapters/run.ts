import type { AgentEnvelope, AgentReceipt } from '../../protocol/schemas/admission.js';
import { admitHttp, agentEnvelope, type Admitted } from '../engine/admission.js';
import { newUuid } from '../engine/engine.js';
import { SdkError, type SdkErrorCode } from '../errors.js';
import { type EngineOptions, invalidInput } from '../options.js';

/** A run of an agent, whose requests this process numbers. */
export interface AgentRun {
  readonly id: string;
  /**
   * Waits for the open requests, repeats the requests without a known decision, and closes the run: its
   * package then proves that the run has these requests and no others. After an error, call `close`
   * again; after the problem `run_incomplete`, first send another request, which gets the missing number.
   */
  close(): Promise<Admitted<AgentReceipt>>;
  /**
   * Sends a request with the next number. The next request reuses the number of a rejected request.
   *
   * @param isObserved whether the tool runs even without an admission
   */
  send<T>(
    envelope: AgentEnvelope,
    send: (numbered: AgentEnvelope) => Promise<T>,
    isObserved?: boolean,
  ): Promise<T>;
  /** Throws `invalid_input` unless the run belongs to this tenant and agent. */
  requireOwner(tenantId: string, agentId: string): void;
}

/** After an error with one of these codes, the number of the request is still free. */
const REJECTED: ReadonlySet<SdkErrorCode> = new Set<SdkErrorCode>([
  'invalid_input',
  'unauthenticated',
  'forbidden',
  'not_found',
  'invalid_request',
  'lane_locked',
]);

/**
 * Opens a run, whose requests get numbers from 0 on without a gap. All adapters of the agent may share
 * it, as `run` in the result of `describe`.
 *
 * @param place the id and the next number of a run that another process began
 */
export function openRun(
  { engine, agent }: { engine: EngineOptions; agent: { id: string } },
  place: { id: string; seq: number } = { id: newUuid(), seq: 0 },
): AgentRun {
  const { id } = place;
  let next = place.seq;
  let isClosing = false;
  /** The last `close` envelope, while its decision is not known. */
  let ending: AgentEnvelope | undefined;
  const free: number[] = [];
  const open = new Set<Promise<unknown>>();
  /** Requests without a known decision, and whether the tool runs regardless. */
  const undecided = new Map<AgentEnvelope, boolean>();

  function requireNotClosing(): void {
    if (isClosing) throw new SdkError('invalid_input', 'the run is closed');
  }

  function release(seq: number): void {
    free.push(seq);
    free.sort((a, b) => a - b);
  }

  async function number<T>(
    envelope: AgentEnvelope,
    send: (numbered: AgentEnvelope) => Promise<T>,
    isObserved: boolean,
  ): Promise<T> {
    requireNotClosing();
    const seq = free.shift() ?? next++;
    const numbered = { ...envelope, run: { id, seq } };
    try {
      return await send(numbered);
    } catch (error) {
      if (hasNumber(error)) throw error;
      const { code, proofId } = error as Partial<SdkError>;
      if (code !== undefined && REJECTED.has(code) && proofId === undefined) release(seq);
      else undecided.set(numbered, isObserved);
      throw error;
    }
  }

  async function close(): Promise<Admitted<AgentReceipt>> {
    // The loop also sends the outcomes that it adds to the map.
    for (const [envelope, isObserved] of undecided) {
      const receipt = await admitHttp(engine, envelope).catch((error: unknown) => {
        if (hasNumber(error)) return null;
        if (!isFinal(error) && !isRestricted(error)) throw error;
        release(envelope.run!.seq);
        return null;
      });
      undecided.delete(envelope);
      if (receipt === null || envelope.kind !== 'admission' || isObserved) continue;
      // Records a failure: the caller of the request got an error, so the tool did not run.
      const { agent } = envelope;
      const parent_proof_id = receipt.registry_proof_id;
      const outcome = { kind: 'outcome', agent, parent_proof_id, result: 'failed' } as const;
      const run = { id, seq: free.shift() ?? next++ };
      undecided.set(agentEnvelope(engine.tenantId, { ...outcome, run }), false);
    }
    while (free.at(-1) === next - 1) next = free.pop()!;
    // Sends the same envelope again, because the engine may have closed the run although its response was lost.
    if (ending?.run?.seq !== next) {
      const input = { kind: 'close', agent: { id: agent.id }, run: { id, seq: next } } as const;
      ending = agentEnvelope(engine.tenantId, input);
    }
    return admitHttp(engine, ending).catch((error: unknown) => {
      if (isFinal(error)) ending = undefined;
      throw error;
    });
  }

  return {
    id,
    send: async (envelope, send, isObserved = false) => {
      const sent = number(envelope, send, isObserved);
      open.add(sent);
      return sent.finally(() => open.delete(sent));
    },
    requireOwner: (tenantId, agentId) => {
      if (tenantId === engine.tenantId && agentId === agent.id) return;
      const message = `/run: run ${id} belongs to agent ${agent.id} of ${engine.tenantId}`;
      throw invalidInput('/run', message);
    },
    close: async () => {
      requireNotClosing();
      isClosing = true;
      try {
        await Promise.allSettled(open);
        return await close();
      } catch (error) {
        isClosing = false;
        throw error;
      }
    },
  };
}

/** Whether to give the envelope up instead of waiting for a later acceptance. */
function isFinal(error: unknown): boolean {
  const { code, problem } = error as Partial<SdkError>;
  return code === 'invalid_request' || FINAL_PROBLEMS.has(problem?.code);
}

const FINAL_PROBLEMS: ReadonlySet<unknown> = new Set(['admission_failed', 'run_incomplete']);

const isRestricted = (error: unknown): boolean =>
  (error as Partial<SdkError>).problem?.code === 'key_restricted';

/** Whether the number is in use: by a denial or a required approval, or by another request. */
function hasNumber(error: unknown): boolean {
  const { approval, denial, problem } = error as Partial<SdkError>;
  return approval !== undefined || denial !== undefined || problem?.code === 'run_seq_taken';
}
