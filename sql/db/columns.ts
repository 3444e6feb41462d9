import { v7 as uuidv7 } from 'uuid';
import { newProofId } from '#protocol/ids';

/** Inserts pass one array per column, so that the statement is the same for any number of rows and is planned once. */

/** An array parameter of values that need no quoting: numbers, times, uuids. */
export function arrayOf(values: readonly (number | string | boolean)[]): string {
  return `{${values.join(',')}}`;
}

/**
 * Concatenated byte strings, because the driver escapes an array of byte strings byte by byte. A
 * statement extracts each with `substring(bytes from start for length)`; `starts` and `lengths` are
 * array parameters.
 */
export interface Bytes {
  bytes: Buffer;
  starts: string;
  lengths: string;
}

export function bytesOf(values: readonly Uint8Array[]): Bytes {
  let start = 1;
  const starts = values.map(({ length }) => (start += length) - length);
  return {
    bytes: Buffer.concat(values),
    starts: arrayOf(starts),
    lengths: arrayOf(values.map(({ length }) => length)),
  };
}

export const firstRow = async <R>(rows: PromiseLike<readonly R[]>): Promise<R | null> =>
  (await rows)[0] ?? null;

/** The first column of the first row of a query. @throws TypeError without rows */
export const valueOf = async <T>(rows: PromiseLike<readonly object[]>): Promise<T> =>
  Object.values((await rows)[0]!)[0] as T;

/** The first column of each row of a query. */
export const valuesOf = async <T>(rows: PromiseLike<readonly object[]>): Promise<T[]> =>
  (await rows).map((row) => Object.values(row)[0] as T);

/** The bytes of a bytea column in JSON, which PostgreSQL prints as `\x` and hex digits. */
export const bytesInJson = (text: string): Buffer => Buffer.from(text.slice(2), 'hex');

/** A connection reads and accepts uuids as 32 lower-case hex digits; PostgreSQL's text has hyphens. */
export function fromUuid(uuid: string): string {
  return uuid.replaceAll('-', '');
}

/** A new registry id in hex: a UUIDv7 that contains the log's shard number, always 0. */
export function newUuidHex(): string {
  return newProofId(uuidv7());
}

/** The hex digits of a `package_id` or `batch_id`. */
export const hexOf = (prefixedId: string): string => prefixedId.slice(prefixedId.indexOf('_') + 1);
export const packageIdOf = (uuid: string): string => `pkg_${fromUuid(uuid)}`;
export const batchIdOf = (uuid: string): string => `batch_${fromUuid(uuid)}`;

/** A row as the driver returns it: with a Date for each member of `K`. */
export type WithDates<R, K extends keyof R> = Omit<R, K> & {
  [P in K]: Date | Extract<R[P], null>;
};

type InMs<R> = { [K in keyof R]: Date extends R[K] ? number | Exclude<R[K], Date> : R[K] };

/** The row with its times in epoch milliseconds. */
export function inMs<R extends object>(row: R): InMs<R> {
  const entries = Object.entries(row).map(([column, value]: [string, unknown]) => [
    column,
    value instanceof Date ? value.getTime() : value,
  ]);
  return Object.fromEntries(entries) as InMs<R>;
}

/**
 * A caller's time for comparison with database times. Times before 1970 are clamped, because
 * PostgreSQL cannot parse the year 0 and no stored time is earlier.
 */
export function comparableTime(epochMs: number): Date {
  return new Date(Math.max(0, epochMs));
}

/** Splits a text of joined ids, each of 32 hex digits. */
export const unpackIds = (ids: string): string[] => ids.match(/.{32}/gs) ?? [];

/** Splits a list into parts of up to `most` values. */
export const slices = <T>(all: readonly T[], most: number): T[][] =>
  Array.from({ length: Math.ceil(all.length / most) }, (_, i) =>
    all.slice(i * most, (i + 1) * most),
  );
