import type { Pool } from '#sql/db';

/** What was typed is not a command, or lacks something; the message says what to type. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** One administrative act: its words, what they take, and what it does. */
export interface Command {
  /** The words that name it, such as `key issue`. */
  name: string;
  /** Positional arguments after the name, as shown in the help. */
  takes: string[];
  /** Options with a value, by name; true when it must be given. */
  options?: Record<string, { required: boolean; help: string }>;
  help: string;
  /** Returns what to print. */
  run(sql: Pool, given: Given): Promise<Record<string, unknown>>;
}

export interface Given {
  arguments: string[];
  option(name: string): string | undefined;
}

/** A required positional argument. */
export function argument(given: Given, index: number): string {
  const value = given.arguments[index];
  if (value === undefined) throw new UsageError('an argument is missing');
  return value;
}

/** A required option. */
export function required(given: Given, name: string): string {
  const value = given.option(name);
  if (value === undefined) throw new UsageError(`--${name} is missing`);
  return value;
}

/** One of a closed list. */
export function oneOf<T extends string>(value: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  if (found === undefined) throw new UsageError(`${value} is none of ${allowed.join(', ')}`);
  return found;
}

/** Whole seconds, or `none`. */
export function secondsOrNone(value: string): number | null {
  if (value === 'none') return null;
  if (!/^\d{1,12}$/.test(value)) throw new UsageError(`${value} is neither seconds nor none`);
  return Number(value);
}
