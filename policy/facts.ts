import type * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { COMMITTED_HASHES } from '#protocol/commitments';
import { FACT_NAME_PATTERN, type FactValue, type Facts, isDecimal } from '#protocol/schemas/facts';
import { ACTION_PATTERN } from '#protocol/schemas/primitives';
import { readSchema } from './cedar-schema.js';

/** The Cedar types of facts, and how an agent writes a value of each type. */
const FORMS = {
  String: 'a string',
  Long: 'an integer',
  Bool: 'true or false',
  decimal: 'a decimal such as {"decimal":"480.00"}',
  'Set<String>': 'an array of strings in ascending order',
} as const;
type FactType = keyof typeof FORMS;

export type DeclaredFacts = ReadonlyMap<string, { type: FactType; requiredFor: string[] }>;

/** The annotation of a fact with the actions, separated by commas, that require the fact. */
export const REQUIRED_FOR = 'required_for';

/** The facts that a schema validly declares; a request with any other fact is denied. @throws PolicySetError */
export function declaredFacts(schema: string): DeclaredFacts {
  const { namespaces, resolve } = readSchema(schema);
  const context = new Map(namespaces).get('Svc')?.actions?.['admit']?.appliesTo?.context;
  const facts = context && resolve(context).attributes?.['facts'];
  const attributes = Object.entries((facts && resolve(facts).attributes) ?? {});
  return new Map(
    attributes.flatMap(([name, declared]) => {
      const { annotations = {}, element, ...use } = resolve(declared);
      const type = element === undefined ? use.type : `${use.type}<${resolve(element).type}>`;
      const requiredFor = annotations[REQUIRED_FOR]?.split(',') ?? [];
      const isFact =
        FACT_NAME_PATTERN.test(name) &&
        !COMMITTED_HASHES.includes(name) &&
        isFactType(type) &&
        requiredFor.every((action) => ACTION_PATTERN.test(action)) &&
        // Rejects other annotations: a misspelled one would have no effect.
        Object.keys(annotations).every((one) => one === REQUIRED_FOR || one === 'doc');
      return isFact ? [[name, { type, requiredFor }]] : [];
    }),
  );
}

function isFactType(type: string): type is FactType {
  return Object.hasOwn(FORMS, type);
}

export const FACT_RULE = `declare a fact as an optional ${Object.keys(FORMS)
  .join(', ')
  .replace(
    /, (?=[^,]*$)/,
    ' or ',
  )} with a name of a-z, 0-9 and _ that begins with a letter and is not ${COMMITTED_HASHES.join(', ')}, and with no annotations but @doc and @${REQUIRED_FOR}("ACTION,ACTION")`;

/** The text of a record type that declares the facts. */
export function factsRecord(facts: DeclaredFacts): string {
  const attributes = [...facts].map(([name, { type, requiredFor }]) => {
    const annotation =
      requiredFor.length > 0 ? `@${REQUIRED_FOR}("${requiredFor.join(',')}") ` : '';
    return `${annotation}"${name}"?: ${type}`;
  });
  return `{ ${attributes.join(', ')} }`;
}

/** Reasons to deny before evaluation, sorted: missing required facts, undeclared facts and mistyped facts. */
export function unmetFacts(declared: DeclaredFacts, action: string, facts: Facts): string[] {
  const lacking = [...declared].flatMap(([name, { requiredFor }]) =>
    requiredFor.includes(action) && !Object.hasOwn(facts, name) ? [name] : [],
  );
  return [...lacking, ...misfits(declared, facts)].map((name) => `fact.${name}`).sort();
}

function misfits(declared: DeclaredFacts, facts: Facts): string[] {
  return Object.entries(facts).flatMap(([name, value]) =>
    declared.get(name)?.type === typeOf(value) ? [] : [name],
  );
}

/** Facts with an undeclared name, or not of the declared type, each with an error message. */
export function factFaults(declared: DeclaredFacts, facts: Facts) {
  return misfits(declared, facts).map((name) => {
    const type = declared.get(name)?.type;
    const expected =
      type === undefined
        ? 'is not a fact that the active policy set declares'
        : `must be ${FORMS[type]}`;
    return { name, expected };
  });
}

function typeOf(value: FactValue): FactType | null {
  if (typeof value === 'string') return 'String';
  if (typeof value === 'number') return Number.isSafeInteger(value) ? 'Long' : null;
  if (typeof value === 'boolean') return 'Bool';
  if (Array.isArray(value)) {
    return value.every((one) => typeof one === 'string') ? 'Set<String>' : null;
  }
  return isDecimal(value.decimal) ? 'decimal' : null;
}

export function cedarFacts(facts: Facts): Record<string, cedar.CedarValueJson> {
  return Object.fromEntries(
    Object.entries(facts).map(([name, value]) => [
      name,
      typeof value === 'object' && 'decimal' in value
        ? { __extn: { fn: 'decimal', arg: value.decimal } }
        : value,
    ]),
  );
}
