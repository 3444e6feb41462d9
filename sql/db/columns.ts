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

/** `proof_id` as Postgres' uuid text. */
export function toUuid(proofId: string): string {
  return `${proofId.slice(0, 8)}-${proofId.slice(8, 12)}-${proofId.slice(12, 16)}-${proofId.slice(16, 20)}-${proofId.slice(20)}`;
}

/** Postgres' uuid text as `proof_id`: 32 lower-case hex characters. */
export function fromUuid(uuid: string): string {
  return uuid.replaceAll('-', '');
}

const PACKAGE = 'pkg_';

/** `package_id` as Postgres' uuid text. */
export function packageUuid(packageId: string): string {
  return toUuid(packageId.slice(PACKAGE.length));
}

/** Postgres' uuid text as `package_id`. */
export function packageIdOf(uuid: string): string {
  return PACKAGE + fromUuid(uuid);
}

const BATCH = 'batch_';

/** `batch_id` as Postgres' uuid text. */
export function batchUuid(batchId: string): string {
  return toUuid(batchId.slice(BATCH.length));
}

/** Postgres' uuid text as `batch_id`. */
export function batchIdOf(uuid: string): string {
  return BATCH + fromUuid(uuid);
}

/**
 * A time that somebody else chose, to be compared with those of the database, which cannot read one
 * of the year 0. Nothing here happened before 1970, so everything earlier compares alike.
 */
export function comparableTime(epochMs: number): Date {
  return new Date(Math.max(0, epochMs));
}
