import { SingleBar } from 'cli-progress';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type FindingCode, isGrave } from '#fsck/findings';
import { fsck, Stopped } from '#fsck/run';
import { acceptedLogKeys } from '#fsck/log-keys';
import { type FsckResult, StateStore, type Stage } from '#fsck/state';
import { toHex } from '#protocol/bytes';
import type { LogFiles } from '#protocol/monitor/files';
import { pinKeys } from '#protocol/snapshot/trust';
import { fsckConfig, readLogLevel, type Environment, type FsckConfig } from '#runtime/config';
import { nativeSha256 } from '#runtime/crypto/node';
import { urlPerHost } from '#runtime/postgres/hosts';
import { OperatorError } from '#runtime/process/operator-error';
import { isBucket, openStore } from '#runtime/store/open';
import { filesIn } from '#runtime/store/store';
import { isInRecovery } from '#sql/db/transaction';
import { recordFsck, recordMaintenance } from '#sql/ops/queries';
import { openFiles } from '#sdk/cli/monitor/files';
import { safeJson } from '#sdk/cli/terminal';
import { plain, plainLines } from '../admin/command.js';
import { openDatabase } from '../database.js';

const USAGE = `npm run fsck -- [options]     check the registry and the public snapshot completely
  --only registry|snapshot   check only this half
  --json                     one JSON document on stdout
  --restart                  start over, even if an earlier run was interrupted
  --state <file>             state file for resuming (DATA_DIR/fsck.json)
  --wait <seconds>           age at which a pending admission is reported (60)
Exit code: 0 clean, 1 corruption found, 2 usage or configuration error, 3 incomplete check.
`;

/** Has a long statement timeout, because some statements scan a whole table. */
const FSCK_POOL = { application: 'svc-fsck', max: 2, statementTimeoutMs: 30 * 60 * 1000 };

function parseCommandLine(line: string[]) {
  let values;
  try {
    ({ values } = parseArgs({
      args: line,
      options: {
        only: { type: 'string' },
        json: { type: 'boolean', default: false },
        restart: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
        state: { type: 'string' },
        wait: { type: 'string', default: '60' },
      },
    }));
  } catch (error) {
    throw usageError((error as Error).message);
  }
  const { only = null, json, restart, help, state = null, wait } = values;
  if (only !== null && only !== 'registry' && only !== 'snapshot') {
    throw usageError('--only must be registry or snapshot');
  }
  if (!/^\d{1,6}$/.test(wait)) throw usageError('--wait must be a number of seconds');
  const half: 'registry' | 'snapshot' | null = only;
  return { only: half, json, restart, help, state, waitMs: Number(wait) * 1000 };
}

const usageError = (message: string): OperatorError =>
  new OperatorError(`${message}\n${USAGE.trimEnd()}`);

interface FsckTerminal {
  out(text: string): void;
  err(text: string): void;
  signal?: AbortSignal;
}

export async function check(
  line: string[],
  terminal: FsckTerminal,
  env?: Environment,
): Promise<number> {
  let isJson = false;
  try {
    const given = parseCommandLine(line);
    if (given.help) {
      terminal.out(USAGE);
      return 0;
    }
    isJson = given.json;
    return await run(given, terminal, env);
  } catch (error) {
    if (error instanceof OperatorError) {
      terminal.err(`${error.message}\n`);
      return 2;
    }
    const why = trouble(error, env);
    terminal.err(`${plainLines(why)}\n`);
    if (isJson) {
      const document = { clean: false, exit_code: 3, findings: [], not_checked: [why] };
      terminal.out(`${safeJson(document, 2)}\n`);
    }
    return 3;
  }
}

async function run(
  given: ReturnType<typeof parseCommandLine>,
  terminal: FsckTerminal,
  env: Environment | undefined,
): Promise<number> {
  const began = performance.now();
  const config = fsckConfig(given.only, env);
  const pinned = pinKeys(nativeSha256, config.pins);
  const { databaseUrl } = config;
  const file = given.state ?? join(config.dataDir, 'fsck.json');
  const files = await openSnapshot(config);
  const identity = {
    log: `${pinned[0].name}+${toHex(pinned[0].keyHash)}`,
    database: databaseUrl === null ? null : databaseName(databaseUrl),
    snapshot: files?.where ?? null,
  };
  const state = await StateStore.open(file, identity, given.restart);
  const sql = databaseUrl === null ? null : await openDatabase(databaseUrl, 'fsck', FSCK_POOL);
  const bar = progressBar();
  try {
    if (sql !== null && files !== null && (await isInRecovery(sql))) {
      throw new OperatorError(
        'the server in DATABASE_URL is in recovery, so published leaves may still reach it: name the primary, or check with --only registry',
      );
    }
    const log = sql === null ? pinned : await acceptedLogKeys(sql, pinned);
    const result = await fsck({
      registry: sql && { sql, logVkeys: log },
      snapshot: files && { files, log },
      waitMs: given.waitMs,
      state,
      progress: (stage, done, total) => bar.show(stage, done, total),
      signal: terminal.signal ?? new AbortController().signal,
    }).catch((cause: unknown) => {
      throw new IncompleteCheck('the check failed', { cause });
    });
    bar.end();
    const code = result.isCorrupt ? 1 : result.unchecked.length === 0 ? 0 : 3;
    if (code !== 3 && sql !== null) {
      // Only a clean run over every row clears a recorded finding: it may be in the other half, or before a saved position.
      const isPart = code === 0 && (given.only !== null || result.resumedFrom > 0);
      const recorded = isPart ? recordMaintenance(sql) : recordFsck(sql, code === 1);
      await recorded.catch(({ message }: Error) =>
        terminal.err(`The database did not record this run: ${message}\n`),
      );
    }
    const seconds = (performance.now() - began) / 1000;
    const text = given.json
      ? `${safeJson(document(result, code, seconds), 2)}\n`
      : readable(result, seconds);
    terminal.out(text);
    return code;
  } finally {
    bar.end();
    await sql?.end({ timeout: 5 });
  }
}

