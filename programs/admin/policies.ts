import { stat } from 'node:fs/promises';
import * as z from 'zod';
import {
  type CaseResult,
  coverageOf,
  parsePolicyCases,
  PolicyCasesError,
  runPolicyCase,
  namedActions,
  whyNotCovered,
} from '#policy/cases';
import {
  checkPolicyTexts,
  whyNotActivate,
  whyNotRun,
  policyFile,
  type PolicyProblem,
} from '#policy/check';
import { preparePolicyEngine } from '#policy/decide';
import { activateWithOverlays, combine, storedSetOf } from '#policy/overlays';
import {
  COUNTERS_FILE,
  makePolicySet,
  readPolicyFolder,
  readPolicyTexts,
  readRules,
  SCHEMA_FILE,
} from '#policy/policy-set';
import { toHex } from '#protocol/bytes';
import { HASH_PATTERN } from '#protocol/schemas/primitives';
import { formatTime } from '#protocol/time';
import { OperatorError } from '#runtime/process/operator-error';
import {
  listPolicySets,
  policyActivations,
  storePolicySet,
  type PolicyActivation,
  readPolicySet,
  type PolicyFiles,
  type StoredPolicySet,
} from '#sql/admissions/policies';
import { AdministrationError } from '#sql/tenants/audit';
import { simulate } from './simulate.js';
import {
  readOperatorsFile,
  UsageError,
  type AddCommand,
  type Admin,
  Outcome,
  table,
  reading,
} from './command.js';

