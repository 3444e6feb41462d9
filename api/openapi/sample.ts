import type { WorkedExample } from './description.js';
import { componentOf, type JsonObject } from './types.js';

/** Generates an example from the worked example where it has a value, otherwise the first that the schema allows. */
export function sampler(
  components: Record<string, JsonObject>,
  worked: Pick<WorkedExample, 'documents' | 'members'>,
): (schema: JsonObject) => unknown {
  const sample = (schema: unknown, member?: string): unknown => {
    if (schema === null || typeof schema !== 'object') return null;
    const node = schema as JsonObject;
    const id = componentOf(node);
    const fits = (value: unknown): boolean => typeof value === typeOf(node, components);
    if (member !== undefined && Object.hasOwn(worked.members, member)) {
      const value = worked.members[member];
      if (fits(value)) return value;
    }
    if (id !== null) {
      if (Object.hasOwn(worked.documents, id)) return worked.documents[id];
      return sample(components[id], member);
    }
    if ('const' in node) return node['const'];
    if (Array.isArray(node['examples'])) return node['examples'][0] as unknown;
    if (Array.isArray(node['enum'])) return node['enum'][0] as unknown;
    for (const either of ['oneOf', 'anyOf']) {
      const options = node[either];
      if (Array.isArray(options)) return sample(options[0], member);
    }
    if (Array.isArray(node['allOf'])) {
      return Object.assign({}, ...node['allOf'].map((part) => sample(part))) as unknown;
    }
    return plain(node, sample);
  };
  return sample;
}

function plain(node: JsonObject, sample: (schema: unknown, member?: string) => unknown): unknown {
  const type = Array.isArray(node['type']) ? (node['type'] as unknown[])[0] : node['type'];
  switch (type) {
    case 'object':
      return Object.fromEntries(
        Object.entries((node['properties'] ?? {}) as JsonObject).map(([name, schema]) => [
          name,
          sample(schema, name),
        ]),
      );
    case 'array': {
      const first = node['prefixItems'];
      if (Array.isArray(first)) return first.map((item) => sample(item));
      return node['items'] === undefined || node['maxItems'] === 0 ? [] : [sample(node['items'])];
    }
    case 'integer':
    case 'number':
      return typeof node['minimum'] === 'number' ? node['minimum'] : 0;
    case 'boolean':
      return true;
    case 'null':
      return null;
    case 'string':
      return 'text';
    default:
      return {};
  }
}

function typeOf(node: JsonObject, components: Record<string, JsonObject>): string {
  const id = componentOf(node);
  if (id !== null) return typeOf(components[id] ?? {}, components);
  const options = node['anyOf'] ?? node['oneOf'];
  if (Array.isArray(options)) return typeOf(options[0] as JsonObject, components);
  const type = Array.isArray(node['type']) ? (node['type'] as unknown[])[0] : node['type'];
  return type === 'integer' ? 'number' : String(type);
}
