import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { COMMITTED_HASHES } from '#protocol/commitments';
import {
  FACT_NAME_PATTERN,
  type FactValue,
  type Facts,
  isDecimal,
  decimalUnits,
} from '#protocol/schemas/facts';
import { ACTION_PATTERN } from '#protocol/schemas/primitives';
import {
  type Budget,
  type PolicyInput,
  afterOf,
  appliedCounters,
  type Counters,
} from '#protocol/policy-input';
import type { Effect } from '#protocol/status';
import { type AppliedCounter, counterId, type CounterRef } from '#sql/admissions/counters';
import type { Decision } from '#sql/proofs/rebuild-aep';
import type { PolicyFiles } from '#sql/admissions/policies';
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

/** Problems that depend on the declared facts: `sum` must name a Long or decimal fact. */
export function counterFaults(
  counters: Counters,
  facts: ReadonlyMap<string, { type: string }>,
): string[] {
  return Object.entries(counters).flatMap(([name, { sum }]) => {
    const type = sum === null ? 'Long' : facts.get(sum)?.type;
    if (type === 'Long' || type === 'decimal') return [];
    return `${name} sums ${sum}, which is not a declared fact of type Long or decimal`;
  });
}

/** The text of a record type that declares the counters. */
export function budgetsRecord(counters: Counters): string {
  const attributes = Object.keys(counters).map(
    (name) => `"${name}"?: { before: Long, after: Long }`,
  );
  return `{ ${attributes.join(', ')} }`;
}

/**
 * Reasons to deny before evaluation, sorted: counters that cannot count the action or whose value is
 * unknown, and missing facts that a counter sums.
 */
export function unmetBudgets(counters: Counters, input: PolicyInput): string[] {
  const reasons = appliedCounters(counters, input).flatMap(([name, counter]) => {
    const { budgets, facts } = input;
    const known = Object.hasOwn(budgets, name) ? budgets[name] : undefined;
    if (known !== undefined && afterOf(counter, input, known.before) !== null) return [];
    const { sum } = counter;
    const isMissing = sum !== null && !Object.hasOwn(facts, sum);
    return [`budget.${name}`, ...(isMissing ? [`fact.${sum}`] : [])];
  });
  return [...new Set(reasons)].sort();
}

/** Values of counters by id; 0 when absent. */
export type CounterValues = Map<string, number>;

export interface CounterMove extends CounterRef {
  name: string;
  before: number;
  after: number;
}

/** The window of each counter, and its value before an action; keyed by counter name. */
export type Befores = Record<string, Omit<Budget, 'after'>>;

/** Counter values before an admission; 0 for a counter per agent or run if the request has no agent or run. */
export function beforesIn(values: CounterValues, applied: readonly AppliedCounter[]): Befores {
  return Object.fromEntries(
    applied.map(({ name, ref, window }) => {
      const before = (ref && values.get(counterId(ref))) ?? 0;
      return [name, { window, before }];
    }),
  );
}

/** The counter changes of a decision; none for a counter per agent or run if the request has no agent or run. */
export function movesOf(
  { budgets }: Pick<Decision, 'budgets'>,
  applied: readonly AppliedCounter[],
): CounterMove[] {
  return applied.flatMap(({ name, ref }) => {
    const { after, before } = budgets[name]!;
    return ref === null ? [] : [{ ...ref, name, before, after }];
  });
}

/** Applies the changes of a decision, if it admits. */
export function applyMoves(
  values: CounterValues,
  { effect, moves }: { effect: Effect; moves: CounterMove[] },
): void {
  if (effect !== 'ADMIT') return;
  for (const one of moves) values.set(counterId(one), one.after);
}

/** User-visible sentences for denial reasons other than policy ids, by prefix. */
const SENTENCES: Readonly<Record<string, (name: string) => string>> = {
  'fact.': (name) =>
    `The fact ${name} is missing, or the policy set does not declare it with the stated type.`,
  'budget.': (name) =>
    `The counter ${name} cannot count this action. The request lacks the amount, the agent or the run, the amount is negative, or the value is unknown or too large.`,
};

export const RESERVED_PREFIXES = Object.keys(SENTENCES);

export function reasonSentence(reason: string): string | undefined {
  const prefix = RESERVED_PREFIXES.find((one) => reason.startsWith(one)) ?? '';
  return SENTENCES[prefix]?.(reason.slice(prefix.length));
}

