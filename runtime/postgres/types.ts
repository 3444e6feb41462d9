import pg from 'pg';
import type postgres from 'postgres';

type Type = postgres.PostgresType<unknown>;

/** Decodes a bigint as a number; throws when it is not a safe integer, never rounds. */
function safeInteger(text: unknown): number {
  const value = Number(text);
  if (Number.isSafeInteger(value)) return value;
  throw new RangeError(`the database holds ${String(text)}, which exceeds the safe integer range`);
}

const TEXT_ARRAY = 1009;
const parseArray = pg.types.getTypeParser(TEXT_ARRAY as never) as (
  text: string,
) => (string | null)[];

/** Sends a value that is not a list unchanged: bulk callers pass the text of a PostgreSQL array. */
function arrayOf(
  oid: number,
  fromText: (text: string) => unknown = String,
  toText: (value: unknown) => string = String,
): Type {
  const element = (value: unknown): string => {
    if (value === null) return 'null';
    if (value === undefined) throw new TypeError('an array parameter contains undefined');
    return `"${toText(value).replace(/\\/g, '\\\\').replace(/"/g, '\\"')}"`;
  };
  return {
    to: oid,
    from: [oid],
    serialize: (value: unknown) =>
      Array.isArray(value) ? `{${value.map(element).join(',')}}` : value,
    parse: (text: string) => parseArray(text).map((one) => (one === null ? null : fromText(one))),
  };
}

const bigint = { to: 20, from: [20], serialize: String, parse: safeInteger };

/** Decodes a uuid as 32 hex digits, the form of every id in the API. */
const undashed = (text: string): string => text.replaceAll('-', '');

const others: Record<string, Type> = {
  uuid: { to: 2950, from: [2950], serialize: String, parse: undashed },
  booleans: arrayOf(
    1000,
    (text) => text === 't',
    (value) => (value === true ? 't' : 'f'),
  ),
  byteStrings: arrayOf(
    1001,
    (text) => Buffer.from(text.slice(2), 'hex'),
    (value) => `\\x${Buffer.from(value as Uint8Array).toString('hex')}`,
  ),
  names: arrayOf(1003),
  smallints: arrayOf(1005, Number),
  integers: arrayOf(1007, Number),
  texts: arrayOf(TEXT_ARRAY),
  bigints: arrayOf(1016, safeInteger),
  uuids: arrayOf(2951, undashed),
};

/**
 * Declared here, because postgres.js would otherwise query the server for array types at each
 * connect, in a promise whose rejection no caller handles.
 */
export const types: { bigint: typeof bigint } = { ...others, bigint };
