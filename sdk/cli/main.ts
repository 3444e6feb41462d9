import { Command, CommanderError, Option, type OutputConfiguration } from 'commander';
import { SdkError } from '../index.js';
import {
  commonOptions,
  type CommandSpec,
  type CommonOptions,
  settingsOf,
  UsageError,
} from './config.js';
import { EXIT, type ExitCode, exitCodeOf, type Terminal } from './terminal.js';
import * as admit from './commands/admit.js';
import * as approve from './commands/approve.js';
import * as lookup from './commands/lookup.js';
import * as proofs from './commands/proofs.js';
import { hookCommand } from './commands/hook.js';
import { overlayCommand } from './commands/overlay.js';
import { mcpCommand } from './commands/mcp.js';
import { mcpInstallCommand } from './commands/mcp-install.js';
import { monitorCommand } from './commands/monitor.js';
import * as resources from './commands/resources.js';
import { verifyCommand } from './commands/verify.js';

const COMMANDS: readonly CommandSpec<never>[] = [
  lookup.lookupCommand,
  verifyCommand,
  admit.admitCommand,
  admit.followCommand,
  approve.approveCommand,
  approve.approverCommand,
  approve.registerApproverCommand,
  approve.retireApproverCommand,
  proofs.exportCommand,
  proofs.inclusionCommand,
  proofs.replayCommand,
  resources.listCommand,
  resources.showCommand,
  resources.revokeCommand,
  resources.shareCommand,
  resources.packageCommand,
  resources.createKeyCommand,
  lookup.evidenceCommand,
  lookup.logCommand,
  lookup.keysCommand,
  resources.hashCommand,
  overlayCommand,
  monitorCommand,
  hookCommand,
  mcpCommand,
  mcpInstallCommand,
];

const HELP = `
Settings, from the environment:
  SVC_PUBLIC_URL     address of the public API
  SVC_ENGINE_URL     address of the engine
  SVC_TENANT_ID      tenant ID
  SVC_API_KEY_FILE   file with the API key; SVC_API_KEY takes the key
  NO_COLOR           turns colours off; files and pipes never get colours

Exit codes:
  0    success: valid, admitted, included, authentic or matching
  1    the opposite of success
  2    wrong command, setting, input or output file; the service changed nothing
  3    undecided: unreachable, request rejected, not verified yet, or no key pinned
  4    proven policy denial, or a required approval; also for a valid proof of either
  130  interrupted`;

/** Runs a command line. Never rejects: every outcome is an exit code. */
export async function main(
  typed: readonly string[],
  terminal: Terminal,
  version: string,
  signal: AbortSignal,
): Promise<ExitCode> {
  // Commander would apply the options of `mcp` to a command nested in it, so `mcp install` is one name.
  const isInstall = typed[0] === 'mcp' && typed[1] === 'install';
  const words = isInstall ? ['mcp install', ...typed.slice(2)] : typed;
  // Read before parsing, because a parse error must be printed in the requested form, too.
  const json = typed.includes('--json');
  let exitCode: ExitCode = EXIT.undecided;
  const program = buildProgram(version, async ({ run }, args, options) => {
    requireValues(typed, options);
    exitCode = await run({
      argument: args[0] as string,
      args,
      options: options as never,
      json,
      terminal,
      signal,
      ...settingsOf(options, terminal, signal),
    });
  });
  let isMisused = false;
  configureOutput(program, {
    writeOut: (text) => printLines(text, terminal.print),
    writeErr: (text) => {
      isMisused = true;
      printLines(text, terminal.printError);
    },
    outputError: () => undefined,
  });
  try {
    await program.parseAsync(words, { from: 'user' });
    return exitCode;
  } catch (error) {
    if (isMisused) return EXIT.usage;
    if (!(error instanceof CommanderError)) return reportError(terminal, error, json, signal);
    // Not an error: the requested help or version was printed.
    if (/^commander\.(help|version)/.test(error.code)) return EXIT.success;
    const command = program.commands.find((one) => one.name() === words[0]);
    const help = command === undefined ? 'svc --help' : `svc ${command.name()} --help`;
    const message = `${error.message.replace(/^error: |\.$/g, '')}; see ${help}`;
    return reportError(terminal, new UsageError(message), json, signal);
  }
}

