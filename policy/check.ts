import { setImmediate } from 'node:timers/promises';
import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { utf8 } from '#protocol/bytes';
import type { Counters } from '#protocol/policy-input';
import { type PolicyFiles, type StoredPolicySet, readPolicySet } from '#sql/admissions/policies';
import type { Db } from '#sql/db/transaction';
import {
  counterFaults,
  type DeclaredFacts,
  declaredFacts,
  RESERVED_PREFIXES,
} from './cedar-context.js';
import { isOverlayId, OVERLAY_PREFIX, REQUIRES_RULE, unsoundRequirements } from './approval.js';
import { LOADED_SETS, preparePolicyEngine, type PolicyEngine } from './decide.js';
import {
  hasExpressionTests,
  inputSchema,
  schemaDifferences,
  unknownAttributes,
} from './input-schema.js';
import { COUNTERS_FILE, PolicySetError, SCHEMA_FILE } from './policy-set.js';

export interface PolicyProblem {
  file: string;
  /** Line number from 1; null when the problem concerns the whole file. */
  line: number | null;
  column: number | null;
  severity: 'error' | 'warning';
  message: string;
}

type PolicyTexts = Omit<PolicyFiles, 'sentences'>;

export const policyFile = (policyId: string): string => `${policyId}.cedar`;

/** All problems in the texts of a set, by file. A set without errors is usable. */
export async function checkPolicyTexts(texts: PolicyTexts): Promise<PolicyProblem[]> {
  const { schema, counters } = texts;
  const found: PolicyProblem[] = nulProblems(SCHEMA_FILE, schema);
  const parsed = cedar.checkParseSchema(schema);
  if (parsed.type !== 'success') {
    found.push(...parsed.errors.map((error) => problem(SCHEMA_FILE, schema, error)));
  }
  const policies: Record<string, string> = {};
  for (const [id, text] of Object.entries(texts.policies)) {
    const answer = cedar.policyToJson(text);
    const sentence = answer.type === 'success' ? answer.json.annotations?.['sentence'] : null;
    found.push(...nulProblems(policyFile(id), text, sentence));
    if (answer.type === 'success') policies[id] = text;
    else found.push(...answer.errors.map((error) => problem(policyFile(id), text, error)));
  }
  found.push(...unknownAnnotations(policies));
  // Checks the rules only under a readable schema: the facts of any other are unknown, so every rule about facts would
  // fail.
  if (parsed.type === 'success') {
    found.push(...asErrors(await ruleProblems(policies, declaredFacts(schema), counters)));
    const differences = await schemaDifferences(schema, counters);
    found.push(...differences.map(({ message }) => wholeFile(SCHEMA_FILE, 'error', message)));
  }
  const overlays = Object.keys(texts.policies).filter(isOverlayId);
  found.push(...overlays.map((id) => wholeFile(policyFile(id), 'error', OVERLAY_ID)));
  if (Object.keys(texts.policies).length === 0) {
    const message = 'the set has no policies, so it denies everything except outcomes';
    found.push(wholeFile(SCHEMA_FILE, 'warning', message));
  }
  return found.sort(
    (a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : 0) || (a.line ?? 0) - (b.line ?? 0),
  );
}

/** Reports unknown annotations, which Cedar ignores: a misspelled `@sentence` or `@requires` would have no effect. */
function unknownAnnotations(policies: PolicyFiles['policies']): PolicyProblem[] {
  return Object.entries(policies).flatMap(([id, text]) => {
    const answer = cedar.policyToJson(text);
    const names = Object.keys((answer.type === 'success' && answer.json.annotations) || {});
    return names
      .filter((name) => !ANNOTATIONS.includes(name))
      .map((name) => {
        const near = ANNOTATIONS.find((known) => known[0] === name[0]?.toLowerCase());
        const hint = near ? `did you mean @${near}?` : `use ${ANNOTATIONS.join(', ')} only`;
        return wholeFile(policyFile(id), 'error', `unknown annotation @${name}: ${hint}`);
      });
  });
}

const ANNOTATIONS = ['doc', 'requires', 'sentence'];

/** Reports U+0000, which PostgreSQL cannot store in text. */
const nulProblems = (file: string, ...texts: (string | null | undefined)[]): PolicyProblem[] =>
  texts.some((text) => text?.includes('\0') === true)
    ? [wholeFile(file, 'error', 'texts and sentences must not contain U+0000')]
    : [];

const OVERLAY_ID = `a policy id must not begin with ${OVERLAY_PREFIX}, which is reserved for the rules of tenants`;

/**
 * Yields to the event loop after each rule, because checking all of them takes tenths of a second.
 *
 * @param policies the rules by policy id; every id begins with {@link OVERLAY_PREFIX}
 */
