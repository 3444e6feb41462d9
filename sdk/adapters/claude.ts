import { type HookInput, type HookOutput, openHook } from './claude-hook.js';
import { type Gate, openGate } from './gate.js';
import type { AdapterOptions } from './options.js';
import { openRounds } from './rounds.js';

export type { HookInput, HookOutput };

/** Hooks of one event, as `query` of the Claude Agent SDK takes them. */
export interface HookMatcher {
  /** Callbacks of the event. */
  hooks: ((
    input: HookInput,
    toolUseId: string | undefined,
    options: { signal: AbortSignal },
  ) => Promise<HookOutput>)[];
  /** Seconds. */
  timeout: number;
  onFailure?: 'block';
}

/** Timeout longer than any decision takes: at the timeout the host runs or blocks the tool, and gives no reason. */
const HOOK_TIMEOUT_S = 600;

/**
 * Hooks for `query({ prompt, options: { hooks: admitHooks(options) } })` of
 * `@anthropic-ai/claude-agent-sdk`: every tool call, built-in tools and subagents included, is admitted
 * before it runs, and its outcome recorded. When a call is not admitted, the model gets the reason.
 * An admission permits nothing that the permission rules of the host deny.
 */
export function admitHooks(
  options: AdapterOptions | Gate,
): Record<'PreToolUse' | 'PostToolUse' | 'PostToolUseFailure' | 'PermissionDenied', HookMatcher[]> {
  const gate = openGate(options, 'claude-agent-sdk');
  const hook = openHook(gate, openRounds(Infinity));
  const matcher: HookMatcher = {
    hooks: [(input, _id, { signal }) => hook(input, signal)],
    timeout: HOOK_TIMEOUT_S,
  };
  const guard = gate.mode === 'observe' ? matcher : { ...matcher, onFailure: 'block' as const };
  return {
    PreToolUse: [guard],
    PostToolUse: [matcher],
    PostToolUseFailure: [matcher],
    PermissionDenied: [matcher],
  };
}
