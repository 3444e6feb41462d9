/**
 * Rows on their way into the database, column by column: one statement of fixed shape however many
 * rows there are, so that it is parsed and planned once, and a handful of parameters where a list of
 * values has one for each cell.
 */

/** An array parameter of values that need no quoting: numbers, times, uuids. */
export function arrayOf(values: readonly (number | string | boolean)[]): string {
  return `{${values.join(',')}}`;
}

/**
 * Byte strings one after the other. An array of them would be quoted and unquoted character by
 * character; of these the statement takes `substring(bytes from start for length)`.
 */
export interface Bytes {
  bytes: Buffer;
  /** Where each begins, counted from 1, as an array parameter. */
  starts: string;
  /** How long each is, as an array parameter. */
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
