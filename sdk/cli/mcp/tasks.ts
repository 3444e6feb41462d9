import type { CallOutcome } from '../../adapters/gate.js';
import type { Outcome } from '../../adapters/options.js';
import { isObject, type JsonObject, makeMessage, type Message, objectIn } from './message.js';

/** Maximum number of unfinished tasks: a server with more is broken or hostile, and further tasks get no outcome. */
const OPEN_MAX = 1_000;

/**
 * Finds the outcomes of calls that started tasks. The result is in the response to `tasks/result` (revision
 * 2025-11-25), or in the task (the extension of 2026-07-28).
 */
export function openTasks(outcomeIn: (message: Message) => CallOutcome) {
  const open = new Map<unknown, (outcome: Outcome) => void>();
  /** Tasks whose result the host has not read. */
  const completed = new Set<unknown>();

  function end(taskId: unknown, outcome: Outcome): void {
    open.get(taskId)?.(outcome);
    open.delete(taskId);
    completed.delete(taskId);
  }

  function endWith(taskId: unknown, message: Message): void {
    const outcome = outcomeIn(message);
    if (outcome !== null && outcome !== 'next_round') end(taskId, outcome);
  }

  /** Reads a task: part of a response, or the parameters of a notification. */
  function read({ taskId, status, result }: JsonObject, { isStrict }: Message): void {
    if (!open.has(taskId)) return;
    if (status === 'failed' || status === 'cancelled') end(taskId, { result: 'failed' });
    else if (status !== 'completed') return;
    else if (isObject(result)) endWith(taskId, { ...makeMessage({ result }), isStrict });
    else completed.add(taskId);
  }

  return {
    /** The outcome of a call whose response may have started a task. */
    begin: (response: Message): Promise<Outcome> | null => {
      const result = objectIn(response.json, 'result');
      const task = isObject(result['task']) ? result['task'] : result;
      const { taskId } = task;
      if (typeof taskId !== 'string' || open.has(taskId) || open.size >= OPEN_MAX) return null;
      return new Promise((resolve) => {
        open.set(taskId, resolve);
        read(task, response);
      });
    },
    read,
    /** Reads the response to any other request. An error response does not show how the task ended. */
    response: (method: string, params: JsonObject, message: Message): void => {
      const { result } = message.json;
      if (!isObject(result)) return;
      if (method === 'tasks/result') endWith(params['taskId'], message);
      else if (method.startsWith('tasks/')) read(result, message);
    },
    /** Called when the host has ended and can read no more results. */
    close: (): void => {
      for (const taskId of completed) end(taskId, { result: 'succeeded' });
    },
  };
}
