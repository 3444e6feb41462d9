import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { decimalUnits, isDecimal } from '#protocol/schemas/facts';
import type { PolicyFiles } from '#sql/admissions/policies';

/** How policies use an attribute: its whole value, comparisons with literals, or only its presence. */
interface Use {
  path: string[];
  isWhole: boolean;
  /** The literals that policies compare the attribute with, as {@link literalIn} returns them. */
  literals: Set<bigint>;
}

/** Everything in the context on which the decisions of a policy set depend. */
export type ContextUses = readonly Use[];

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