export function addPolicyCommands(add: AddCommand): void {
  add(
    'policy validate <folder>',
    'List the problems of a folder of Cedar policies, with file and line; needs no database',
    'policy/default',
    async (_admin, folder: string) => {
      const problems = await checkPolicyTexts(await folderTexts(folder));
      const failed = problems.some(({ severity }) => severity === 'error');
      const lines = [...problems.map(problemLine), failed ? 'not valid' : 'valid'];
      return new Outcome({ valid: !failed, problems }, { text: `${lines.join('\n')}\n`, failed });
    },
  );
  add(
    'policy put <folder>',
    'Validate a folder of Cedar policies with its schema.cedarschema, and store it',
    'policies/2026-12',
    async ({ act }, folder: string) => {
      const set = await setFromFolder(folder);
      const stored = await act((tx) => storePolicySet(tx, set));
      return { digest: digestOf(set), policies: Object.keys(set.files.policies), stored };
    },
  );
  add(
    'policy test <folder|digest> <cases.json|cases.ndjson>',
    'Run a file of test cases against a set, and fail unless every decision is as expected',
    'policy/default examples/policy-cases.json',
    testPolicy,
  ).option(
    '--overlay <folder>',
    'a folder of a tenant’s rules to add to the set, as for svc overlay put',
  );
  add(
    'policy activate <digest>',
    'Activate a stored policy set for admissions accepted at or after a given time',
    '5d41…c592 --cases cases.json --from 2026-12-01T00:00:00Z',
    activate,
  )
    .requiredOption('--cases <file>', 'test cases, which must pass and cover every rule')
    .option(
      '--from <time>',
      'activate at this time, RFC 3339, from now to a year ahead; now by default',
    );
  add(
    'policy simulate <folder|digest>',
    'Evaluate the stored admissions of a period under a set, and list the differences',
    'policies/2026-12 --since 7d',
    async (admin, name: string, options: { since: string; changes?: string }) =>
      simulate(admin, await namedSet(admin, name), options),
  )
    .requiredOption('--since <period>', 'how far back, by acceptance time, such as 90m, 12h or 7d')
    .option('--changes <file>', 'write all differences to this new file, one JSON object per line');
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
      const texts = [...textsOf(set)].map(([name, text]) => `=== ${name}\n${text.trimEnd()}\n`);
      const document = { digest, manifest: JSON.parse(set.manifest) as unknown, ...set.files };
      return new Outcome(document, { text: texts.join('\n') });
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

async function testPolicy(
  admin: Admin,
  name: string,
  file: string,
  { overlay }: { overlay?: string },
): Promise<Outcome> {
  const base = await namedSet(admin, name);
  const set =
    overlay === undefined
      ? base
      : storedSetOf(base, await combine(base, await reading(overlay, () => readRules(overlay))));
  const results = await runCases(set, file);
  const covered = coverageOf(set.files.policies, results);
  const failures = results.filter(({ passed }) => !passed).length;
  const reasonsText = (reasons: string[] | null): string =>
    reasons === null ? '' : ` [${reasons.join(', ')}]`;
  const rows = results.map(({ name, expected, decided, passed }) => ({
    result: passed ? 'pass' : 'FAIL',
    case: name,
    expected: expected.effect + reasonsText(expected.reasons),
    decided: decided.effect + reasonsText(decided.reasons),
  }));
  const coverage = Object.entries(covered).map(([id, cases]) => ({ rule: policyFile(id), cases }));
  const document = { digest: digestOf(set), cases: results.length, failures, covered, results };
  const text = `${table(rows)}\n${table(coverage)}\n${results.length} cases, ${failures} failed\n`;
  return new Outcome(document, { text, failed: failures > 0 });
}

async function runCases(set: StoredPolicySet, file: string): Promise<CaseResult[]> {
  const cases = await readCases(file);
  const engine = await preparePolicyEngine(set);
  return cases.map((one) => runPolicyCase(engine, one));
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
  options: { from?: string; cases: string },
): Promise<object> {
  const from = options.from === undefined ? null : activationTime(options.from);
  const set = await storedSet(admin, digest);
  // Admissions accepted under a set that this version cannot run would all be deferred.
  const reason =
    (await whyNotActivate(set)) ??
    whyNotCovered(set.files.policies, namedActions(set.files), await runCases(set, options.cases));
  if (reason !== null) throw new OperatorError(`the set cannot be activated: ${reason}`);
  const { activeFrom, unfit } = await admin.act((tx) => activateWithOverlays(tx, set, from));
  const document = { digest, active_from: activeFrom, unfit_overlays: unfit };
  if (unfit.length === 0) return document;
  const rows = unfit.map(({ tenant_id, rules }) => ({ tenant_id, rules: rules.join(', ') }));
  const text =
    `active from ${activeFrom.toISOString()}. Rules of these overlays are not valid under the set, so every ` +
    `action of these tenants will be denied until they activate corrected overlays:\n${table(rows)}\n`;
  return new Outcome(document, { text });
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
  const shown = rows.map((row) => ({ ...row, cannot_run: row.cannot_run ? 'CANNOT RUN' : '' }));
  return new Outcome(rows, { text: table(shown) });
}

function stateOf(activations: PolicyActivation[]): string {
  const states = activations.map(({ state }) => state);
  const current = (['in force', 'scheduled'] as const).find((state) => states.includes(state));
  return current ?? (states.length > 0 ? 'over' : 'stored');
}

const YEAR_MS = 366 * 86_400_000;

/**
 * Parses an RFC 3339 time. Rejects a time more than a year ahead as a typing error, because the command
 * would succeed without any effect until then.
 */
function activationTime(text: string): Date {
  if (!z.iso.datetime({ offset: true }).safeParse(text).success) {
    throw new UsageError(`${text} is not an RFC 3339 time like 2026-12-01T00:00:00Z`);
  }
  const time = new Date(text);
  if (time.getTime() <= Date.now() + YEAR_MS) return time;
  throw new UsageError(`${text} is more than a year ahead: check the year`);
}

const digestOf = ({ digest }: { digest: Buffer }): string => toHex(digest);

/** Formats a problem as compilers do, so that editors can link it. */
function problemLine({ file, line, column, severity, message }: PolicyProblem): string {
  const place = line === null ? file : `${file}:${line}:${column ?? 1}`;
  return `${place}: ${severity}: ${message}`;
}

const folderTexts = (folder: string): Promise<Omit<PolicyFiles, 'sentences'>> =>
  reading(folder, () => readPolicyTexts(folder));

/** Builds a set from a folder; the error lists every problem. */
async function setFromFolder(folder: string): Promise<StoredPolicySet> {
  const problems = await checkPolicyTexts(await folderTexts(folder));
  const errors = problems.filter(({ severity }) => severity === 'error');
  if (errors.length === 0) return makePolicySet(await readPolicyFolder(folder));
  throw new OperatorError(`${folder} cannot be used:\n${errors.map(problemLine).join('\n')}`);
}

/** Finds a stored set by its full digest, because a prefix may become ambiguous. */
async function storedSet({ database }: Admin, digest: string): Promise<StoredPolicySet> {
  if (!HASH_PATTERN.test(digest)) {
    throw new OperatorError(
      `${digest} is not the digest of a policy set, which has 64 characters of 0-9 and a-f: policy list shows the digests`,
    );
  }
  const stored = await readPolicySet(await database(), Buffer.from(digest, 'hex'));
  if (stored !== null) return stored;
  throw new AdministrationError(
    `no policy set ${digest} is stored: policy list shows the stored sets`,
  );
}

async function namedSet(admin: Admin, name: string): Promise<StoredPolicySet> {
  const isFolder = await stat(name).then(
    (found) => found.isDirectory(),
    () => false,
  );
  return HASH_PATTERN.test(name) && !isFolder ? storedSet(admin, name) : setFromFolder(name);
}

const textsOf = ({ files }: StoredPolicySet): Map<string, string> =>
  new Map([
    [SCHEMA_FILE, files.schema],
    ...Object.entries(files.policies).map(([id, text]) => [policyFile(id), text] as const),
    ...(Object.keys(files.counters ?? {}).length > 0
      ? [[COUNTERS_FILE, JSON.stringify(files.counters, null, 2)] as const]
      : []),
  ]);

function policyDiff(before: StoredPolicySet, after: StoredPolicySet): Outcome {
  const [a, b] = [textsOf(before), textsOf(after)];
  const files = [...new Set([...a.keys(), ...b.keys()])].sort();
  const added = files.filter((file) => !a.has(file));
  const removed = files.filter((file) => !b.has(file));
  const changed = files
    .filter((file) => a.has(file) && b.has(file) && a.get(file) !== b.get(file))
    .map((file) => ({ file, diff: textDiff(a.get(file) ?? '', b.get(file) ?? '') }));
  const marked = (sign: string, text = ''): string => text.trimEnd().replaceAll(/^/gm, `${sign} `);
  const sections = [
    ...added.map((file) => `added ${file}\n${marked('+', b.get(file))}`),
    ...removed.map((file) => `removed ${file}\n${marked('-', a.get(file))}`),
    ...changed.map(({ file, diff }) => `changed ${file}\n${diff}`),
  ];
  const document = { before: digestOf(before), after: digestOf(after), added, removed, changed };
  const text = sections.length === 0 ? 'the texts are identical' : sections.join('\n\n');
  return new Outcome(document, { text: `${text}\n` });
}

/** Line diff by longest common subsequence: `-` for removed lines, `+` for added ones. */
function textDiff(before: string, after: string): string {
  const [a, b] = [before.split('\n'), after.split('\n')];
  // table[i][j]: length of the longest common subsequence of a from i on and b from j on.
  const table: Uint32Array[] = [];
  const common = (i: number, j: number): number => table[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    const row = (table[i] = new Uint32Array(b.length));
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const isSame = a[i] === b[j];
      row[j] = isSame ? common(i + 1, j + 1) + 1 : Math.max(common(i + 1, j), common(i, j + 1));
    }
  }
  const lines: string[] = [];
  for (let [i, j] = [0, 0]; i < a.length || j < b.length;) {
    if (i < a.length && a[i] === b[j]) {
      lines.push(`  ${a[i++] ?? ''}`);
      j += 1;
    } else if (j >= b.length || (i < a.length && common(i + 1, j) >= common(i, j + 1))) {
      lines.push(`- ${a[i++] ?? ''}`);
    } else lines.push(`+ ${b[j++] ?? ''}`);
  }
  return lines.join('\n');
}
