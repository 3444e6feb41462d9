import { isObject, type JsonObject } from './message.js';

const UNFINISHED_MAX = 100;

/** The tools of a server, as far as its `tools/list` has shown them. */
export function openToolList() {
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
