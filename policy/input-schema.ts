import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import type { Counters } from '#protocol/policy-input';
import { packageRoot } from '#runtime/process/files';
import type { PolicyFiles } from '#sql/admissions/policies';
import { readSchema, type Type, within } from './cedar-schema.js';
import {
  budgetsRecord,
  type DeclaredFacts,
  declaredFacts,
  FACT_RULE,
  factsRecord,
  REQUIRED_FOR,
} from './cedar-context.js';
import { SCHEMA_FILE } from './policy-set.js';

let text: string | undefined;

/** The schema of the policy inputs that `callOf` in decide.ts builds, with these facts and counters. */
export async function inputSchema(
  facts: DeclaredFacts = new Map(),
  counters: Counters = {},
): Promise<string> {
  text ??= await readFile(join(packageRoot, 'policy', 'default', SCHEMA_FILE), 'utf8');
  return text
    .replace('facts: {}', `facts: ${factsRecord(facts)}`)
    .replace('budgets: {}', `budgets: ${budgetsRecord(counters)}`);
}

interface SchemaDifference {
  message: string;
  /**
   * True if the schema lacks an attribute that its parent has in every input. Cedar then rejects every
   * input with this parent.
   */
  rejectsInputs: boolean;
}

/**
 * The differences in meaning between a valid schema and {@link inputSchema}. Cedar accepts a rule
 * about anything that a schema declares, and silently skips the rule when no input contains it.
 */
export async function schemaDifferences(
  schema: string,
  counters?: Counters,
): Promise<SchemaDifference[]> {
  const inputs = declarationsOf(await inputSchema(declaredFacts(schema), counters));
  const declared = declarationsOf(schema);
  const differences: SchemaDifference[] = [];
  const add = (message: string, rejectsInputs = false): void =>
    void differences.push({ message, rejectsInputs });
  for (const name of [...new Set([...declared.keys(), ...inputs.keys()])].sort()) {
    const [found, contained] = [declared.get(name), inputs.get(name)];
    const parent = parentOf(name);
    const isReported = declared.has(parent) !== inputs.has(parent);
    if (found === contained || isReported) continue;
    if (found === undefined) {
      const isRequired = !contained?.startsWith('optional ');
      add(`${name} is not declared, but inputs contain it (${contained})`, isRequired);
    } else if (parent === FACTS) {
      add(`${name} is declared as ${found}: ${FACT_RULE}`);
    } else if (contained === undefined) {
      add(`${name} is declared, but no input contains it: ${contentsOf(parent, inputs)}`);
    } else {
      add(`${name} is declared as ${found}, but inputs contain it as ${contained}`);
    }
  }
  return differences;
}

const FACTS = 'context.facts';

/** Finds conditions that test for an attribute that no input has: under an {@link inputSchema}, they are never true. */
export function unknownAttributes(policies: PolicyFiles['policies'], schema: string) {
  const inputs = declarationsOf(schema);
  return Object.entries(policies).flatMap(([policyId, policy]) => {
    const answer = cedar.policyToJson(policy);
    if (answer.type !== 'success') return [];
    const { json } = answer;
    const messages = json.conditions
      .flatMap(({ body }) => testsIn(body as Expression))
      .flatMap((test) => {
        const path = testedPath(test);
        if (path === null) return isNeverTrue(schema, json, test) ? [unknownIn(test)] : [];
        if (inputs.has(path)) return [];
        return [`no input contains ${path}: ${contentsOf(parentOf(path), inputs)}`];
      });
    return [...new Set(messages)].map((message) => ({ policyId, message }));
  });
}

/** Entity types and actions by name, attributes by path, each with its type. */
type Declarations = Map<string, string>;

const EMPTY: Type = { type: 'Record' };

function declarationsOf(schema: string): Declarations {
  const { namespaces, resolve } = readSchema(schema);
  const declarations: Declarations = new Map();
  const declare = (path: string, use: Type): void => {
    const { required, type, element, attributes = {}, ...more } = resolve(use);
    declarations.set(path, `${required === false ? 'optional ' : ''}${type}${detail(more)}`);
    if (element !== undefined) declare(`${path}[]`, element);
    for (const [attribute, declared] of Object.entries(attributes)) {
      declare(`${path}.${segment(attribute)}`, declared);
    }
  };
  for (const [namespace, { entityTypes = {}, actions = {} }] of namespaces) {
    for (const [name, { shape = EMPTY, ...more }] of Object.entries(entityTypes)) {
      declare(within(namespace, name), { ...shape, ...more });
    }
    for (const [name, { appliesTo = {}, ...more }] of Object.entries(actions)) {
      const { context = EMPTY, ...scope } = appliesTo;
      const action = `${within(namespace, 'Action')}::"${name}"`;
      declarations.set(action, `action${detail({ ...more, ...scope })}`);
      declare(name === 'admit' ? 'context' : `context of ${action}`, context);
    }
  }
  return declarations;
}

