import type { AgentEnvelope, ExecuteRequest } from '#protocol/schemas/admission';
import { SCHEMA } from '#protocol/schemas/ids';
import type { Caller } from '../http/authenticate.js';
import { at, Problem } from '../http/problem.js';

/** Throws a 403 when the key is restricted to an environment that is not its tenant's. */
export function requireKeyEnvironment({ restriction, environment }: Caller): void {
  const allowed = restriction?.environment;
  if (allowed === undefined || allowed === environment) return;
  throw new Problem(
    'key_restricted',
    `This API key admits only in the ${allowed} environment, and its tenant is in ${environment}. This request admitted nothing. Use another key.`,
  );
}

/**
 * Throws a 403 when the restriction of the key excludes this request.
 *
 * @param place pointer that the problem names when the sent body is not the request itself
 */
export function requireKeyAllows(
  { restriction }: Pick<Caller, 'restriction'>,
  body: ExecuteRequest | AgentEnvelope,
  place?: string,
): void {
  if (restriction === null) return;
  const { agent_id: agentId, actions, tools } = restriction;
  const isExecute = !('kind' in body);
  if (isExecute && (agentId !== undefined || tools !== undefined)) {
    throw restricted(place ?? '/schema_version', 'agent envelopes,', SCHEMA.agentEnvelope);
  }
  if (!isExecute && agentId !== undefined && body.agent.id !== agentId) {
    throw restricted(place ?? '/agent/id', 'the agent', agentId);
  }
  // An outcome and a close have no action and no tool.
  if (!('action' in body)) return;
  if (actions?.some((pattern) => matchesPattern(pattern, body.action)) === false) {
    throw restricted(place ?? '/action', 'the actions', ...actions);
  }
  const tool = 'tool' in body ? body.tool : undefined;
  if (tools?.some((pattern) => tool !== undefined && matchesPattern(pattern, tool)) === false) {
    throw restricted(place ?? '/tool', 'the tools', ...tools);
  }
}

/** Limit in characters: a batch may store this message for each of 10,000 items. */
const LONGEST_LIST = 200;

function restricted(pointer: string, what: string, ...allowed: string[]): Problem {
  const whole = allowed.join(', ');
  const cut = Array.from(whole.slice(0, 2 * LONGEST_LIST))
    .slice(0, LONGEST_LIST)
    .join('');
  const list = cut === whole ? whole : `${cut} …`;
  return new Problem(
    'key_restricted',
    `This API key admits only ${what} ${list}. This request admitted nothing. Use another key.`,
    at(pointer, `must match one of: ${list}`),
  );
}

/**
 * Whether `name` matches `pattern`, in which `*` matches any characters. The first match of each part
 * is enough, and takes linear time; a regular expression could take exponential time.
 */
export function matchesPattern(pattern: string, name: string): boolean {
  const [first = '', ...parts] = pattern.split('*');
  const last = parts.pop();
  if (last === undefined) return name === first;
  if (!name.startsWith(first)) return false;
  let end = first.length;
  for (const part of parts) {
    const found = name.indexOf(part, end);
    if (found === -1) return false;
    end = found + part.length;
  }
  return name.length - last.length >= end && name.endsWith(last);
}
