import type { Command } from 'commander';
import { readFile } from 'node:fs/promises';
import { inspect } from 'node:util';
import { INVISIBLE } from '#protocol/text';
import type { StatusConfig } from '#runtime/config';
import type { ConnectOptions } from '#runtime/postgres/connect';
import { OperatorError } from '#runtime/process/operator-error';
import type { Pool, Transaction } from '#sql/db/transaction';

/** The command line is invalid; the message has the correct usage. */
export class UsageError extends Error {}

export interface Admin {
  /** Who runs the command, for the audit records. */
  actor: string;
  /**
   * The database as the command's role, connected on first use, because some commands need no database.
   *
   * @param more connects again with these options
   */
  database: (more?: Pick<ConnectOptions, 'acceptsStandby'>) => Promise<Pool>;
  /** Configuration of the checks that `status` makes outside the database. */
  statusConfig: () => StatusConfig;
  /** Runs `work` in one transaction, which also commits its audit records. */
  act: <T>(work: (tx: Transaction) => Promise<T>) => Promise<T>;
  /** Prints progress; never the result. */
  say: (text: string) => void;
  /** Prints a document whose member `name` is a list of any length, and returns the length. */
  printList: (document: object, name: string, rows: AsyncIterable<object>) => Promise<number>;
}

/** A result with a text of its own for terminals, or with an exit code other than 0. */
export class Outcome {
  constructor(
    /** The result, which `--json` prints; null if the command has printed it with `printList`. */
    readonly document: object | null,
    readonly more: {
      /** Printed on a terminal instead of a table, when the document would not make a readable table. */
      text?: string;
      /** The command completed with a negative result: exit code 1. */
      failed?: boolean;
      /** The database could not be reached: exit code 2. */
      unreachable?: boolean;
    },
  ) {}
}

/**
 * Adds a command to the program, and returns it for its options.
 *
 * @param usage words and arguments of the command, such as `key issue <tenant_id>`
 * @param example arguments that follow the words
 * @param run gets the arguments, then the options; returns the document to print, or an {@link Outcome}
 */
export type AddCommand = (
  usage: string,
  help: string,
  example: string,
  run: (admin: Admin, ...given: never[]) => Promise<object>,
) => Command;

/** The option of irreversible commands whose value {@link requireConfirmed} checks. */
export const confirmOption = (what: string): [flags: string, help: string] => [
  `--confirm <${what}>`,
  `repeats the ${what}, because the change is irreversible`,
];

/** Throws unless `--confirm` repeats the object of an irreversible change. */
export function requireConfirmed(confirm: string | undefined, what: string): void {
  if (confirm === what) return;
  throw new UsageError(`this change is irreversible: confirm it with --confirm ${what}`);
}

export function oneOf<T extends string>(value: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  if (found !== undefined) return found;
  throw new UsageError(`${JSON.stringify(value)} is not one of ${allowed.join(', ')}`);
}

export function wholeNumber(value: string, least: number, most: number): number {
  const number = /^\d{1,15}$/.test(value) ? Number(value) : NaN;
  if (number >= least && number <= most) return number;
  throw new UsageError(`${JSON.stringify(value)} is not a whole number from ${least} to ${most}`);
}

const CENTURY_S = 100 * 366 * 24 * 3600;

export const seconds = (value: string): number => wholeNumber(value, 0, CENTURY_S);

export const secondsOrNone = (value: string): number | null =>
  value === 'none' ? null : seconds(value);

/** Requires a text that audit records can hold: not empty, one line, of bounded length. */
export function words(value: string, what: string, most = 200): string {
  const text = value.trim();
  if (text !== '' && text.length <= most && !/\p{Cc}/u.test(text)) return text;
  throw new UsageError(`${what} must be 1 to ${most} characters on one line`);
}

export const snakeCase = (row: object): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      value,
    ]),
  );

const FILE_ERRORS: Record<string, string> = {
  ENOENT: 'no such file or directory',
  ENOTDIR: 'not a directory',
  EISDIR: 'is a directory, not a file',
  EACCES: 'permission denied for this user',
};

/** Reads an operator's file or folder; the error names the file that cannot be read. */
export async function reading<T>(given: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    const { code = '', path = given } = cause as NodeJS.ErrnoException;
    const reason = FILE_ERRORS[code];
    if (reason === undefined) throw cause;
    throw new OperatorError(`${path} cannot be read: ${reason}`, { cause });
  }
}

export const readOperatorsFile = (path: string): Promise<Buffer> =>
  reading(path, () => readFile(path));

/** Text that others wrote must not move the cursor or change colours of an operator's terminal. */
export const plain = (text: string): string => text.replace(INVISIBLE, '\ufffd');

/** Like `plain`, for a text of several lines. */
export const plainLines = (text: string): string =>
  text.replace(INVISIBLE, (character) => (/[\n\t]/.test(character) ? character : '\ufffd'));

function cell(value: unknown): string {
  if (value === null || value === undefined) return '-';
  if (value instanceof Date) return value.toISOString();
  const text =
    typeof value === 'string'
      ? value
      : Array.isArray(value)
        ? value.map(cell).join(',')
        : typeof value === 'object'
          ? JSON.stringify(value)
          : inspect(value);
  return plain(text);
}

export function table(rows: readonly object[]): string {
  const [first] = rows;
  if (first === undefined) return 'none\n';
  const names = Object.keys(first);
  const lines = [names, ...rows.map((row) => Object.values(row).map(cell))];
  const widths = names.map((_, column) =>
    lines.reduce((width, line) => Math.max(width, line[column]?.length ?? 0), 0),
  );
  return lines
    .map((line) => line.map((text, column) => text.padEnd(widths[column] ?? 0)).join('  '))
    .map((line) => `${line.trimEnd()}\n`)
    .join('');
}

/** Formats a document for a terminal: a list as a table, an object as one line per member. */
export function readable(document: unknown): string {
  if (Array.isArray(document)) return table(document as object[]);
  if (typeof document !== 'object' || document === null) return `${cell(document)}\n`;
  const members = Object.entries(document);
  const width = Math.max(0, ...members.map(([name]) => name.length));
  return members.map(([name, value]) => `${name.padEnd(width)}  ${cell(value)}\n`).join('');
}
