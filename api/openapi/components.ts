import * as z from 'zod';
import * as documents from '#protocol/schemas/index';
import { FIXED_SCHEMAS } from '#protocol/schemas/open-schema';
import * as primitives from '#protocol/schemas/primitives';
import {
  type ApiDescription,
  type WorkedExample,
  type OperationSpec,
  COMPONENT,
  componentOf,
  type JsonObject,
} from './types.js';

export type Components = ReturnType<typeof componentsOf>;

type Registry = ReturnType<typeof z.registry<{ id: string }>>;

/** JSON Schemas of an API: a component for each document and each shared part. */
export function componentsOf<Spec extends OperationSpec>(
  specs: readonly Spec[],
  { problems, answersMayGainMembers }: ApiDescription<Spec>,
) {
  const members = Object.entries(problems.members).flatMap(([code, schema]) =>
    schema === undefined ? [] : [{ code, schema }],
  );
  const registry = nameSchemas(specs, members);
  const idOf = (schema: z.ZodType): string => registry.get(schema)?.id ?? '';
  const schemas = convert(registry, 'output');
  const asSent = convert(registry, 'input');
  const from = (roots: readonly z.ZodType[]): Set<string> => reachable(schemas, roots.map(idOf));
  const fixed = from(FIXED_SCHEMAS);
  const sent = from(specs.flatMap(({ body }) => body?.schema ?? []));
  const answered = from([
    ...specs.flatMap((spec) => answersOf(spec).map(([schema]) => schema)),
    ...members.map(({ schema }) => schema),
    problems.schema,
  ]);
  const gains = (id: string): boolean =>
    answersMayGainMembers &&
    answered.has(id) &&
    !fixed.has(id) &&
    JSON.stringify(schemas[id]).includes('"additionalProperties":false');
  /** The name of a schema in requests; differs from the name in responses if responses allow more members. */
  const sentName = (id: string): string =>
    answered.has(id) && [...reachable(schemas, [id])].some(gains) ? `Submitted${id}` : id;
  const named = Object.fromEntries([
    ...[...sent].map((id) => [sentName(id), renamed(schemas[id]!, sentName)]),
    ...[...answered].map((id) => [id, gains(id) ? opened(schemas[id]!) : schemas[id]!]),
  ]) as Record<string, JsonObject>;
  return {
    schemas: Object.fromEntries(Object.entries(named).sort(([a], [b]) => (a < b ? -1 : 1))),
    refTo: (schema: z.ZodType) => ({ $ref: COMPONENT + idOf(schema) }),
    bodyRefTo: (schema: z.ZodType) => ({ $ref: COMPONENT + sentName(idOf(schema)) }),
    /** Query parameters of an operation, as clients send them, before the schema transforms the values. */
    query: ({ query }: OperationSpec) => {
      const converted = query === undefined ? {} : (asSent[idOf(query)] ?? {});
      return {
        properties: (converted['properties'] ?? {}) as Record<string, JsonObject>,
        required: (converted['required'] ?? []) as string[],
      };
    },
  };
}

function answersOf({ id, responses }: OperationSpec): [z.ZodType, string][] {
  return Object.entries(responses).flatMap(([status, { content = {} }]) =>
    Object.values(content).flatMap((schema): [z.ZodType, string][] =>
      typeof schema === 'string'
        ? []
        : [[schema, `${capital(id)}Response${status === '200' ? '' : status}`]],
    ),
  );
}

