import * as z from 'zod';
import { aepSchema, dsseEnvelopeSchema, proofRecordSchema } from './aep.js';
import { agentReceiptSchema, executeReceiptSchema } from './admission.js';
import { aepKeyEntrySchema, proofEntrySchema } from './log-entry.js';
import { disclosureSchema } from './proof-export.js';

/** Receipts, and documents that are signed or committed to in the log. These documents never gain members. */
export const FIXED_SCHEMAS: readonly z.ZodType[] = [
  executeReceiptSchema,
  agentReceiptSchema,
  aepSchema,
  dsseEnvelopeSchema,
  proofRecordSchema,
  proofEntrySchema,
  aepKeyEntrySchema,
  disclosureSchema,
];

type Schema = z.core.$ZodType;

const opened = new WeakMap<Schema, Schema>(FIXED_SCHEMAS.map((schema) => [schema, schema]));

const LEAVES: ReadonlySet<string> = new Set<z.core.$ZodTypeDef['type']>([
  'string',
  'number',
  'boolean',
  'null',
  'literal',
  'enum',
  'template_literal',
  'never',
  'unknown',
]);

/**
 * The schema for a client that reads responses: every object may have unknown members, except in
 * {@link FIXED_SCHEMAS}. Known members are checked as by the original schema.
 *
 * @throws TypeError for an unsupported kind of schema, which might contain objects
 */
export function openSchema<T>(schema: z.ZodType<T>): z.ZodType<T> {
  return open(schema) as z.ZodType<T>;
}

function open(schema: Schema): Schema {
  const known = opened.get(schema);
  if (known !== undefined) return known;
  const { def } = (schema as z.core.$ZodTypes)._zod;
  const parts = openParts(def);
  const result = parts === null ? schema : z.clone(schema, { ...def, ...parts });
  opened.set(schema, result);
  return result;
}

function openParts(def: z.core.$ZodTypes['_zod']['def']): object | null {
  if (def.type === 'object') {
    const shape = Object.entries(def.shape).map(([name, part]) => [name, open(part)]);
    return { shape: Object.fromEntries(shape) as object, catchall: z.unknown() };
  }
  if (def.type === 'array') return { element: open(def.element) };
  if (def.type === 'tuple') return { items: def.items.map(open), rest: def.rest && open(def.rest) };
  if (def.type === 'record') return { valueType: open(def.valueType) };
  if (def.type === 'nullable' || def.type === 'optional') return { innerType: open(def.innerType) };
  if (LEAVES.has(def.type)) return null;
  if (def.type !== 'union') throw new TypeError(`a schema of type ${def.type} cannot be opened`);
  return { options: 'discriminator' in def ? def.options.map(open) : alternatives(def.options) };
}

/**
 * Rejects members of the other alternatives: an artifact with an invalid member must not match an
 * alternative without that member.
 */
function alternatives(options: readonly Schema[]): Schema[] {
  const names = options.flatMap((one) =>
    one instanceof z.ZodObject ? Object.keys(one.shape) : [],
  );
  return options.map((option) => {
    const result = open(option);
    if (!(option instanceof z.ZodObject) || !(result instanceof z.ZodObject) || result === option) {
      return result;
    }
    const others = names.filter((name) => !Object.hasOwn(option.shape, name));
    return result.safeExtend(
      Object.fromEntries(others.map((name) => [name, z.never().exactOptional()])),
    );
  });
}
