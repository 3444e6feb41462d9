import type postgres from 'postgres';

/**
 * Array encoding and decoding. postgres.js would query the server for it on every connect; if that
 * connection is lost meanwhile, no caller handles the rejection and the process ends. OIDs of
 * built-in types are the same on every server, so no query is needed.
 */
type ArrayType = postgres.PostgresType<unknown>;

/** An element whose value differs from its text. */
interface Element {
  toText?: (value: unknown) => string;
  fromText?: (text: string) => unknown;
}

/** Sends a value that is not a list unchanged: bulk callers pass the array literal. */
function arrayType(oid: number, { toText = String, fromText = String }: Element = {}): ArrayType {
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
    parse: (text: string) => elementsOf(text).map((one) => (one === null ? null : fromText(one))),
  };
}

/** Reads one dimension; elements that could be ambiguous are quoted. */
function elementsOf(text: string): (string | null)[] {
  if (!text.startsWith('{') || text.startsWith('{{')) {
    throw new RangeError(
      'the database sent a multidimensional array, or one whose index does not start at 1',
    );
  }
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|[^",{}]+/gs)].map(([whole, quoted]) => {
    if (quoted !== undefined) return quoted.replace(/\\(.)/gs, '$1');
    return whole === 'NULL' ? null : whole;
  });
}

/** @param bigint decodes a bigint; the connection decides how */
export function arrayTypes(bigint: (text: string) => number): Record<string, ArrayType> {
  const number = { fromText: Number };
  return {
    booleans: arrayType(1000, {
      toText: (value) => (value === true ? 't' : 'f'),
      fromText: (text) => text === 't',
    }),
    byteStrings: arrayType(1001, {
      toText: (value) => `\\x${Buffer.from(value as Uint8Array).toString('hex')}`,
      fromText: (text) => Buffer.from(text.slice(2), 'hex'),
    }),
    names: arrayType(1003),
    smallints: arrayType(1005, number),
    integers: arrayType(1007, number),
    texts: arrayType(1009),
    bigints: arrayType(1016, { fromText: bigint }),
    uuids: arrayType(2951),
  };
}
