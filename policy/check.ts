import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { utf8 } from '#protocol/bytes';
import type { Counters } from '#protocol/counters';
import { type PolicyFiles, type StoredPolicySet, readPolicySet } from '#sql/admissions/policies';
import type { Db } from '#sql/db/transaction';
import { counterFaults } from './counters.js';
import { preparePolicyEngine, type PolicyEngine } from './decide.js';
import { type DeclaredFacts, declaredFacts, RESERVED_PREFIXES } from './facts.js';
import { inputSchema, schemaDifferences, unknownAttributes } from './input-schema.js';
import { COUNTERS_FILE, PolicySetError, SCHEMA_FILE } from './policy-set.js';

export interface PolicyProblem {
  file: string;
  /** From 1; null when the problem concerns the whole file. */
  line: number | null;
  column: number | null;
  severity: 'error' | 'warning';
  message: string;
}

type PolicyTexts = Omit<PolicyFiles, 'sentences'>;

export const policyFile = (policyId: string): string => `${policyId}.cedar`;

/** All problems that Cedar finds in the texts of a set, by file. A set without errors is usable. */
export async function checkPolicyTexts(texts: PolicyTexts): Promise<PolicyProblem[]> {
  const { schema, counters } = texts;
  const found: PolicyProblem[] = [];
  const parsed = cedar.checkParseSchema(schema);
  if (parsed.type !== 'success') {
    found.push(...parsed.errors.map((error) => problem(SCHEMA_FILE, schema, error)));
  }
  const policies: Record<string, string> = {};
  for (const [id, text] of Object.entries(texts.policies)) {
    const answer = cedar.policyToJson(text);
    if (answer.type === 'success') policies[id] = text;
    else found.push(...answer.errors.map((error) => problem(policyFile(id), text, error)));
  }
  // Runs even when the schema is wrong, so that one run reports everything.
  const facts = parsed.type === 'success' ? declaredFacts(schema) : undefined;
  found.push(...(await ruleProblems(policies, facts, counters)));
  if (parsed.type === 'success') {
    const differences = await schemaDifferences(schema, counters);
    found.push(...differences.map(({ message }) => wholeFile(SCHEMA_FILE, 'error', message)));
  }
  if (Object.keys(texts.policies).length === 0) {
    const message = 'the set has no policies, so it denies everything except outcomes';
    found.push(wholeFile(SCHEMA_FILE, 'warning', message));
  }
  return found.sort(
    (a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : 0) || (a.line ?? 0) - (b.line ?? 0),
  );
}

/**
 * Checks the policies against the schema of real inputs, not their own schema: other rules would
 * never apply.
 */
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
    ...counterFaults(counters, facts ?? new Map()).map((fault) =>
      wholeFile(COUNTERS_FILE, 'error', fault),
    ),
  ];
}

const RESERVED_ID = `a policy id must not begin with ${RESERVED_PREFIXES.join(' or ')}: the engine uses these prefixes for its own reasons`;

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

/** Cedar offsets count bytes of UTF-8. */
function placeOf(text: string, offset: number): { line: number; column: number } {
  const before = Buffer.from(utf8(text).subarray(0, offset)).toString('utf8').split('\n');
  return { line: before.length, column: Array.from(before.at(-1) ?? '').length + 1 };
}

/**
 * Prepares a stored set that this process can run. Rejects a rule about something that no input
 * contains; the schema may differ from the input schema if no rule depends on the difference and
 * Cedar accepts the inputs.
 *
 * @throws PolicySetError
 */
async function openPolicySet(stored: StoredPolicySet): Promise<PolicyEngine> {
  const engine = await preparePolicyEngine(stored);
  const { schema, policies, counters } = stored.files;
  const problems = await ruleProblems(policies, declaredFacts(schema), counters);
  const errors = problems.filter(({ severity }) => severity === 'error');
  if (errors.length > 0) {
    throw new PolicySetError(errors.map(({ file, message }) => `${file}: ${message}`).join('; '));
  }
  const differences = await schemaDifferences(schema, counters);
  rejectSchema(differences.filter(({ rejectsInputs }) => rejectsInputs));
  return engine;
}

function rejectSchema(differences: { message: string }[]): void {
  if (differences.length === 0) return;
  throw new PolicySetError(differences.map(({ message }) => message).join('; '));
}

/** Why this process cannot run a stored set, or null. */
export function whyNotRun(stored: StoredPolicySet): Promise<string | null> {
  return reasonOf(() => openPolicySet(stored));
}

/** Why a stored set must not be activated, or null. */
export function whyNotActivate(stored: StoredPolicySet): Promise<string | null> {
  return reasonOf(async () => {
    await openPolicySet(stored);
    const { schema, counters } = stored.files;
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

/** Prepared policy sets by digest. Policy sets are immutable, so entries never expire. */
export function policyCache(sql: Db): (digest: Buffer) => Promise<PolicyEngine> {
  const engines = new Map<string, Promise<PolicyEngine>>();
  return (digest) => {
    const name = digest.toString('hex');
    const known = engines.get(name);
    if (known !== undefined) return known;
    const engine = readPolicySet(sql, digest).then((stored) => {
      if (stored !== null) return openPolicySet(stored);
      throw new PolicySetError(`policy set ${name} is not stored`);
    });
    engines.set(name, engine);
    // Failures are not cached: the database may be unavailable for a moment.
    engine.catch(() => engines.delete(name));
    return engine;
  };
}
