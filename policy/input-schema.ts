import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { packageRoot } from '#runtime/package-root';
import type { PolicyFiles } from '#sql/policies';
import { PolicySetError, SCHEMA_FILE } from './policy-set.js';

let text: string | undefined;

/** The schema of policy inputs, which the service owns: `callFor` in decide.ts fills it. */
export async function inputSchema(): Promise<string> {
  text ??= await readFile(join(packageRoot, 'policy', 'default', SCHEMA_FILE), 'utf8');
  return text;
}

/**
 * Where a schema that parses differs in meaning from {@link inputSchema}. Cedar accepts a rule about
 * whatever a schema declares, and skips it in silence when no input contains that.
 */
export async function schemaDifferences(schema: string): Promise<string[]> {
  const inputs = declarationsOf(await inputSchema());
  const declared = declarationsOf(schema);
  const differences: string[] = [];
  for (const name of [...new Set([...declared.keys(), ...inputs.keys()])].sort()) {
    const [found, contained] = [declared.get(name), inputs.get(name)];
    const parent = parentOf(name);
    const isReported = declared.has(parent) !== inputs.has(parent);
    if (found === contained || isReported) continue;
    if (found === undefined) {
      differences.push(`${name} is not declared, but inputs contain it (${contained})`);
    } else if (contained === undefined) {
      differences.push(
        `${name} is declared, but no input contains it: ${contentsOf(parent, inputs)}`,
      );
    } else {
      differences.push(`${name} is declared as ${found}, but inputs contain it as ${contained}`);
    }
  }
  return differences;
}

/** The policies that test with `has` for an attribute that no input contains: a rule that never applies. */
export async function unknownAttributes(
  policies: PolicyFiles['policies'],
): Promise<{ policyId: string; message: string }[]> {
  const inputs = declarationsOf(await inputSchema());
  return Object.entries(policies).flatMap(([policyId, policy]) => {
    const answer = cedar.policyToJson(policy);
    if (answer.type !== 'success') return [];
    const tested = answer.json.conditions.flatMap(({ body }) => testedBy(body as Expression));
    return [...new Set(tested)]
      .filter((name) => !inputs.has(name))
      .map((name) => ({
        policyId,
        message: `no input contains ${name}: ${contentsOf(parentOf(name), inputs)}`,
      }));
  });
}

/** Entity types and actions by name, attributes by path, each with its type. */
type Declarations = Map<string, string>;

interface Type {
  type: string;
  required?: boolean;
  element?: Type;
  attributes?: Record<string, Type>;
}

interface Namespace {
  commonTypes?: Record<string, Type>;
  entityTypes?: Record<string, { shape?: Type }>;
  actions?: Record<string, { appliesTo?: { context?: Type } }>;
}

const EMPTY: Type = { type: 'Record' };

function declarationsOf(schema: string): Declarations {
  const answer = cedar.schemaToJsonWithResolvedTypes(schema);
  if (answer.type !== 'success') {
    throw new PolicySetError(answer.errors.map(({ message }) => message).join('; '));
  }
  const namespaces = Object.entries(answer.json as unknown as Record<string, Namespace>);
  const common = new Map<string, Type>();
  for (const [namespace, { commonTypes = {} }] of namespaces) {
    for (const [name, type] of Object.entries(commonTypes))
      common.set(within(namespace, name), type);
  }
  const declarations: Declarations = new Map();
  const declare = (path: string, { required, ...use }: Type): void => {
    const aliased = common.get(use.type);
    if (aliased !== undefined) {
      declare(path, required === undefined ? aliased : { ...aliased, required });
      return;
    }
    const { type: name, element, attributes = {}, ...more } = use;
    const type = name.replace('__cedar::', '');
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

/** An attribute may have any name; a point in one must not read as a path. */
const segment = (attribute: string): string => attribute.replaceAll('.', '\\u002e');

const within = (namespace: string, name: string): string =>
  namespace === '' ? name : `${namespace}::${name}`;

/** Everything else that a declaration has and that means something: not the order of lists. */
function detail(more: Record<string, unknown>): string {
  const members = Object.entries(more)
    .filter(([name]) => name !== 'annotations')
    .map(([name, value]) => {
      const items = Array.isArray(value)
        ? value.map((one) => JSON.stringify(one)).sort()
        : [JSON.stringify(value)];
      return `${name} ${items.join(', ')}`;
    })
    .sort();
  return members.length === 0 ? '' : ` (${members.join('; ')})`;
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('.')));

function contentsOf(parent: string, inputs: Declarations): string {
  const names = [...inputs.keys()].filter((name) => parentOf(name) === parent).sort();
  const what = parent === '' ? 'inputs have' : `${parent} has`;
  return `${what} ${names.map((name) => name.slice(parent.length).replace(/^\./, '')).join(', ')}`;
}

/** An expression of Cedar's JSON format: an object of one member, its operator. */
type Expression = Record<string, unknown>;

/** Where the variables of a policy are declared. */
const VARIABLES: Record<string, string> = {
  context: 'context',
  principal: 'Svc::Tenant',
  resource: 'Svc::Operation',
};

/** The paths that an expression tests with `has`. */
function testedBy(expression: Expression): string[] {
  const [[operator, operands] = ['', null]] = Object.entries(expression);
  if (operator === 'Value' || typeof operands !== 'object' || operands === null) return [];
  const below = Object.values(operands)
    .filter((operand) => typeof operand === 'object' && operand !== null)
    .flatMap((operand) => (Array.isArray(operand) ? [] : testedBy(operand as Expression)));
  if (operator !== 'has') return below;
  const { left, attr } = operands as { left: Expression; attr: string | string[] };
  const path = pathOf(left);
  return path === null ? below : [...below, [path, ...[attr].flat().map(segment)].join('.')];
}

function pathOf(expression: Expression): string | null {
  if ('Var' in expression) return VARIABLES[String(expression['Var'])] ?? null;
  if (!('.' in expression)) return null;
  const { left, attr } = expression['.'] as { left: Expression; attr: string };
  const path = pathOf(left);
  return path && `${path}.${segment(attr)}`;
}
