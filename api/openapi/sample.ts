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
    if (member !== undefined && Object.hasOwn(worked.members, member)) {
      const value = worked.members[member];
      if (typeof value === typeNameOf(node)) return value;
    }
    if (id !== null) {
      if (Object.hasOwn(worked.documents, id)) return worked.documents[id];
      return sample(components[id], member);
    }
    if ('const' in node) return node['const'];
    if (Array.isArray(node['examples'])) return node['examples'][0] as unknown;
    if (Array.isArray(node['enum'])) return node['enum'][0] as unknown;
    const options = node['oneOf'] ?? node['anyOf'];
    if (Array.isArray(options)) return sample(options[0], member);
    if (Array.isArray(node['allOf'])) {
      return Object.assign({}, ...node['allOf'].map((part) => sample(part))) as unknown;
    }
    return plain(node);
  };

  const plain = (node: JsonObject): unknown => {
    const { items, maxItems, minimum, prefixItems, properties } = node;
    switch ([node['type']].flat()[0]) {
      case 'object':
        return Object.fromEntries(
          Object.entries(properties ?? {}).map(([name, schema]) => [name, sample(schema, name)]),
        );
      case 'array':
        if (Array.isArray(prefixItems)) return prefixItems.map((item) => sample(item));
        return items === undefined || maxItems === 0 ? [] : [sample(items)];
      case 'integer':
      case 'number':
        return typeof minimum === 'number' ? minimum : 0;
      case 'boolean':
        return true;
      case 'null':
        return null;
      case 'string':
        return 'text';
      default:
        return {};
    }
  };

  const typeNameOf = (node: JsonObject): string => {
    const id = componentOf(node);
    if (id !== null) return typeNameOf(components[id] ?? {});
    const options = node['anyOf'] ?? node['oneOf'];
    if (Array.isArray(options)) return typeNameOf(options[0] as JsonObject);
    const [type] = [node['type']].flat();
    return type === 'integer' ? 'number' : String(type);
  };
  return sample;
}