/** A failure during the check: exit code 3, never a configuration error. */
class IncompleteCheck extends Error {}

/** Findings so far are in the state file; the next run reports them. */
function trouble(error: unknown, env: Environment | undefined): string {
  if (!(error instanceof Error)) return String(error);
  const reason =
    error instanceof IncompleteCheck && error.cause instanceof Error ? error.cause : error;
  const again = 'The next run resumes from the saved position.';
  if (reason instanceof Stopped) return `${reason.message}. ${again}`;
  const level = readLogLevel('info', env);
  if (level === 'debug' || level === 'trace') return reason.stack ?? reason.message;
  const cause = reason.cause instanceof Error ? `: ${reason.cause.message}` : '';
  return `Incomplete check: ${reason.message}${cause}. ${again}`;
}

async function openSnapshot({
  snapshotPlace: place,
  snapshotUrl: url,
}: FsckConfig): Promise<LogFiles | null> {
  if (place === null) return url === null ? null : openFiles(url, {});
  if (isBucket(place)) return filesIn(await openStore(place));
  const found = await stat(place).catch(() => null);
  if (found?.isDirectory() === true) return openFiles(place, {});
  throw new OperatorError(`SNAPSHOT_DIR: ${place} is not a directory`);
}

/** Names the database without credentials. */
export function databaseName(url: string): string {
  const urls = urlPerHost(url).map((one) => new URL(one));
  return urls.map(({ host }) => host).join() + (urls[0]?.pathname ?? '');
}

function readable(result: FsckResult, seconds: number): string {
  const lines: string[] = [];
  for (const { code, grave, where, expected, advice } of result.reported) {
    lines.push(`${grave ? 'CORRUPT' : 'notice '} ${code}  ${plain(where)}`);
    lines.push(`        expected: ${plain(expected)}`, `        do: ${advice}`);
  }
  const counts = Object.entries(result.counts) as [FindingCode, number][];
  for (const [code, count] of counts) {
    const listed = result.reported.filter((finding) => finding.code === code).length;
    if (count > listed) lines.push(`${code}: ${String(count - listed)} more`);
  }
  for (const what of result.unchecked) lines.push(`NOT CHECKED: ${plain(what)}`);
  for (const what of result.skipped) lines.push(`skipped: ${what}`);
  return `${[...lines, summary(result, counts, seconds)].join('\n')}\n`;
}

function summary(result: FsckResult, counts: [FindingCode, number][], seconds: number): string {
  const { leaves, published, resumedFrom } = result;
  const corrupt = counts.reduce((sum, [code, n]) => (isGrave(code) ? sum + n : sum), 0);
  const parts = [
    leaves === null ? null : `${String(leaves)} leaves of the registry`,
    published &&
      `${String(published.leaves)} published leaves (generation ${String(published.generation)})`,
    resumedFrom > 0 ? `resumed from leaf ${String(resumedFrom)}` : null,
    corrupt === 0 ? 'no corruption' : `${String(corrupt)} corruptions`,
    result.unchecked.length === 0 ? null : 'incomplete check',
    `${seconds.toFixed(1)} s`,
  ];
  return parts.filter((part) => part !== null).join(', ');
}

function document(result: FsckResult, exitCode: number, seconds: number) {
  return {
    clean: exitCode === 0,
    exit_code: exitCode,
    findings: result.reported,
    counts: result.counts,
    not_checked: result.unchecked,
    left_out: result.skipped,
    leaves: result.leaves,
    published: result.published,
    resumed_from: result.resumedFrom,
    seconds: Number(seconds.toFixed(3)),
  };
}

/** Shows nothing if standard error is not a terminal. */
function progressBar() {
  const bar = new SingleBar({
    format: '{stage} {bar} {value} of {total}, {eta_formatted} left',
    hideCursor: true,
    barsize: 30,
    etaBuffer: 100,
    stream: process.stderr,
  });
  let shown: Stage | null = null;
  return {
    show(stage: Stage, done: number, total: number) {
      if (stage !== shown) {
        if (shown !== null) bar.stop();
        bar.start(total, done, { stage });
        shown = stage;
      }
      bar.setTotal(total);
      bar.update(done, { stage });
    },
    end: () => bar.stop(),
  };
}