export async function checkOverlay(
  base: PolicyFiles,
  policies: PolicyFiles['policies'],
): Promise<PolicyProblem[]> {
  const facts = declaredFacts(base.schema);
  const problems: PolicyProblem[] = [];
  for (const [id, text] of Object.entries(policies)) {
    const rule = { [id]: text };
    const own = overlayFormProblems(rule);
    if (own.length > 0) problems.push(...own);
    else {
      if (afterWildcards(cedar.policyToJson(text)) > MOST_AFTER_WILDCARDS) {
        problems.push(wholeFile(policyFile(id), 'error', TOO_SLOW));
      }
      problems.push(...(await ruleProblems(rule, facts, base.counters)));
    }
    await setImmediate();
  }
  return problems;
}

/**
 * Limits patterns. `like` compares the pattern after a wildcard at every position of a text. Without a limit, one rule
 * can make a decision fifty times slower, and a decision under the append lock delays every tenant.
 */
const MOST_AFTER_WILDCARDS = 100;
const TOO_SLOW = `the patterns of a rule may have at most ${MOST_AFTER_WILDCARDS} characters and wildcards in total after the first wildcard of each pattern`;

function afterWildcards(part: unknown): number {
  if (typeof part !== 'object' || part === null) return 0;
  const pattern = 'pattern' in part && Array.isArray(part.pattern) ? part.pattern : [];
  const first = pattern.indexOf('Wildcard');
  const own = first === -1 ? 0 : pattern.length - first - 1;
  return Object.values(part).reduce<number>((sum, below) => sum + afterWildcards(below), own);
}

/** Limits of a rule: Cedar parses recursively, and a stack overflow corrupts its memory until the process ends. */
const MOST_BRACKETS = 48;
const MOST_OPERATORS = 128;
const MOST_CHARACTERS = 2_000;
const TOO_COMPLEX = `a rule of an overlay may have at most ${MOST_CHARACTERS} characters, ${MOST_BRACKETS} opening brackets and ${MOST_OPERATORS} operators, including those in strings`;

