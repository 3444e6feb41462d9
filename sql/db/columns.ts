/**
 * Rows are inserted column by column: the statement has a fixed shape, so it is planned once, and a
 * few parameters instead of one for each cell.
 */

/** An array parameter of values that need no quoting: numbers, times, uuids. */
export function arrayOf(values: readonly (number | string | boolean)[]): string {
  return `{${values.join(',')}}`;
}

/**
 * Byte strings, concatenated: the driver escapes an array of them byte by byte. The statement takes
 * each with `substring(bytes from start for length)`.
 */
export interface Bytes {
  bytes: Buffer;
  /** The offset of each, counted from 1, as an array parameter. */
  starts: string;
  /** The length of each, as an array parameter. */
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
 * A caller's time for comparison with database times. PostgreSQL cannot parse the year 0, and nothing
 * here happened before 1970, so earlier times are clamped.
 */
export function comparableTime(epochMs: number): Date {
  return new Date(Math.max(0, epochMs));
}