/** Names a schema after its export in `protocol/schemas`, its `schema_version` or its operation, in this order. */
function nameSchemas(
  specs: readonly OperationSpec[],
  members: readonly { code: string; schema: z.ZodType }[],
): Registry {
  const registry = z.registry<{ id: string }>();
  const taken = new Set<string>();
  const name = (schema: z.ZodType, ...ids: (string | undefined)[]): void => {
    const id = ids.find((one) => one !== undefined && !taken.has(one));
    if (id === undefined || registry.has(schema)) return;
    taken.add(id);
    registry.add(schema, { id });
  };
  // Names primitives first: some modules of documents re-export a primitive under a second name.
  for (const [key, value] of Object.entries<unknown>({ ...primitives, ...documents })) {
    if (value instanceof z.ZodType) name(value, capital(key.replace(/Schema$/, '')));
  }
  for (const spec of specs) {
    const { body, query } = spec;
    if (body !== undefined)
      name(body.schema, versionName(body.schema), `${capital(spec.id)}Request`);
    for (const [schema, fallback] of answersOf(spec)) name(schema, versionName(schema), fallback);
    if (query !== undefined) name(query, `${capital(spec.id)}Query`);
  }
  for (const { code, schema } of members) {
    name(schema, `${code.split('_').map(capital).join('')}Problem`);
  }
  return registry;
}

function versionName(schema: z.ZodType): string | undefined {
  if (!(schema instanceof z.ZodObject)) return undefined;
  const version: unknown = schema.shape['schema_version'];
  if (!(version instanceof z.ZodLiteral)) return undefined;
  const found = Object.entries(documents.SCHEMA).find(([, text]) => text === version.value);
  return found === undefined ? undefined : capital(found[0]);
}

function convert(registry: Registry, io: 'input' | 'output'): Record<string, JsonObject> {
  const { schemas } = z.toJSONSchema(registry, {
    io,
    uri: (id) => COMPONENT + id,
    // Query schemas may transform text, which JSON Schema cannot express; the document describes only the text.
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => tidy(zodSchema, jsonSchema as JsonObject),
  });
  // Deletes `$schema`, because the document declares its dialect once, and `$id`, which is for standalone schemas.
  for (const schema of Object.values(schemas)) {
    delete schema.$schema;
    delete schema.$id;
  }
  return schemas;
}

const FORMATS: readonly unknown[] = ['date-time', 'uri', 'uuid'];

/** Describes zod's refinements in words, and drops formats that only zod knows. */
function tidy(zodSchema: z.core.$ZodType, jsonSchema: JsonObject): void {
  if ('format' in jsonSchema && !FORMATS.includes(jsonSchema['format']))
    delete jsonSchema['format'];
  const rules = (zodSchema._zod.def.checks ?? []).flatMap(ruleOf);
  if (rules.length === 0 || '$ref' in jsonSchema) return;
  const description = jsonSchema['description'];
  const words = [...(typeof description === 'string' ? [description] : []), ...rules];
  jsonSchema['description'] = [...new Set(words)].join(' ');
}

function ruleOf(check: z.core.$ZodCheck): string[] {
  const def = check._zod.def as z.core.$ZodCheckDef & { path?: (string | number)[] };
  const message = def.error?.({ code: 'custom', input: undefined, path: [] } as never);
  const text = typeof message === 'string' ? message : message?.message;
  if (text === undefined) return [];
  const rule = text.replace(/^expected /, '');
  return [def.path === undefined ? `${capital(rule)}.` : `\`${def.path.join('.')}\`: ${rule}.`];
}

function reachable(schemas: Record<string, JsonObject>, roots: readonly string[]): Set<string> {
  const found = new Set<string>();
  const visit = (node: unknown): void => {
    if (node === null || typeof node !== 'object') return;
    const id = componentOf(node);
    if (id !== null) follow(id);
    Object.values(node).forEach(visit);
  };
  const follow = (id: string): void => {
    if (found.has(id) || schemas[id] === undefined) return;
    found.add(id);
    visit(schemas[id]);
  };
  roots.forEach(follow);
  return found;
}

function opened(schema: JsonObject): JsonObject {
  return JSON.parse(JSON.stringify(schema), (name, value: unknown) =>
    name === 'additionalProperties' && value === false ? undefined : value,
  ) as JsonObject;
}

function renamed(schema: JsonObject, nameOf: (id: string) => string): JsonObject {
  return JSON.parse(JSON.stringify(schema), (_name, value: unknown) => {
    const id = componentOf(value);
    return id === null ? value : { ...(value as JsonObject), $ref: COMPONENT + nameOf(id) };
  }) as JsonObject;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Generates examples from the values of the worked example, or else from the first value that the schema allows. */
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
