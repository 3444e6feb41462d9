import { userInfo } from 'node:os';
import { parseArgs } from 'node:util';
import { adminConfig, readLogLevel, statusConfig, type Environment } from '#runtime/config';
import { isForOperator } from '#runtime/process/operator-error';
import { connect } from '#runtime/postgres/connect';
import { withAuditContext } from '#sql/tenants/audit';
import type { Pool } from '#sql/db/transaction';
import { aepKeyCommands } from './aep-keys.js';
import { apiKeyCommands } from './api-keys.js';
import { auditCommands } from './audit.js';
import { UsageError, words, type Admin, type Command, type ParsedArgs } from './command.js';
import { erasureCommands } from './erasures.js';
import { fixtureCommands } from './fixtures.js';
import { COMMON_OPTIONS, helpFor, usage } from './help.js';
import { logCommands } from './logs.js';
import { policyCommands } from './policies.js';
import { readable } from './print.js';
import { revocationCommands } from './revocations.js';
import { statusCommands } from './status.js';
import { tenantCommands } from './tenants.js';
import { vkeyCommands } from './vkeys.js';
import { assertDatabase } from '../database.js';

export const COMMANDS: readonly Command[] = [
  ...tenantCommands,
  ...apiKeyCommands,
  ...policyCommands,
  ...fixtureCommands,
  ...aepKeyCommands,
  ...vkeyCommands,
  ...revocationCommands,
  ...logCommands,
  ...erasureCommands,
  ...auditCommands,
  ...statusCommands,
];

export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  /** Print text if `out` is a terminal, otherwise JSON. */
  isTerminal?: boolean;
}

/**
 * Runs one command line and returns the exit code: 0 done, 1 rejected or failed, 2 usage error or
 * unreachable database.
 */
export async function runAdmin(
  line: string[],
  terminal: Terminal,
  env?: Environment,
): Promise<0 | 1 | 2> {
  try {
    return await run(line, terminal, env);
  } catch (error) {
    if (error instanceof UsageError) {
      terminal.err(`${error.message}\n`);
      return 2;
    }
    terminal.err(`${trouble(error, env)}\n`);
    return 1;
  }
}

function trouble(error: unknown, env: Environment | undefined): string {
  if (isForOperator(error)) return error.message;
  if (!(error instanceof Error)) return String(error);
  const level = readLogLevel('info', env);
  if (level === 'debug' || level === 'trace') return error.stack ?? error.message;
  return `${error.message}\n(unexpected error; LOG_LEVEL=debug shows the stack)`;
}

async function run(
  line: string[],
  terminal: Terminal,
  env: Environment | undefined,
): Promise<0 | 1 | 2> {
  const { commands, command, rest } = find(line);
  const asksHelp = line[0] === 'help' || line.includes('--help') || line.includes('-h');
  if (command === undefined || asksHelp) {
    terminal.out(command === undefined ? usage(commands) : helpFor(command));
    return asksHelp ? 0 : 2;
  }
  const { given, json, actor } = parseCommandLine(command, rest);
  let pool: Promise<Pool> | undefined;
  const admin: Admin = {
    actor,
    database: () => (pool ??= open(command.role ?? 'admin', env)),
    statusConfig: () => statusConfig(env),
    act: async (work) =>
      withAuditContext(await admin.database(), { actor, act: command.name }, work),
    say: (text) => terminal.err(text),
  };
  try {
    const { document, text, failed, unreachable } = await command.run(admin, given);
    const isForPerson = terminal.isTerminal === true && !json;
    terminal.out(isForPerson ? (text ?? readable(document)) : asJson(document));
    if (unreachable === true) return 2;
    return failed === true ? 1 : 0;
  } finally {
    await pool?.then(
      (sql) => sql.end({ timeout: 5 }),
      () => undefined,
    );
  }
}

const asJson = (document: unknown): string => `${JSON.stringify(document, null, 2)}\n`;

async function open(role: 'admin' | 'erase', env: Environment | undefined): Promise<Pool> {
  const sql = connect(adminConfig(role, env).databaseUrl, { application: 'svc-admin', max: 1 });
  try {
    await assertDatabase(sql, role);
    return sql;
  } catch (error) {
    await sql.end({ timeout: 1 });
    throw error;
  }
}

/** The command that a line starts with, or the candidates for an unknown one. */
function find(line: string[]): { commands: readonly Command[]; command?: Command; rest: string[] } {
  const said = line[0] === 'help' ? line.slice(1) : line;
  const options = said.findIndex((word) => word.startsWith('-'));
  const names = options < 0 ? said : said.slice(0, options);
  for (const length of [2, 1]) {
    const command = COMMANDS.find((one) => one.name === names.slice(0, length).join(' '));
    if (command !== undefined) return { commands: [command], command, rest: said.slice(length) };
  }
  const [first] = names;
  if (first === undefined) return { commands: COMMANDS, rest: [] };
  const group = COMMANDS.filter((command) => command.name.startsWith(`${first} `));
  if (group.length > 0 && names.length === 1) return { commands: group, rest: [] };
  throw new UsageError(
    group.length > 0
      ? `${first} needs one of: ${group.map(({ name }) => name.slice(first.length + 1)).join(', ')}`
      : `unknown command ${first}: npm run admin -- help lists the commands`,
  );
}

function parseCommandLine(
  command: Command,
  rest: string[],
): { given: ParsedArgs; json: boolean; actor: string } {
  const options = { ...command.options, ...COMMON_OPTIONS };
  let parsed;
  try {
    parsed = parseArgs({
      args: separated(rest, Object.keys(options)),
      allowPositionals: true,
      options: {
        ...Object.fromEntries(
          Object.keys(options).map((name) => [name, { type: 'string' as const }]),
        ),
        json: { type: 'boolean' as const },
      },
    });
  } catch (error) {
    throw new UsageError(`${(error as Error).message}\n${helpFor(command)}`);
  }
  const values = parsed.values as Record<string, string | boolean | undefined>;
  const { positionals } = parsed;
  if (positionals.length !== command.takes.length) {
    throw new UsageError(
      `${command.name} takes ${command.takes.join(' ') || 'nothing'}\n${helpFor(command)}`,
    );
  }
  const option = (name: string): string | undefined => {
    const value = values[name];
    return typeof value === 'string' ? value : undefined;
  };
  const given: ParsedArgs = { argument: (index) => positionals[index] ?? '', option };
  for (const [name, one] of Object.entries(command.options ?? {})) {
    if (one.required === true && option(name) === undefined) {
      throw new UsageError(`--${name} is missing\n${helpFor(command)}`);
    }
  }
  return {
    given,
    json: values['json'] === true,
    actor: words(option('actor') ?? accountName(), 'the actor'),
  };
}

/**
 * Moves arguments behind `--` and joins options with their values. Otherwise parseArgs would take
 * the one key id in 64 that begins with a dash for a short option.
 */
function separated(words: string[], valueOptions: string[]): string[] {
  const options: string[] = [];
  const positionals: string[] = [];
  for (let at = 0; at < words.length; at++) {
    const word = words[at] ?? '';
    const next = words[at + 1];
    if (word === '--') {
      positionals.push(...words.slice(at + 1));
      break;
    } else if (!/^--|^-.$/.test(word)) positionals.push(word);
    else if (next?.startsWith('--') === false && valueOptions.includes(word.slice(2))) {
      options.push(`${word}=${next}`);
      at++;
    } else options.push(word);
  }
  return [...options, '--', ...positionals];
}

/** A container may run as a user id without a name. */
function accountName(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}
