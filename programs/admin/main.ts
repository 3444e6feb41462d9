import { userInfo } from 'node:os';
import { Command, CommanderError } from 'commander';
import { attempt } from '#protocol/errors';
import {
  adminConfig,
  ConfigError,
  readLogLevel,
  statusConfig,
  type Environment,
} from '#runtime/config';
import type { ConnectOptions } from '#runtime/postgres/connect';
import { OperatorError } from '#runtime/process/operator-error';
import { safeJson } from '#sdk/cli/terminal';
import {
  DatabaseUnavailableError,
  isConnectionLost,
  isLockTimeout,
  isStatementTimeout,
} from '#sql/db/errors';
import { withAuditContext } from '#sql/tenants/audit';
import type { Pool } from '#sql/db/transaction';
import { openDatabase } from '../database.js';
import { addApiKeyCommands } from './api-keys.js';
import { addApproverCommands } from './approvers.js';
import { addAuditCommands } from './audit.js';
import {
  UsageError,
  words,
  type AddCommand,
  type Admin,
  Outcome,
  plainLines,
  readable,
} from './command.js';
import { addFixtureCommands } from './fixtures.js';
import { addInitCommand } from './init.js';
import { addLogKeyCommands } from './log-keys.js';
import { addLogCommands } from './logs.js';
import { addPolicyCommands } from './policies.js';
import { addProofCommands } from './proofs.js';
import { addSigningKeyCommands } from './signing-keys.js';
import { addStatusCommand } from './status.js';
import { addTenantCommands } from './tenants.js';

export interface Terminal {
  out: (text: string) => void;
  err: (text: string) => void;
  /** Whether `out` is a terminal, which gets text; otherwise JSON is printed. */
  isTerminal?: boolean;
}

type ExitCode = 0 | 1 | 2;

export async function runAdmin(
  line: string[],
  terminal: Terminal,
  env?: Environment,
): Promise<ExitCode> {
  let exitCode: ExitCode = 0;
  const program = buildProgram(terminal, async (name, options, work) => {
    exitCode = await execute(name, options, work, terminal, env);
  });
  try {
    await program.parseAsync(line[0] === 'help' ? [...line.slice(1), '--help'] : line, {
      from: 'user',
    });
    return exitCode;
  } catch (error) {
    // Commander has printed the error or the requested help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    terminal.err(`${plainLines(trouble(error, env))}\n`);
    const isUsage = error instanceof UsageError || error instanceof ConfigError;
    return isUsage || isConnectionLost(error) ? 2 : 1;
  }
}

/** Commander's definition of each command, by the words of the command. */
export function adminCommands(): Map<string, Command> {
  return new Map(leaves(buildProgram()).map((command) => [nameOf(command), command]));
}

export function helpTexts(): string[] {
  const program = buildProgram();
  return [program, ...leaves(program)].map((command) => {
    let text = '';
    command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
    return text;
  });
}

interface CommonOptions {
  actor?: string;
  json?: true;
}

type Work = (admin: Admin) => Promise<object>;
type Execute = (name: string, options: CommonOptions, work: Work) => Promise<void>;

const POOL = { application: 'svc-admin', max: 1 };
const LIMITS: Record<string, Pick<ConnectOptions, 'statementTimeoutMs' | 'stallTimeoutMs'>> = {
  // During an outage, `status` has to report a silent database soon.
  status: { statementTimeoutMs: 5_000, stallTimeoutMs: 5_000 },
  // Some statements of these commands read the whole log, or move all of its checkpoints.
  'log adopt': { statementTimeoutMs: 30 * 60 * 1000 },
  'log end': { statementTimeoutMs: 30 * 60 * 1000 },
};

const EXIT_CODES =
  '\nExit codes: 0 done, 1 rejected or failed, 2 usage or configuration error, or unreachable database.';

/** Without --silent, npm writes its banner into the redirected output. */
const commandOf = (example: string): string =>
  example.startsWith('>') ? 'npm run --silent admin --' : 'npm run admin --';

function buildProgram(terminal?: Terminal, executed?: Execute): Command {
  const program = new Command('npm run admin --')
    .usage('<command>')
    .description('Administer the registry.')
    .helpCommand(false)
    .helpOption('-h, --help', 'print this help')
    .addHelpText('after', EXIT_CODES)
    // Separates the options of `erase` from those of `erase tenant`, which Commander nests in `erase`.
    .enablePositionalOptions()
    .exitOverride()
    .showHelpAfterError()
    .configureHelp({
      visibleCommands: (command) => leaves(command).filter((leaf) => leaf !== command),
      subcommandTerm: nameOf,
    })
    .configureOutput({
      getOutHelpWidth: () => 100,
      getErrHelpWidth: () => 100,
      ...(terminal && { writeOut: terminal.out, writeErr: terminal.err }),
    });
  const add: AddCommand = (usage, help, example, run) => {
    const name = usage.replace(/ <.*/, '');
    const [group = '', word] = name.split(' ');
    const parent =
      word === undefined
        ? program
        : (program.commands.find((one) => one.name() === group) ?? program.command(group));
    return parent
      .command((word ?? group) + usage.slice(name.length))
      .description(help)
      .option(
        '--actor <name>',
        'actor recorded in the audit (default: your user name on this computer)',
      )
      .option('--json', 'print JSON even on a terminal')
      .addHelpText('after', `\nExample:\n  ${commandOf(example)} ${name} ${example}`)
      .action(async (...given: unknown[]) => {
        const options = given.at(-2) as CommonOptions;
        await executed?.(name, options, (admin) => run(admin, ...(given as never[])));
      });
  };
  addInitCommand(add);
  addTenantCommands(add);
  addApiKeyCommands(add);
  addPolicyCommands(add);
  addFixtureCommands(add);
  addSigningKeyCommands(add);
  addApproverCommands(add);
  addProofCommands(add);
  addLogKeyCommands(add);
  addLogCommands(add);
  addAuditCommands(add);
  addStatusCommand(add);
  return program;
}

