import fc from 'fast-check';
import type { JsonObject, OpenApiParameter } from '#api/openapi/types';
import type { Call } from './send.js';
import { hostileText, mutated, schemaArbitrary, type Known } from './schema-arbitrary.js';
import type { ServedOpenApi, ServedOperation } from './served-openapi.js';

/** Keys and headers that a caller has to choose from, the good ones first. */
export interface Credentials {
  good: Record<string, string>;
  others: Record<string, string>[];
}

/** Requests to one operation, from impeccable to hostile, made from what is documented of it. */
export function callArbitrary(
  { document }: ServedOpenApi,
  { operation, method, path }: ServedOperation,
  known: Known,
  credentials: Credentials,
  genuine: readonly unknown[] = [],
): fc.Arbitrary<Call> {
  const { schemas } = document.components;
  const parameters = (place: OpenApiParameter['in']) =>
    operation.parameters.filter((parameter) => parameter.in === place);
  const valueOf = ({ name, schema }: OpenApiParameter): fc.Arbitrary<string> => {
    const real = known[name] ?? [];
    return fc.oneof(
      schemaArbitrary(schema, schemas, {}).map(String),
      ...(real.length > 0 ? [fc.constantFrom(...real.map(String))] : []),
    );
  };
  const documentOf = (schema: JsonObject): fc.Arbitrary<unknown> => {
    const made = schemaArbitrary(schema, schemas, known);
    return genuine.length === 0 ? made : fc.oneof(made, fc.constantFrom(...genuine));
  };
  const body = operation.requestBody?.content['application/json']?.schema;
  return fc
    .record({
      path: pathOf(path, parameters('path'), valueOf),
      query: queryOf(parameters('query'), valueOf),
      headers: headersOf(parameters('header'), valueOf, credentials),
      body: body === undefined ? fc.constant(undefined) : bodyOf(documentOf(body)),
    })
    .map(({ path, query, headers, body }) => ({
      method,
      path: path + query,
      headers: { ...headers, ...(body !== undefined && { 'Content-Length': String(body.length) }) },
      ...(body !== undefined && { body }),
    }));
}

/** Half of a surrogate pair has no place in an address. */
const wellFormed = (text: string): string => Buffer.from(text).toString();

const usually = <T>(good: fc.Arbitrary<T>, bad: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ weight: 4, arbitrary: good }, { weight: 1, arbitrary: bad });

function pathOf(
  path: string,
  parameters: OpenApiParameter[],
  valueOf: (parameter: OpenApiParameter) => fc.Arbitrary<string>,
): fc.Arbitrary<string> {
  // An empty segment, `.` and `..` name another path.
  const segment = (text: string): string =>
    /^\.{0,2}$/.test(text) ? '-' : encodeURIComponent(wellFormed(text));
  const hostile = fc.oneof(
    hostileText.map(segment),
    fc.constantFrom('%zz', '%', '%c0%af', '%ff', '%00', ';', '@', "'"),
  );
  return fc
    .tuple(...parameters.map((parameter) => usually(valueOf(parameter).map(segment), hostile)))
    .map((values) =>
      parameters.reduce((text, { name }, at) => text.replace(`{${name}}`, values[at] ?? ''), path),
    );
}

function queryOf(
  parameters: OpenApiParameter[],
  valueOf: (parameter: OpenApiParameter) => fc.Arbitrary<string>,
): fc.Arbitrary<string> {
  // A few at a time: one that is refused hides what the others do.
  const good = fc
    .subarray(parameters, { maxLength: Math.min(2, parameters.length) })
    .chain((some) => fc.tuple(...some.map((one) => fc.tuple(fc.constant(one.name), valueOf(one)))))
    .map((members) => (members.length > 0 ? `?${new URLSearchParams(members).toString()}` : ''));
  const names = fc.oneof(
    fc.constantFrom('x', '__proto__', 'a[b]', ...parameters.map(({ name }) => name)),
    fc.string(),
  );
  const bad = fc
    .array(fc.tuple(names, fc.oneof(hostileText, fc.string())), { maxLength: 4 })
    .map((pairs) => {
      const text = pairs.map((pair) => pair.map((one) => encodeURIComponent(wellFormed(one))));
      return `?${text.map((pair) => pair.join('=')).join('&')}`;
    });
  return usually(good, fc.oneof(bad, fc.constantFrom('?', '?&&', '?=', '?%', '?limit=1&limit=2')));
}

function headersOf(
  parameters: OpenApiParameter[],
  valueOf: (parameter: OpenApiParameter) => fc.Arbitrary<string>,
  { good, others }: Credentials,
): fc.Arbitrary<Record<string, string | string[]>> {
  const isSendable = (text: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(text);
  const anyText = fc.string({ unit: 'binary' }).filter(isSendable);
  const optional = parameters.filter(({ required }) => !required);
  const documented = fc.record(
    Object.fromEntries(
      optional.map((one) => [one.name, usually(valueOf(one).filter(isSendable), anyText)]),
    ),
    { requiredKeys: [] },
  );
  const odd = fc.record(
    {
      Accept: fc.oneof(
        fc.constantFrom(
          '*/*',
          'application/json',
          'text/plain',
          'text/*;q=0.1',
          'image/png',
          ';;q',
        ),
        anyText,
      ),
      'Content-Type': fc.oneof(
        fc.constantFrom('text/plain', 'application/json;charset=x'),
        anyText,
      ),
      'Accept-Encoding': anyText,
      'svc-api-version': fc.constantFrom<string | string[]>('v1', 'v2', ['v1', 'v1']),
      'X-Request-Id': anyText,
      'X-Forwarded-For': anyText,
      'X-HTTP-Method-Override': fc.constant('DELETE'),
      Range: fc.constantFrom('bytes=0-1', 'x'),
      'If-Match': anyText,
      Cookie: anyText,
    },
    { requiredKeys: [] },
  );
  const who = usually(fc.constant(good), fc.constantFrom(...others));
  return fc.tuple(who, documented, usually(fc.constant({}), odd)).map(([keyed, sent, strange]) => ({
    'Content-Type': 'application/json',
    ...keyed,
    ...(sent as Record<string, string>),
    ...strange,
  }));
}

function bodyOf(document: fc.Arbitrary<unknown>): fc.Arbitrary<Buffer> {
  const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
  return fc.oneof(
    { weight: 4, arbitrary: document.map(json) },
    { weight: 4, arbitrary: mutated(document).map(json) },
    { weight: 1, arbitrary: fc.jsonValue().map(json) },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)) },
    {
      weight: 1,
      arbitrary: fc
        .tuple(document, fc.double({ min: 0, max: 1, noNaN: true }))
        .map(([value, share]) => {
          const bytes = json(value);
          return bytes.subarray(0, Math.floor(bytes.length * share));
        }),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        Buffer.alloc(0),
        Buffer.from('['.repeat(2_000)),
        Buffer.from(`{"a":${'9'.repeat(400)}}`),
        Buffer.from('{"__proto__":{"a":1}}'),
        Buffer.alloc(300_000, ' '),
      ),
    },
  );
}
