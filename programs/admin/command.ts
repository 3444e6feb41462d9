import type { StatusConfig } from '#runtime/config';
import type { Pool, Transaction } from '#sql/db/transaction';

/** The command line is invalid; the message has the correct usage. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Option {
  /** Placeholder of the value in the help. */
  value: string;
  help: string;
  required?: true;
}

/** The resources of a running command. */
export interface Admin {
  /** Recorded in the audit. */
  actor: string;
  /** The database as the command's role, connected on first use: some commands need none. */
  database(): Promise<Pool>;
  /** Configuration of the checks outside the database. */
  statusConfig(): StatusConfig;
  /** Runs `work` in one transaction, which also commits its audit records. */
  act<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Prints progress; never the result. */
  say(text: string): void;
}

export interface Outcome {
  /** Printed for `--json`. */
  document: unknown;
  /** Text for a terminal, where a table of the document would not be readable. */
  text?: string;
  /** The command completed with a negative result: exit code 1. */
  failed?: boolean;
  /** No connection was possible: exit code 2. */
  unreachable?: boolean;
}

/** An administrative command: its name, arguments and implementation. */
export interface Command {
  /** The command's words, such as `key issue`. */
  name: string;
  /** Positional arguments after the name, as shown in the help. */
  takes: string[];
  options?: Record<string, Option>;
  /** Database role; svc_admin by default. */
  role?: 'erase';
  help: string;
  /** Example arguments after `npm run admin --`. */
  example: string;
  run(admin: Admin, given: ParsedArgs): Promise<Outcome>;
}

export interface ParsedArgs {
  /** A positional argument; its presence was validated. */
  argument(index: number): string;
  option(name: string): string | undefined;
}

/** A required option. */
export function required(given: ParsedArgs, name: string): string {
  const value = given.option(name);
  if (value === undefined) throw new UsageError(`--${name} is missing`);
  return value;
}

/** For irreversible commands. */
export const confirmOption = (what: string): Option => ({
  value: what,
  required: true,
  help: `the ${what} again, because this is irreversible`,
});

/** Throws unless `--confirm` repeats the object of an irreversible change. */
export function requireConfirmed(given: ParsedArgs, what: string): void {
  if (required(given, 'confirm') === what) return;
  throw new UsageError(`this is irreversible: confirm it with --confirm ${what}`);
}

/** A value of a closed list. */
export function oneOf<T extends string>(value: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  if (found === undefined) {
    throw new UsageError(`${JSON.stringify(value)} is not one of ${allowed.join(', ')}`);
  }
  return found;
}

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

/** A recorded text: not empty, one line, of bounded length. */
export function words(value: string, what: string, most = 200): string {
  const text = value.trim();
  if (text !== '' && text.length <= most && !CONTROL.test(text)) return text;
  throw new UsageError(`${what} must be 1 to ${most} characters on one line`);
}