function isTooComplex(text: string): boolean {
  const brackets = text.match(/[([{]/g) ?? [];
  const operators = text.match(/&&|\|\||[<>=!]=?|[-+*.]|\b(?:if|has|hasTag|in|is|like)\b/g) ?? [];
  return (
    text.length > MOST_CHARACTERS ||
    brackets.length > MOST_BRACKETS ||
    operators.length > MOST_OPERATORS
  );
}

/** The errors of a tenant's rules that do not depend on the policy set. */
export function overlayFormProblems(policies: PolicyFiles['policies']): PolicyProblem[] {
  return Object.entries(policies).flatMap(([id, text]) => {
    const error = (message: string) => wholeFile(policyFile(id), 'error', message);
    if (isTooComplex(text)) return [error(TOO_COMPLEX)];
    const answer = cedar.policyToJson(text);
    if (answer.type !== 'success') {
      return answer.errors.map((one) => problem(policyFile(id), text, one));
    }
    const { annotations = {}, effect } = answer.json;
    const others = Object.keys(annotations).filter((name) => name !== 'sentence');
    return [
      ...(effect === 'forbid' ? [] : [error('a rule of an overlay can only forbid')]),
      ...others.map((name) => error(`the annotation @${name} is not allowed in an overlay`)),
      ...nulProblems(policyFile(id), annotations['sentence']),
      ...(hasExpressionTests(answer.json)
        ? [
            error(
              'use `has` only for attributes of context, principal or resource, and do not use `hasTag`',
            ),
          ]
        : []),
    ];
  });
}

/** Validates rules against the schema of real inputs, because the set's schema may declare more. */
async function ruleProblems(
  policies: PolicyFiles['policies'],
  facts?: DeclaredFacts,
  counters: Counters = {},
): Promise<PolicyProblem[]> {
  const schema = await inputSchema(facts, counters);
  const answer = cedar.validate({
    validationSettings: { mode: 'strict' },
    schema,
    policies: { staticPolicies: policies },
  });
  if (answer.type !== 'success') {
    return answer.errors.map((error) => problem(SCHEMA_FILE, schema, error));
  }
  const of = ({ policyId, error }: cedar.ValidationError): PolicyProblem =>
    problem(policyFile(policyId), policies[policyId] ?? '', error);
  return [
    ...answer.validationErrors.map(of),
    ...answer.validationWarnings.map(of).map((one) => ({ ...one, severity: 'warning' as const })),
    ...unknownAttributes(policies, schema).map(({ policyId, message }) =>
      wholeFile(policyFile(policyId), 'error', message),
    ),
    ...Object.keys(policies)
      .filter((id) => RESERVED_PREFIXES.some((prefix) => id.startsWith(prefix)))
      .map((id) => wholeFile(policyFile(id), 'error', RESERVED_ID)),
    ...unsoundRequirements(policies).map((id) => wholeFile(policyFile(id), 'error', REQUIRES_RULE)),
    ...counterFaults(counters, facts ?? new Map()).map((fault) =>
      wholeFile(COUNTERS_FILE, 'error', fault),
    ),
  ];
}

const RESERVED_ID = `a policy id must not begin with ${RESERVED_PREFIXES.join(' or ')}: these prefixes are reserved for reasons that are not policies`;

const wholeFile = (
  file: string,
  severity: PolicyProblem['severity'],
  message: string,
): PolicyProblem => ({ file, line: null, column: null, severity, message });

function problem(file: string, text: string, error: cedar.DetailedError): PolicyProblem {
  const [location] = error.sourceLocations ?? [];
  const details = [error.message, location?.label, error.help].filter(Boolean);
  return {
    file,
    ...(location === undefined ? { line: null, column: null } : placeOf(text, location.start)),
    severity: 'error',
    message: details.join('; '),
  };
}

/** The line and column of a Cedar offset, which counts bytes of UTF-8. */
function placeOf(text: string, offset: number): { line: number; column: number } {
  const before = Buffer.from(utf8(text).subarray(0, offset)).toString('utf8').split('\n');
  return { line: before.length, column: Array.from(before.at(-1) ?? '').length + 1 };
}

/**
 * Rejects a rule about something that no input contains. The set's schema may differ from the input schema
 * if no rule depends on the difference and Cedar accepts the inputs.
 */
async function openPolicySet(stored: StoredPolicySet): Promise<PolicyEngine> {
  const all = Object.entries(stored.files.policies);
  // Checks stored overlays again, because a compromised engine could store a `permit`.
  rejectErrors(overlayFormProblems(Object.fromEntries(all.filter(([id]) => isOverlayId(id)))));
  const engine = await preparePolicyEngine(stored);
  const { schema, policies, counters } = stored.files;
  const problems = await ruleProblems(policies, declaredFacts(schema), counters);
  rejectErrors(problems);
  const differences = await schemaDifferences(schema, counters);
  rejectSchema(differences.filter(({ rejectsInputs }) => rejectsInputs));
  return engine;
}

/** Warnings reject only a new set: a set in use continues to decide when an upgrade of Cedar adds warnings. */
const asErrors = (problems: PolicyProblem[]): PolicyProblem[] =>
  problems.map((one) => ({ ...one, severity: 'error' }));

function rejectErrors(problems: PolicyProblem[]): void {
  const errors = problems.filter(({ severity }) => severity === 'error');
  if (errors.length === 0) return;
  throw new PolicySetError(errors.map(({ file, message }) => `${file}: ${message}`).join('; '));
}

function rejectSchema(differences: { message: string }[]): void {
  if (differences.length === 0) return;
  throw new PolicySetError(differences.map(({ message }) => message).join('; '));
}

export function whyNotRun(stored: StoredPolicySet): Promise<string | null> {
  return reasonOf(() => openPolicySet(stored));
}

export function whyNotActivate(stored: StoredPolicySet): Promise<string | null> {
  return reasonOf(async () => {
    await openPolicySet(stored);
    const { schema, counters, policies } = stored.files;
    if (Object.keys(policies).some(isOverlayId)) throw new PolicySetError(OVERLAY_ID);
    rejectErrors(unknownAnnotations(policies));
    rejectErrors(asErrors(await ruleProblems(policies, declaredFacts(schema), counters)));
    rejectSchema(await schemaDifferences(schema, counters));
  });
}

async function reasonOf(check: () => Promise<unknown>): Promise<string | null> {
  try {
    await check();
    return null;
  } catch (error) {
    if (error instanceof PolicySetError) return error.message;
    throw error;
  }
}

/** Caches prepared policy sets by digest. A set never changes, so the cache evicts only the least recently used set. */
export function policyCache(sql: Db): (digest: Buffer) => Promise<PolicyEngine> {
  const engines = new Map<string, Promise<PolicyEngine>>();
  return (digest) => {
    const name = digest.toString('hex');
    const known = engines.get(name);
    engines.delete(name);
    if (engines.size >= LOADED_SETS) engines.delete(engines.keys().next().value!);
    const engine =
      known ??
      readPolicySet(sql, digest).then((stored) => {
        if (stored !== null) return openPolicySet(stored);
        throw new PolicySetError(`policy set ${name} is not stored`);
      });
    engines.set(name, engine);
    // Failures are not cached: the database may be unavailable for a moment.
    if (known === undefined) engine.catch(() => engines.delete(name));
    return engine;
  };
}
