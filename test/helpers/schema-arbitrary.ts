import fc from 'fast-check';
import { componentOf } from '#api/openapi/types';

type Schema = Record<string, unknown>;

/** Values that a registry has, by the name of the member or parameter that means them. */
export type Known = Record<string, readonly unknown[]>;

/** Values that a JSON schema allows, as often as not with something real in them. */
export function schemaArbitrary(
  root: Schema,
  components: Record<string, Schema>,
  known: Known,
): fc.Arbitrary<unknown> {
  const of = (node: Schema, member?: string): fc.Arbitrary<unknown> => {
    const real = member === undefined ? undefined : known[member];
    const made = plain(node, member);
    return real === undefined || real.length === 0
      ? made
      : fc.oneof(
          { weight: 9, arbitrary: fc.constantFrom(...real) },
          { weight: 1, arbitrary: made },
        );
  };
  const plain = (node: Schema, member?: string): fc.Arbitrary<unknown> => {
    const id = componentOf(node);
    if (id !== null) return of(components[id] ?? {}, member);
    if ('const' in node) return fc.constant(node['const']);
    if (Array.isArray(node['enum'])) return fc.constantFrom(...(node['enum'] as unknown[]));
    const options = node['oneOf'] ?? node['anyOf'];
    if (Array.isArray(options)) return fc.oneof(...options.map((one) => of(one as Schema)));
    switch (node['type']) {
      case 'object':
        return object(node, of);
      case 'array':
        return array(node, of);
      case 'string':
        return string(node);
      case 'integer':
        return fc.integer({ min: Number(node['minimum'] ?? -9), max: 1_000_000 });
      case 'number':
        return fc.double({ noNaN: true });
      case 'boolean':
        return fc.boolean();
      case 'null':
        return fc.constant(null);
      default:
        return fc.jsonValue();
    }
  };
  return of(root);
}

type Of = (node: Schema, member?: string) => fc.Arbitrary<unknown>;

function object(node: Schema, of: Of): fc.Arbitrary<unknown> {
  const properties = Object.entries((node['properties'] ?? {}) as Record<string, Schema>);
  return fc.record(
    Object.fromEntries(properties.map(([name, schema]) => [name, of(schema, name)])),
    { requiredKeys: (node['required'] ?? []) as string[] },
  );
}

function array(node: Schema, of: Of): fc.Arbitrary<unknown> {
  const first = node['prefixItems'];
  if (Array.isArray(first)) return fc.tuple(...first.map((item) => of(item as Schema)));
  const size = {
    minLength: Number(node['minItems'] ?? 0),
    maxLength: Math.min(4, Number(node['maxItems'] ?? 4)),
  };
  const items = of((node['items'] ?? {}) as Schema);
  return node['uniqueItems'] === true ? fc.uniqueArray(items, size) : fc.array(items, size);
}

function string(node: Schema): fc.Arbitrary<string> {
  if (node['format'] === 'date-time') {
    return fc
      .date({
        min: new Date('2000-01-01T00:00:00Z'),
        max: new Date('2100-01-01T00:00:00Z'),
        noInvalidDate: true,
      })
      .map((date) => date.toISOString());
  }
  if (typeof node['pattern'] === 'string')
    return fc.stringMatching(new RegExp(node['pattern'], 'u'));
  return fc.string({
    unit: 'grapheme',
    minLength: Number(node['minLength'] ?? 0),
    maxLength: Math.min(64, Number(node['maxLength'] ?? 64)),
  });
}

/** What nobody should send. */
export const hostileText = fc.constantFrom(
  '',
  ' ',
  '\u0000',
  '\ud800',
  '\u202e',
  '__proto__',
  'constructor',
  "' or 1=1 --",
  '../../etc/passwd',
  '%00',
  '${jndi:ldap://x}',
  '\r\nX-Injected: 1',
  '😀'.repeat(600),
  'a'.repeat(5_000),
  'null',
  '1e999',
);

const hostileValue = fc.oneof(
  hostileText,
  fc.constantFrom<unknown>(null, true, -1, 0.1, 2 ** 53, 1e308, -0, [], {}, [[[[]]]], { a: 1 }),
  fc.jsonValue({ maxDepth: 2 }),
);

/** The same document with one thing in it changed, taken out or added. */
export function mutated(document: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc
    .record({
      document,
      turns: fc.array(fc.nat(50), { minLength: 1, maxLength: 4 }),
      how: fc.constantFrom('replace', 'remove', 'add'),
      value: hostileValue,
      name: fc.oneof(hostileText, fc.string()),
    })
    .map(({ document, turns, how, value, name }) => {
      const copy = structuredClone(document);
      change(copy, turns, how, value, name);
      return copy;
    });
}

function change(root: unknown, turns: number[], how: string, value: unknown, added: string): void {
  let at = root;
  for (const [depth, turn] of turns.entries()) {
    if (at === null || typeof at !== 'object') return;
    const names = Object.keys(at);
    const name = names[turn % Math.max(1, names.length)];
    const members = at as Record<string, unknown>;
    const next = name === undefined ? undefined : members[name];
    const isLast = depth === turns.length - 1 || next === null || typeof next !== 'object';
    if (!isLast) {
      at = next;
      continue;
    }
    if (how === 'add' || name === undefined) {
      Object.defineProperty(members, added, { value, enumerable: true, configurable: true });
    } else if (how === 'remove') delete members[name];
    else members[name] = value;
    return;
  }
}
