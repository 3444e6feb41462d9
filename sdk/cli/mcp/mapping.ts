import * as z from 'zod';
import { FACT_NAME_PATTERN, factsSchema, type FactValue } from '../../../protocol/schemas/facts.js';
import { safeParse } from '../../../protocol/schemas/messages.js';
import type { JsonValue } from '../../../protocol/json.js';
import { UsageError } from '../config.js';
import { readDocument } from '../files.js';
import { foldCase, hasOtherCase, isObject, type JsonObject } from './message.js';

const pointerSchema = z
  .string()
  .regex(/^(\/([^~/]|~[01])*)+$/, 'expected a JSON Pointer (RFC 6901) into the arguments');
const typeSchema = z.enum(['string', 'integer', 'decimal', 'boolean', 'set']);
const rootSchema = z
  .string()
  .refine((root) => normalPath(root) === root, 'expected an absolute path in normal form');

const factSchema = z.union(
  [
    z.strictObject({ pointer: pointerSchema, type: typeSchema }),
    z.strictObject({
      pointer: pointerSchema,
      type: z.literal('path'),
      root: rootSchema.optional(),
    }),
  ],
  `expected {"pointer", "type"} with a type of ${typeSchema.options.join(', ')}, path, and a "root" for a path only`,
);

const toolSchema = z.strictObject({
  action: z
    .string()
    .regex(/^[A-Z0-9_.:-]{1,128}$/)
    .optional(),
  facts: z.record(z.string().regex(FACT_NAME_PATTERN), factSchema).optional(),
  hashed: z.array(z.string()).optional(),
});

const mappingSchema = z.strictObject({ tools: z.record(z.string(), toolSchema) });

export type Mapping = z.infer<typeof mappingSchema>;
type Fact = z.infer<typeof factSchema>;

/** Throws `UsageError` for a file that is not a mapping. */
export async function readMapping(file: string): Promise<Mapping> {
  const read = safeParse(mappingSchema, await readDocument(file));
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw new UsageError(
    `${file} is not a mapping: /${issue?.path.join('/') ?? ''}: ${issue?.message ?? ''}`,
  );
}

/** Omits a fact that the arguments lack: `@required_for` in a policy then denies the call. */
export function describe(mapping: Mapping, tool: string, given: JsonObject) {
  if (!Object.hasOwn(mapping.tools, tool)) return { hashed: given };
  const { action, facts: wanted = {}, hashed } = mapping.tools[tool]!;
  const facts = Object.entries(wanted).flatMap(([name, fact]) => {
    const value = factOf(fact, valueAt(given, fact.pointer));
    const isFact = value !== undefined && factsSchema.safeParse({ [name]: value }).success;
    return isFact ? [[name, value] as const] : [];
  });
  return {
    ...(action !== undefined && { action }),
    ...(facts.length > 0 && { facts: Object.fromEntries(facts) }),
    hashed: hashed === undefined ? given : pick(given, hashed),
  };
}

function factOf(fact: Fact, value: JsonValue | undefined): FactValue | undefined {
  switch (fact.type) {
    case 'string':
      return typeof value === 'string' ? value : undefined;
    case 'path':
      return typeof value === 'string' ? normalPath(value, fact.root) : undefined;
    case 'integer':
      return Number.isSafeInteger(value) ? (value as number) : undefined;
    case 'boolean':
      return typeof value === 'boolean' ? value : undefined;
    case 'decimal':
      return decimalOf(value);
    case 'set':
      return Array.isArray(value) ? [...new Set(value as string[])].sort() : undefined;
  }
}

/** Accepts numbers, and strings that contain a number, such as `12`, `12.5` and `"12.50"`. */
function decimalOf(value: JsonValue | undefined): FactValue | undefined {
  if (typeof value !== 'string' && typeof value !== 'number') return undefined;
  const text = String(value);
  return { decimal: /^-?[0-9]+$/.test(text) ? `${text}.0` : text };
}

function valueAt(document: JsonValue, pointer: string): JsonValue | undefined {
  let value: JsonValue | undefined = document;
  for (const step of pointer.split('/').slice(1)) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(value))
      value = /^(0|[1-9][0-9]*)$/.test(name) ? value[Number(name)] : undefined;
    else if (isObject(value) && isUnique(value, name)) value = value[name];
    else return undefined;
  }
  return value;
}

/** Whether the object has this member, and a server that ignores the case of names reads the same member. */
const isUnique = (object: JsonObject, name: string): boolean =>
  Object.hasOwn(object, name) && !hasOtherCase(object, [name]);

function pick(object: JsonObject, names: readonly string[]): JsonObject {
  const folded = names.map(foldCase);
  return Object.fromEntries(
    Object.entries(object).filter(([name]) => folded.includes(foldCase(name))),
  );
}

/**
 * Path segments that every file system and every server reads alike: letters, digits and a few signs.
 * Excludes `%` (a server may decode), `\`, `:` and `$` (Windows, URLs, variables), quotes (a server may
 * strip them), and invisible characters.
 */
const SEGMENT = /^[\p{L}\p{M}\p{N}._@+=,;()[\]{}#&!~^ -]+$/u;
const INVISIBLE = /\p{Default_Ignorable_Code_Point}/u;

/**
 * The absolute form of a POSIX path without `.` and empty segments. Relative paths need a root.
 * Undefined for a path that a server could read as another path, such as every path with `..`, which
 * leads elsewhere after a symbolic link. The caller then states no fact.
 */
export function normalPath(path: string, root?: string): string | undefined {
  // Rejects look-alikes such as U+FF0F and U+2024, which NFKC turns into `/` and `.`.
  if (path !== path.normalize('NFKC') || INVISIBLE.test(path)) return undefined;
  if (path.startsWith('~') || (root === undefined && !path.startsWith('/'))) return undefined;
  const names: string[] = path.startsWith('/') ? [] : (root ?? '').split('/').slice(1);
  for (const name of path.split('/')) {
    if (name === '' || name === '.') continue;
    // Windows drops dots and spaces at the end of a name, and some servers trim names.
    if (!SEGMENT.test(name) || /^ |[ .]$/.test(name)) return undefined;
    else names.push(name);
  }
  return `/${names.join('/')}`;
}
