/** Rows are inserted column by column: the statement keeps one shape, so it is planned once. */

/** An array parameter of values that need no quoting: numbers, times, uuids. */
export function arrayOf(values: readonly (number | string | boolean)[]): string {
  return `{${values.join(',')}}`;
}

/**
 * Byte strings, concatenated: the driver escapes an array of them byte by byte. The statement takes
 * each with `substring(bytes from start for length)`; `starts` and `lengths` are array parameters.
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

/** Postgres' text of a uuid; a connection reads and accepts uuids as 32 lower-case hex digits. */
export function toUuid(id: string): string {
  return id.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

export function fromUuid(uuid: string): string {
  return uuid.replaceAll('-', '');
}

/** The hex digits of a `package_id` or `batch_id`. */
export const hexOf = (prefixedId: string): string => prefixedId.slice(prefixedId.indexOf('_') + 1);
export const packageIdOf = (uuid: string): string => `pkg_${fromUuid(uuid)}`;
export const batchIdOf = (uuid: string): string => `batch_${fromUuid(uuid)}`;

/** A row as the driver returns it: the members of `K` are times. */
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
 * A caller's time for comparison with database times. PostgreSQL cannot parse the year 0, and nothing
 * here happened before 1970, so earlier times are clamped.
 */
export function comparableTime(epochMs: number): Date {
  return new Date(Math.max(0, epochMs));
}