export function helpTexts(): string[] {
  const program = buildProgram('', () => Promise.resolve());
  return [program, ...program.commands].map((command) => {
    let text = '';
    configureOutput(program, { writeOut: (part) => (text += part) });
    command.outputHelp();
    return text;
  });
}

type Execute = (spec: CommandSpec<never>, args: string[], options: CommonOptions) => Promise<void>;

function buildProgram(version: string, execute: Execute): Command {
  const program = new Command('svc')
    .usage('COMMAND [ARGUMENT] [OPTIONS]')
    .description('Admit executions, and verify their proofs.')
    .version(version, '--version', 'print the version')
    .helpCommand('help [COMMAND]', 'print the help of a command')
    .configureHelp({ subcommandTerm: (command) => command.name() })
    .addHelpText('after', HELP);
  for (const spec of COMMANDS) program.addCommand(buildCommand(spec, execute));
  return program;
}

function buildCommand(spec: CommandSpec<never>, execute: Execute): Command {
  const { name, summary, description, examples, argument, usage, options = [], timeout } = spec;
  const command = new Command(name)
    .summary(summary)
    .description(`${summary}.\n\n${description}`)
    .addHelpText('after', `\nExamples:\n${examples.map((one) => `  ${one}`).join('\n')}`)
    .action((...given: unknown[]) => {
      const [first, own] = given.length === 3 ? given : [[], ...given];
      const args = [first].flat().filter((one) => one !== undefined);
      return execute(spec, args as string[], own as CommonOptions);
    });
  if (typeof argument === 'string') command.argument(argument);
  else if (argument !== undefined) command.addArgument(argument);
  if (usage !== undefined) command.usage(usage);
  for (const option of [...options, ...commonOptions(timeout)]) {
    command.addOption(option instanceof Option ? option : new Option(...option));
  }
  return command;
}

function configureOutput(program: Command, output: OutputConfiguration): void {
  for (const command of [program, ...program.commands]) {
    command
      .exitOverride()
      .helpOption('-h, --help', 'print this help')
      .configureOutput({ getOutHelpWidth: () => 100, getErrHelpWidth: () => 100, ...output });
  }
}

/** Rejects an option as a value, which Commander accepts: `--out --json` would write a file named `--json`. */
function requireValues(typed: readonly string[], options: object): void {
  const taken = Object.values(options).find(
    (value) => typeof value === 'string' && value.startsWith('--') && typed.includes(value),
  ) as string | undefined;
  if (taken === undefined) return;
  throw new UsageError(`${typed[typed.indexOf(taken) - 1] ?? ''} needs a value before ${taken}`);
}

function printLines(text: string, print: (line: string) => void): void {
  for (const line of text.trimEnd().split('\n')) print(line);
}

function reportError(
  terminal: Terminal,
  thrown: unknown,
  json: boolean,
  signal: AbortSignal,
): ExitCode {
  const error =
    signal.aborted && !(thrown instanceof SdkError)
      ? new SdkError('aborted', 'interrupted', { cause: thrown })
      : thrown;
  const [exitCode, details] = describe(error);
  const message = error instanceof Error ? error.message : String(error);
  if (json) {
    terminal.printErrorJson({ error: { ...details, message }, exit_code: exitCode });
    return exitCode;
  }
  terminal.printError({ style: 'red', text: 'svc: ' }, message);
  if (exitCode === EXIT.undecided && details.proof_id !== undefined) {
    terminal.printError(
      isUndecided(error as SdkError)
        ? `svc: the request was accepted, and its decision is not known; run svc follow ${details.proof_id}`
        : `svc: the proof id of the request is ${details.proof_id}`,
    );
  }
  return exitCode;
}

/** Whether the decision may still be made, or was made and its answer lost. */
const isUndecided = ({ code, retryable }: SdkError): boolean => retryable || code === 'aborted';

function describe(error: unknown): [ExitCode, { code: string; proof_id?: string | undefined }] {
  if (error instanceof UsageError) return [EXIT.usage, { code: 'usage' }];
  if (!(error instanceof SdkError)) return [EXIT.undecided, { code: 'unexpected' }];
  const {
    code,
    status,
    problem,
    denial,
    pointer,
    proofId: proof_id,
    requestId: request_id,
  } = error;
  const details = { code, status, request_id, problem, denial, pointer, proof_id };
  return [exitCodeOf(code), details];
}