async function execute(
  name: string,
  options: CommonOptions,
  work: Work,
  terminal: Terminal,
  env: Environment | undefined,
): Promise<ExitCode> {
  const actor = words(options.actor ?? accountName(), 'the actor');
  // `log adopt` records lost payloads as erased, which only the role svc_erase may do.
  const role = name.startsWith('erase') || name === 'log adopt' ? 'erase' : 'admin';
  const settings = { ...POOL, ...LIMITS[name] };
  let pool: Promise<Pool> | undefined;
  const open = (more?: Partial<ConnectOptions>): Promise<Pool> =>
    openDatabase(adminConfig(role, env).databaseUrl, role, { ...settings, ...more });
  const database: Admin['database'] = (more) =>
    more === undefined ? (pool ??= open()) : (pool = open(more));
  const isForPerson = terminal.isTerminal === true && options.json === undefined;
  try {
    const result = await work({
      actor,
      database,
      statusConfig: () => statusConfig(env),
      act: async (change) => {
        const sql = await database();
        return withAuditContext(sql, { actor, act: name }, change).catch(explainLoss);
      },
      say: terminal.err,
      printList: async (head, name, rows) => {
        terminal.out(
          isForPerson
            ? plainLines(readable(head))
            : `${safeJson(head, 2).replace(/\n\}$/, '')},\n  "${name}": [`,
        );
        let count = 0;
        for await (const row of rows) {
          const separator = count++ === 0 ? '\n    ' : ',\n    ';
          terminal.out(
            isForPerson ? plainLines(readable({ [name]: row })) : separator + safeJson(row),
          );
        }
        if (!isForPerson) terminal.out('\n  ]\n}\n');
        else if (count === 0) terminal.out(readable({ [name]: 'none' }));
        return count;
      },
    });
    const { document, more } = result instanceof Outcome ? result : new Outcome(result, {});
    if (document !== null) {
      terminal.out(
        isForPerson ? plainLines(more.text ?? readable(document)) : `${safeJson(document, 2)}\n`,
      );
    }
    if (more.unreachable === true) return 2;
    return more.failed === true ? 1 : 0;
  } finally {
    await pool?.then(
      (sql) => sql.end({ timeout: 5 }),
      () => undefined,
    );
  }
}

/** The answer to a commit may be lost with its connection. */
function explainLoss(error: unknown): never {
  if (!isConnectionLost(error)) throw error;
  const advice = `The command may have taken effect. Before you repeat it, look for it with "npm run admin -- audit list"`;
  throw new DatabaseUnavailableError(`${(error as Error).message}. ${advice}`, { cause: error });
}

function trouble(error: unknown, env: Environment | undefined): string {
  if (!(error instanceof Error)) return String(error);
  if (isLockTimeout(error) || isStatementTimeout(error)) {
    const what = isLockTimeout(error) ? 'another session held a lock' : 'a statement took too long';
    const { message } = error.cause instanceof Error ? error.cause : error;
    return `${what}, so PostgreSQL rolled the transaction back (${message}). Find the cause in pg_stat_activity and pg_locks, then repeat the command.`;
  }
  if (error instanceof OperatorError || error instanceof UsageError) return error.message;
  if (isConnectionLost(error)) {
    return `the connection to the database was lost: ${error.message}. Check whether the command took effect before you repeat it.`;
  }
  const level = readLogLevel('info', env);
  if (level === 'debug' || level === 'trace') return error.stack ?? error.message;
  return `${error.message}\n(unexpected error; LOG_LEVEL=debug shows the stack)`;
}

/** The runnable commands among a command and its subcommands. */
function leaves(command: Command): Command[] {
  const below = command.commands.flatMap(leaves);
  return command.description() !== '' && command.parent !== null ? [command, ...below] : below;
}

function nameOf(command: Command): string {
  const { parent } = command;
  return parent === null || parent.parent === null
    ? command.name()
    : `${parent.name()} ${command.name()}`;
}

/** In a container the user id may have no name. */
const accountName = (): string =>
  attempt(() => userInfo().username) ?? `uid ${process.getuid?.() ?? 'unknown'}`;
