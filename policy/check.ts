import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { utf8 } from '#protocol/bytes';
import type { PolicyFiles, StoredPolicySet } from '#sql/policies';
import { preparePolicyEngine } from './decide.js';
import type { PolicyInput } from './input.js';
import { makePolicySet, PolicySetError, SCHEMA_FILE } from './policy-set.js';

export interface PolicyProblem {
  /** The file that it is in. */
  file: string;
  /** From 1; null when it is about the whole file. */
  line: number | null;
  column: number | null;
  severity: 'error' | 'warning';
  message: string;
}

type PolicyTexts = Pick<PolicyFiles, 'schema' | 'policies'>;

export const policyFile = (policyId: string): string => `${policyId}.cedar`;

/** Everything that Cedar finds in the texts of a set, file by file. Without errors it can be used. */
export async function checkPolicyTexts(texts: PolicyTexts): Promise<PolicyProblem[]> {
  const { schema } = texts;
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
  // What parses is judged also when something else does not, so that one round shows everything.
  if (parsed.type === 'success') found.push(...(await againstSchema({ schema, policies })));
  if (Object.keys(texts.policies).length === 0) {
    const message = 'there is no policy, so everything is denied';
    found.push({ file: SCHEMA_FILE, line: null, column: null, severity: 'warning', message });
  }
  return found.sort(
    (a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : 0) || (a.line ?? 0) - (b.line ?? 0),
  );
}

async function againstSchema({ schema, policies }: PolicyTexts): Promise<PolicyProblem[]> {
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
    ...(await unfitRequests(schema)),
  ];
}

const COMMON = {
  schema_version: 'svc.policy.input/1.0',
  tenant: { tenant_id: 'acme', environment: 'sandbox' },
  environment: 'sandbox',
  action: 'ANY',
  agent: null,
  tool: null,
  fixture: null,
} as const;
const agent = { id: 'agent', framework: 'framework' };
const hash = '0'.repeat(64);

const SHAPES: [string, PolicyInput][] = [
  ['execute requests', { ...COMMON, lane: 'execute' }],
  ['execute requests with a fixture', { ...COMMON, lane: 'execute', fixture: { ref: 'f', hash } }],
  ['agent admissions', { ...COMMON, lane: 'agent', agent }],
  ['agent admissions with a tool', { ...COMMON, lane: 'agent', agent, tool: 'tool' }],
];

/** A request that does not fit the schema is denied whatever the policies say: likely a slip. */
async function unfitRequests(schema: string): Promise<PolicyProblem[]> {
  const permitsAll = { anything: 'permit (principal, action, resource);' };
  let engine;
  try {
    engine = await preparePolicyEngine(
      await makePolicySet({ schema, policies: permitsAll, sentences: {} }),
    );
  } catch (error) {
    if (error instanceof PolicySetError) return [];
    throw error;
  }
  return SHAPES.filter(([, input]) => engine.decide(input).effect !== 'ADMIT').map(([what]) => ({
    file: SCHEMA_FILE,
    line: null,
    column: null,
    severity: 'warning',
    message: `${what} do not fit this schema, so all of them are denied`,
  }));
}

function problem(file: string, text: string, error: cedar.DetailedError): PolicyProblem {
  const [location] = error.sourceLocations ?? [];
  const details = [error.message, location?.label ?? '', error.help ?? ''].filter(
    (part) => part !== '',
  );
  return {
    file,
    ...(location === undefined ? { line: null, column: null } : placeOf(text, location.start)),
    severity: 'error',
    message: details.join('; '),
  };
}

/** Cedar counts bytes of UTF-8. */
function placeOf(text: string, offset: number): { line: number; column: number } {
  const before = Buffer.from(utf8(text).subarray(0, offset)).toString('utf8').split('\n');
  return { line: before.length, column: Array.from(before.at(-1) ?? '').length + 1 };
}

/** Why this process cannot run a stored set; null when it can. */
export async function whyNotRun(stored: StoredPolicySet): Promise<string | null> {
  try {
    await preparePolicyEngine(stored);
    return null;
  } catch (error) {
    if (error instanceof PolicySetError) return error.message;
    throw error;
  }
}
