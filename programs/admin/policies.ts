import { toHex } from '#protocol/bytes';
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
import { UsageError, type Command } from './command.js';
import { readOperatorsFile } from './files.js';
import { policyDiff } from './policy-diff.js';
import {
  digestOf,
  folderTexts,
  namedSet,
  problemLine,
  setFromFolder,
  storedSet,
} from './policy-source.js';
import { table } from './print.js';

export const policyCommands: Command[] = [
  {
    name: 'policy validate',
    takes: ['<folder>'],
    help: 'list the problems of a folder of Cedar policies, with file and line; needs no database',
    example: 'policy validate policy/default',
    run: async (_admin, given) => {
      const problems = await checkPolicyTexts(await folderTexts(given.argument(0)));
      const failed = problems.some(({ severity }) => severity === 'error');
      return {
        document: { valid: !failed, problems },
        text: `${[...problems.map(problemLine), failed ? 'not valid' : 'valid'].join('\n')}\n`,
        failed,
      };
    },
  },
  {
    name: 'policy put',
    takes: ['<folder>'],
    help: 'validate a folder of Cedar policies with its schema.cedarschema, and store it',
    example: 'policy put policies/2026-12',
    run: async (admin, given) => {
      const set = await setFromFolder(given.argument(0));
      const stored = await admin.act((tx) => storePolicySet(tx, set));
      return {
        document: { digest: digestOf(set), policies: Object.keys(set.files.policies), stored },
      };
    },
  },
  {
    name: 'policy test',
    takes: ['<folder|digest>', '<cases.json|cases.ndjson>'],
    help: 'run a file of test cases against a set; fails unless every decision is as expected',
    example: 'policy test policy/default examples/policy-cases.json',
    run: async (admin, given) => {
      const cases = await readCases(given.argument(1));
      const set = await namedSet(admin, given.argument(0));
      const engine = await preparePolicyEngine(set);
      const results = cases.map((one) => runPolicyCase(engine, one));
      const failures = results.filter(({ passed }) => !passed).length;
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
    },
  },
  {
    name: 'policy activate',
    takes: ['<digest>'],
    options: {
      from: { value: 'time', help: 'RFC 3339, from now to a year ahead; now by default' },
    },
    help: 'activate a stored set for admissions accepted from a time on',
    example: 'policy activate 5d41…c592 --from 2026-12-01T00:00:00Z',
    run: async (admin, given) => {
      const said = given.option('from');
      const from = said === undefined ? null : activationTime(said);
      const set = await storedSet(admin, given.argument(0));
      // A set that this version cannot run would defer every admission accepted under it.
      const reason = await whyNotActivate(set);
      if (reason !== null) throw new OperatorError(`the set cannot be activated: ${reason}`);
      const activeFrom = await admin.act((tx) => activatePolicy(tx, set.digest, from));
      return { document: { digest: digestOf(set), active_from: activeFrom } };
    },
  },
  {
    name: 'policy list',
    takes: [],
    help: 'list the stored sets, when each is active, and whether this version can run it',
    example: 'policy list',
    run: async (admin) => {
      const sql = await admin.database();
      const [sets, activations] = [await listPolicySets(sql), await policyActivations(sql)];
      const rows = [];
      for (const set of sets) {
        const own = activations.filter(({ digest }) => digest.equals(set.digest));
        rows.push({
          digest: digestOf(set),
          state: stateOf(own),
          active_from: own.map(({ activeFrom }) => formatTime(activeFrom.getTime())),
          policies: Object.keys(set.files.policies).length,
          engine: engineOf(set.manifest),
          cannot_run: await whyNotRun(set),
          stored_at: set.createdAt,
        });
      }
      return {
        document: rows,
        text: table(
          rows.map((row) => ({ ...row, cannot_run: row.cannot_run ? 'CANNOT RUN' : '' })),
        ),
      };
    },
  },
  {
    name: 'policy show',
    takes: ['<digest>'],
    help: 'show the texts of a stored set',
    example: 'policy show 5d41…c592',
    run: async (admin, given) => {
      const { manifest, files, digest } = await storedSet(admin, given.argument(0));
      const texts = [
        ['schema.cedarschema', files.schema] as const,
        ...Object.entries(files.policies).map(([id, text]) => [`${id}.cedar`, text] as const),
      ];
      return {
        document: { digest: toHex(digest), manifest: JSON.parse(manifest) as unknown, ...files },
        text: texts.map(([name, text]) => `=== ${name}\n${text.trimEnd()}\n`).join('\n'),
      };
    },
  },
  {
    name: 'policy diff',
    takes: ['<digest|folder>', '<digest|folder>'],
    help: 'show the policies that the second set adds, removes and changes',
    example: 'policy diff 5d41…c592 policies/2026-12',
    run: async (admin, given) => {
      const [before, after] = [
        await namedSet(admin, given.argument(0)),
        await namedSet(admin, given.argument(1)),
      ];
      return policyDiff(before, after);
    },
  },
];

async function readCases(file: string): Promise<ReturnType<typeof parsePolicyCases>> {
  const bytes = await readOperatorsFile(file);
  try {
    return parsePolicyCases(bytes);
  } catch (error) {
    if (!(error instanceof PolicyCasesError)) throw error;
    throw new OperatorError(`${file}: ${error.message}`, { cause: error });
  }
}

const reasonsText = (reasons: string[] | null): string =>
  reasons === null ? '' : ` [${reasons.join(', ')}]`;

function stateOf(activations: PolicyActivation[]): string {
  const states = activations.map(({ state }) => state);
  for (const state of ['in force', 'scheduled'] as const) {
    if (states.includes(state)) return state;
  }
  return states.length > 0 ? 'over' : 'stored';
}

function engineOf(manifest: string): string {
  const { engine, engine_version } = JSON.parse(manifest) as Record<string, string>;
  return `${engine} ${engine_version}`;
}

const RFC_3339 =
  /^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,3}))?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;
const YEAR_MS = 366 * 86_400_000;

/**
 * An RFC 3339 time. A time far ahead is taken for a typing error, which would look like a completed
 * activation.
 */
function activationTime(text: string): Date {
  const [match, local = '', fraction = '', zone = ''] = RFC_3339.exec(text) ?? [];
  const epochMs =
    match === undefined ? NaN : Date.parse(`${local}.${fraction.padEnd(3, '0')}${zone}`);
  // Date rolls 30 February over to March; formatting it again detects that.
  if (Number.isNaN(epochMs) || !new Date(`${local}Z`).toISOString().startsWith(local)) {
    throw new UsageError(`${text} is not an RFC 3339 time like 2026-12-01T00:00:00Z`);
  }
  if (epochMs > Date.now() + YEAR_MS) {
    throw new UsageError(`${text} is more than a year ahead: check the year`);
  }
  return new Date(epochMs);
}
