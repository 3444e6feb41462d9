import { type Gate, success } from './gate.js';
import type { AdmissionStore } from './rounds.js';
import { callIdOf } from './tool.js';

/** The members of a Claude Code hook's input that this package reads. */
export interface HookInput {
  hook_event_name: string;
  tool_name?: string;
  tool_input?: unknown;
  tool_use_id?: string;
  tool_response?: unknown;
}

/** The output of a hook. `{}` contains no decision, so the host's own permission rules apply. */
export interface HookOutput {
  hookSpecificOutput?: {
    hookEventName: 'PreToolUse';
    permissionDecision: 'deny';
    permissionDecisionReason: string;
  };
}

/** The hook events before and after a tool call. */
export const HOOK_EVENTS = [
  'PreToolUse',
  'PostToolUse',
  'PostToolUseFailure',
  'PermissionDenied',
] as const;

/**
 * Answers the hooks before and after a tool. Never rejects.
 *
 * @param begun stores admissions between the hook before a tool and the hook after it
 */
export function openHook(
  gate: Gate,
  begun: AdmissionStore,
): (input: HookInput, signal?: AbortSignal) => Promise<HookOutput> {
  const opening = new Map<string, Promise<unknown>>();

  async function begin(input: HookInput, signal?: AbortSignal): Promise<void> {
    const { tool_name: tool = '', tool_input, tool_use_id: id } = input;
    const about = { toolCallId: callIdOf(id), context: input, signal };
    const call = { tool, arguments: tool_input, ...about };
    const admission = await gate.begin(call);
    try {
      // Keeps no admission without an id: calls with equal ids would take each other's admissions.
      if (id !== undefined && id !== '') await begun.keep(id, admission);
    } catch (error) {
      await gate.end(admission, { result: 'failed' });
      throw error;
    }
  }

  return async (input, signal) => {
    const { hook_event_name: event, tool_response: value, tool_use_id: id = '' } = input;
    if (event === 'PreToolUse') {
      const beginning = begin(input, gate.mode === 'observe' ? undefined : signal);
      if (gate.mode !== 'observe') return beginning.then(() => ({}), deny);
      const settled = beginning.catch(() => undefined).finally(() => opening.delete(id));
      opening.set(id, settled);
    } else if (HOOK_EVENTS.some((one) => one === event)) {
      await opening.get(id);
      const admission = await begun.take(id);
      const outcome = event === 'PostToolUse' ? success(value) : ({ result: 'failed' } as const);
      if (admission !== undefined) await gate.end(admission, outcome);
    }
    return {};
  };
}

export const deny = (error: Error): HookOutput => ({
  hookSpecificOutput: {
    hookEventName: 'PreToolUse',
    permissionDecision: 'deny',
    permissionDecisionReason: error.message,
  },
});