/** How policies use an attribute: its whole value, comparisons with literals, or only its presence. */
interface Use {
  path: string[];
  isWhole: boolean;
  /** The literals that policies compare the attribute with, as {@link literalIn} returns them. */
  literals: Set<bigint>;
}

/** Everything in the context on which the decisions of a policy set depend. */
type ContextUses = readonly Use[];

export function contextUses(policies: PolicyFiles['policies']): ContextUses {
  const uses = new Map<string, Use>();
  const useOf = (path: string[]): Use => {
    const name = JSON.stringify(path);
    const found = uses.get(name) ?? { path, isWhole: false, literals: new Set() };
    uses.set(name, found);
    return found;
  };
  const walk = (part: unknown): void => {
    if (typeof part !== 'object' || part === null) return;
    const path = pathOf(part);
    if (path !== null) useOf(path).isWhole = true;
    else for (const [operator, operands] of Object.entries(part)) walkOperator(operator, operands);
  };
  const walkOperator = (operator: string, operands: unknown): void => {
    if (operator === 'Value' || typeof operands !== 'object' || operands === null) return;
    const [left, right] = Object.values(operands) as unknown[];
    const tested = operator === 'has' ? pathOf(left) : null;
    const compared = COMPARISONS.has(operator)
      ? (comparison(left, right) ?? comparison(right, left))
      : null;
    // Cedar's JSON format has a list of names for `has a.b`.
    if (tested !== null) useOf([...tested, ...([right].flat() as string[])]);
    else if (compared !== null) useOf(compared.path).literals.add(compared.literal);
    else Object.values(operands).flat().forEach(walk);
  };
  for (const text of Object.values(policies)) {
    const answer = cedar.policyToJson(text);
    if (answer.type === 'success') answer.json.conditions.forEach(({ body }) => walk(body));
    // Assumes that a policy that does not parse uses every attribute.
    else useOf([]).isWhole = true;
  }
  return [...uses.values()];
}

const COMPARISONS = new Set([
  ...['<', '<=', '>', '>=', '==', '!='],
  ...['lessThan', 'lessThanOrEqual', 'greaterThan', 'greaterThanOrEqual'],
]);

/** The path of an attribute of the context; null for any other expression of Cedar's JSON format. */
function pathOf(expression: unknown): string[] | null {
  if (typeof expression !== 'object' || expression === null) return null;
  if ('Var' in expression) return expression.Var === 'context' ? [] : null;
  if (!('.' in expression)) return null;
  const { left, attr } = expression['.'] as { left: unknown; attr: string };
  const path = pathOf(left);
  return path && [...path, attr];
}

function comparison(value: unknown, other: unknown): { path: string[]; literal: bigint } | null {
  const [path, literal] = [pathOf(value), literalIn(other)];
  return path === null || literal === null ? null : { path, literal };
}

/** The value of a Long, or of a decimal in units of 0.0001: Cedar never compares the two. Null for other expressions. */
function literalIn(expression: unknown): bigint | null {
  const { Value: value, decimal } = expression as {
    Value?: unknown;
    decimal?: [{ Value?: unknown }];
  };
  if (typeof value === 'number') return BigInt(value);
  const text = decimal?.[0].Value;
  return typeof text === 'string' && isDecimal(text) ? decimalUnits(text) : null;
}

/**
 * The part of a context that policies use, as text. Contexts with equal texts get equal decisions: a
 * comparison with literals cannot distinguish two values between the same neighbouring literals, so most
 * new amounts need no evaluation.
 */
export function usedText(uses: ContextUses, context: object): string {
  return JSON.stringify(uses.map((use) => usedOf(use, context)));
}

/** The used part of one attribute; for a missing attribute, the number of steps of its path that exist. */
function usedOf({ path, isWhole, literals }: Use, context: object): unknown {
  let value: unknown = context;
  for (const [at, name] of path.entries()) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return at;
    value = (value as Record<string, unknown>)[name];
  }
  if (!isWhole && literals.size === 0) return null;
  const units = isWhole ? null : unitsOf(value);
  if (units === null) return { value };
  return [[...literals].filter((one) => one < units).length, literals.has(units)];
}

function unitsOf(value: unknown): bigint | null {
  if (typeof value === 'number') return BigInt(value);
  const { __extn } = value as { __extn?: { arg: string } };
  return __extn === undefined ? null : decimalUnits(__extn.arg);
}
