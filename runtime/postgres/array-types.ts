import type postgres from 'postgres';

/**
 * How arrays are sent and read. The driver would ask the server for that whenever it connects, by itself:
 * when such a connection is lost with the question under way, the rejection is nobody's, and ends the
 * process. PostgreSQL's own types have the same numbers everywhere, so there is nothing to ask.
 */
type ArrayType = postgres.PostgresType<unknown>;

/** An element that is unlike its text. */
interface Element {
  toText?: (value: unknown) => string;
  fromText?: (text: string) => unknown;
}

/** A value that is no list is sent as it is: whoever has many writes the array's text by himself. */
function arrayType(oid: number, { toText = String, fromText = String }: Element = {}): ArrayType {
  const element = (value: unknown): string => {
    if (value === null) return 'null';
    if (value === undefined) throw new TypeError('an array for the database has no value in it');
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

/** Of one dimension; an element that could be taken for something else is quoted. */
function elementsOf(text: string): (string | null)[] {
  if (!text.startsWith('{') || text.startsWith('{{')) {
    throw new RangeError(
      'the database sent an array of several dimensions, or from elsewhere than 1',
    );
  }
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|[^",{}]+/gs)].map(([whole, quoted]) => {
    if (quoted !== undefined) return quoted.replace(/\\(.)/gs, '$1');
    return whole === 'NULL' ? null : whole;
  });
}

/** @param bigint how one is read, which is for the connection to say */
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
