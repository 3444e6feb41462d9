import * as z from 'zod';
import { formatTime } from '#protocol/time';
import { checkPolicyTexts, whyNotActivate, whyNotRun } from '#policy/check';
import { parsePolicyCases, PolicyCasesError, runPolicyCase } from '#policy/cases';
import { preparePolicyEngine } from '#policy/decide';
import { OperatorError } from '#runtime/process/operator-error';
import {
  activatePolicy,
  listPolicySets,
  policyActivations,
  storePolicySet,
  type PolicyActivation,
} from '#sql/admissions/policies';
import {
  readOperatorsFile,
  UsageError,
  type AddCommand,
  type Admin,
  type Outcome,
} from './command.js';
import {
  digestOf,
  folderTexts,
  namedSet,
  policyDiff,
  problemLine,
  setFromFolder,
  storedSet,
  textsOf,
} from './policy-sets.js';
import { table } from './print.js';

export function addPolicyCommands(add: AddCommand): void {
  add(
    'policy validate <folder>',
    'List the problems of a folder of Cedar policies, with file and line; needs no database',
    'policy/default',
    async (_admin, folder: string) => {
      const problems = await checkPolicyTexts(await folderTexts(folder));
      const failed = problems.some(({ severity }) => severity === 'error');
      return {
        document: { valid: !failed, problems },
        text: `${[...problems.map(problemLine), failed ? 'not valid' : 'valid'].join('\n')}\n`,
        failed,
      };
    },
  );
  add(
    'policy put <folder>',
    'Validate a folder of Cedar policies with its schema.cedarschema, and store it',
    'policies/2026-12',
    async ({ act }, folder: string) => {
      const set = await setFromFolder(folder);
      const stored = await act((tx) => storePolicySet(tx, set));
      return {
        document: { digest: digestOf(set), policies: Object.keys(set.files.policies), stored },
      };
    },
  );
  add(
    'policy test <folder|digest> <cases.json|cases.ndjson>',
    'Run a file of test cases against a set; fails unless every decision is as expected',
    'policy/default examples/policy-cases.json',
    testPolicy,
  );
  add(
    'policy activate <digest>',
    'Activate a stored set for admissions accepted from a time on',
    '5d41…c592 --from 2026-12-01T00:00:00Z',
    activate,
  ).option('--from <time>', 'RFC 3339, from now to a year ahead; now by default');
  add(
    'policy list',
    'List the stored sets, when each is active, and whether this version can run it',
    '',
    listPolicies,
  );
  add(
    'policy show <digest>',
    'Show the texts of a stored set',
    '5d41…c592',
    async (admin, digest: string) => {
      const set = await storedSet(admin, digest);
      return {
        document: { digest, manifest: JSON.parse(set.manifest) as unknown, ...set.files },
        text: [...textsOf(set)]
          .map(([name, text]) => `=== ${name}\n${text.trimEnd()}\n`)
          .join('\n'),
      };
    },
  );
  add(
    'policy diff <digest|folder> <digest|folder>',
    'Show the policies that the second set adds, removes and changes',
    '5d41…c592 policies/2026-12',
    async (admin, before: string, after: string) =>
      policyDiff(await namedSet(admin, before), await namedSet(admin, after)),
  );
}

async function testPolicy(admin: Admin, name: string, file: string): Promise<Outcome> {
  const cases = await readCases(file);
  const set = await namedSet(admin, name);
  const engine = await preparePolicyEngine(set);
  const results = cases.map((one) => runPolicyCase(engine, one));
  const failures = results.filter(({ passed }) => !passed).length;
  const reasonsText = (reasons: string[] | null): string =>
    reasons === null ? '' : ` [${reasons.join(', ')}]`;
  const rows = results.map(({ name, expected, decided, passed }) => ({
    result: passed ? 'pass' : 'FAIL',
    case: name,
    expected: expected.effect + reasonsText(expected.reasons),
    decided: decided.effect + reasonsText(decided.reasons),
  }));
  return {
    document: { digest: digestOf(set), cases: results.length, failures, results },
    text: `${table(rows)}${results.length} cases, ${failures} failed\n`,
    failed: failures > 0,
  };
}

async function readCases(file: string): Promise<ReturnType<typeof parsePolicyCases>> {
  const bytes = await readOperatorsFile(file);
  try {
    return parsePolicyCases(bytes);
  } catch (cause) {
    if (!(cause instanceof PolicyCasesError)) throw cause;
    throw new OperatorError(`${file}: ${cause.message}`, { cause });
  }
}

async function activate(
  admin: Admin,
  digest: string,
  options: { from?: string },
): Promise<Outcome> {
  const from = options.from === undefined ? null : activationTime(options.from);
  const set = await storedSet(admin, digest);
  // A set that this version cannot run would defer every admission accepted under it.
  const reason = await whyNotActivate(set);
  if (reason !== null) throw new OperatorError(`the set cannot be activated: ${reason}`);
  const activeFrom = await admin.act((tx) => activatePolicy(tx, set.digest, from));
  return { document: { digest, active_from: activeFrom } };
}

async function listPolicies({ database }: Admin): Promise<Outcome> {
  const sql = await database();
  const [sets, activations] = [await listPolicySets(sql), await policyActivations(sql)];
  const rows = [];
  for (const set of sets) {
    const own = activations.filter(({ digest }) => digest.equals(set.digest));
    const { engine, engine_version } = JSON.parse(set.manifest) as Record<string, string>;
    rows.push({
      digest: digestOf(set),
      state: stateOf(own),
      active_from: own.map(({ activeFrom }) => formatTime(activeFrom.getTime())),
      policies: Object.keys(set.files.policies).length,
      engine: `${engine} ${engine_version}`,
      cannot_run: await whyNotRun(set),
      stored_at: set.createdAt,
    });
  }
  return {
    document: rows,
    text: table(rows.map((row) => ({ ...row, cannot_run: row.cannot_run ? 'CANNOT RUN' : '' }))),
  };
}

function stateOf(activations: PolicyActivation[]): string {
  const states = activations.map(({ state }) => state);
  const current = (['in force', 'scheduled'] as const).find((state) => states.includes(state));
  return current ?? (states.length > 0 ? 'over' : 'stored');
}

const YEAR_MS = 366 * 86_400_000;

/**
 * An RFC 3339 time. A time far ahead is taken for a typing error, which would look like a completed
 * activation.
 */
function activationTime(text: string): Date {
  if (!z.iso.datetime({ offset: true }).safeParse(text).success) {
    throw new UsageError(`${text} is not an RFC 3339 time like 2026-12-01T00:00:00Z`);
  }
  const time = new Date(text);
  if (time.getTime() <= Date.now() + YEAR_MS) return time;
  throw new UsageError(`${text} is more than a year ahead: check the year`);
}
