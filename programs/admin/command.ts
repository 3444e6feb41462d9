import type { StatusConfig } from '#runtime/config';
import type { Pool, Transaction } from '#sql/db/transaction';

/** What was typed is not a command, or lacks something; the message says what to type. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Option {
  /** What stands for its value in the help. */
  value: string;
  help: string;
  required?: true;
}

/** What a command works with. */
export interface Admin {
  /** Who acts, as the audit will say. */
  actor: string;
  /** The database as the command's role, opened when it is first asked for: some commands need none. */
  database(): Promise<Pool>;
  /** Where to look for what no database knows. */
  statusConfig(): StatusConfig;
  /** One act: one transaction that commits together with the records of it. */
  act<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** How far it is, for whoever waits; never the answer. */
  say(text: string): void;
}

export interface Outcome {
  /** What `--json` prints. */
  document: unknown;
  /** What a person reads instead, where the document as a table would not do. */
  text?: string;
  /** The command did its work, and the answer is no: exit code 1. */
  failed?: boolean;
  /** There was nobody to ask: exit code 2. */
  unreachable?: boolean;
}

/** One administrative act or question: its words, what they take, and what it does. */
export interface Command {
  /** The words that name it, such as `key issue`. */
  name: string;
  /** Positional arguments after the name, as shown in the help. */
  takes: string[];
  options?: Record<string, Option>;
  /** Who it connects as; svc_admin unless it says so. */
  role?: 'erase';
  help: string;
  /** What one types after `npm run admin --`. */
  example: string;
  run(admin: Admin, given: ParsedArgs): Promise<Outcome>;
}

export interface ParsedArgs {
  /** A positional argument; all that the command takes are there. */
  argument(index: number): string;
  option(name: string): string | undefined;
}

/** A required option. */
export function required(given: ParsedArgs, name: string): string {
  const value = given.option(name);
  if (value === undefined) throw new UsageError(`--${name} is missing`);
  return value;
}

/** For commands that nothing undoes. */
export const confirmOption = (what: string): Option => ({
  value: what,
  required: true,
  help: `the ${what} once more: nothing undoes this`,
});

/** Refuses to go on unless `--confirm` repeats exactly what is about to change for good. */
export function requireConfirmed(given: ParsedArgs, what: string): void {
  if (required(given, 'confirm') === what) return;
  throw new UsageError(`nothing undoes this: confirm it with --confirm ${what}`);
}

/** One of a closed list. */
export function oneOf<T extends string>(value: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  if (found === undefined) {
    throw new UsageError(`${JSON.stringify(value)} is none of ${allowed.join(', ')}`);
  }
  return found;
}

/** A whole number from `least` to `most`. */
export function wholeNumber(value: string, least: number, most: number): number {
  const number = /^\d{1,15}$/.test(value) ? Number(value) : NaN;
  if (number >= least && number <= most) return number;
  throw new UsageError(`${JSON.stringify(value)} is not a whole number from ${least} to ${most}`);
}

const CENTURY_S = 100 * 366 * 24 * 3600;

/** Whole seconds. */
export function seconds(value: string): number {
  return wholeNumber(value, 0, CENTURY_S);
}

/** Whole seconds, or `none`. */
export function secondsOrNone(value: string): number | null {
  return value === 'none' ? null : seconds(value);
}

const CONTROL = /\p{Cc}/u;

/** Words that are recorded as they are: not empty, one line, of reasonable length. */
export function words(value: string, what: string, most = 200): string {
  const text = value.trim();
  if (text !== '' && text.length <= most && !CONTROL.test(text)) return text;
  throw new UsageError(`${what} is 1 to ${most} characters on one line`);
}