/** Escapes the dots in an attribute name, because a dot separates the segments of a path. */
const segment = (attribute: string): string => attribute.replaceAll('.', '\\u002e');

/** The members that change the meaning of a declaration, except type and attributes, as text with sorted lists. */
function detail({ annotations, ...more }: Omit<Type, 'type'> & Record<string, unknown>): string {
  const requiredFor = annotations?.[REQUIRED_FOR];
  const members = Object.entries({
    ...more,
    ...(requiredFor !== undefined && { [REQUIRED_FOR]: requiredFor }),
  })
    .map(([name, value]) => {
      const items = Array.isArray(value)
        ? value.map((one) => JSON.stringify(one)).sort()
        : [JSON.stringify(value)];
      return `${name} ${items.join(', ')}`;
    })
    .sort();
  return members.length === 0 ? '' : ` (${members.join('; ')})`;
}

const parentOf = (path: string): string =>
  path.endsWith('[]') ? path.slice(0, -2) : path.slice(0, Math.max(0, path.lastIndexOf('.')));

function contentsOf(parent: string, inputs: Declarations): string {
  const names = [...inputs.keys()].filter((name) => parentOf(name) === parent).sort();
  const what = parent === '' ? 'inputs have' : `${parent} has`;
  return `${what} ${names.map((name) => name.slice(parent.length).replace(/^\./, '')).join(', ')}`;
}

/** An expression of Cedar's JSON format: an object with one member, its operator. */
type Expression = Record<string, unknown>;

const VARIABLES: Record<string, string> = {
  context: 'context',
  principal: 'Svc::Tenant',
  resource: 'Svc::Operation',
};

/** The parts of an expression that test for an attribute or a tag. */
function testsIn(expression: Expression): Expression[] {
  const [[operator, operands] = ['', null]] = Object.entries(expression);
  if (operator === 'Value' || typeof operands !== 'object' || operands === null) return [];
  const below = Object.values(operands)
    .filter((operand) => typeof operand === 'object' && operand !== null)
    .flatMap((operand) => (Array.isArray(operand) ? [] : testsIn(operand as Expression)));
  return operator === 'has' || operator === 'hasTag' ? [...below, expression] : below;
}

/**
 * Whether a policy tests for a tag (`hasTag`), or uses `has` on anything but a path from context, principal or
 * resource: both are slow to check.
 */
export function hasExpressionTests({ conditions }: cedar.PolicyJson): boolean {
  return conditions
    .flatMap(({ body }) => testsIn(body as Expression))
    .some((test) => testedPath(test) === null);
}

/** The path under test; null when the operand is another expression. */
function testedPath({ has }: Expression): string | null {
  if (has === undefined) return null;
  const { left, attr } = has as { left: Expression; attr: string | string[] };
  const path = pathOf(left);
  return path && [path, ...[attr].flat().map(segment)].join('.');
}

function unknownIn({ has }: Expression): string {
  if (has === undefined) return 'no input contains a tag: a test with hasTag is never true';
  const { attr } = has as { attr: string | string[] };
  return `no input contains ${[attr].flat().join('.')} in the expression that a rule tests for this attribute`;
}

/** An ill-typed expression, which the validator rejects wherever evaluation can reach it. */
const ILL_TYPED: Expression = { '!': { arg: { Value: 0 } } };

/**
 * Whether Cedar's validator finds that a test in a policy is never true. Replaces the branch after the
 * test by an ill-typed expression, which the validator accepts only if no input reaches this branch.
 */
function isNeverTrue(schema: string, policy: cedar.PolicyJson, test: Expression): boolean {
  const accepts = (replacement: Expression): boolean => {
    const answer = cedar.validate({
      validationSettings: { mode: 'strict' },
      schema,
      policies: { staticPolicies: { policy: replaced(policy, test, replacement) } },
    });
    return answer.type === 'success' && answer.validationErrors.length === 0;
  };
  const ifTrue = { if: test, then: ILL_TYPED, else: { Value: false } };
  return accepts({ 'if-then-else': ifTrue }) && !accepts(ILL_TYPED);
}

function replaced<T>(whole: T, part: Expression, replacement: Expression): T {
  const walk = (value: unknown): unknown => {
    if (value === part) return replacement;
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(walk);
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, walk(member)]));
  };
  return walk(whole) as T;
}

function pathOf(expression: Expression): string | null {
  if ('Var' in expression) return VARIABLES[String(expression['Var'])] ?? null;
  if (!('.' in expression)) return null;
  const { left, attr } = expression['.'] as { left: Expression; attr: string };
  const path = pathOf(left);
  return path && `${path}.${segment(attr)}`;
}
