import { parseArgs } from 'node:util';
import { SdkError } from '../index.js';
import { COMMON_OPTIONS, parsed, type Command, type Values } from './command.js';
import { COMMANDS } from './commands.js';
import { engineOptions, environment, publicOptions } from './config.js';
import { EXIT, exitCodeOf, type ExitCode } from './exit-code.js';
import { commandHelp, programHelp } from './help.js';
import type { Terminal } from './terminal.js';
import { UsageError } from './usage-error.js';

/** Runs what was typed. Every way out is an exit code, and only what is so is 0. */
export async function main(
  typed: readonly string[],
  terminal: Terminal,
  version: string,
  signal: AbortSignal,
): Promise<ExitCode> {
  const [name, ...rest] = typed;
  // Before anything can fail: an error has to come in the form that was asked for.
  const json = typed.includes('--json');
  try {
    if (name === '--version') return printed(terminal, version);
    if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
      const about = COMMANDS.find((command) => command.name === rest[0]);
      const text = about === undefined ? programHelp() : commandHelp(about);
      if (name !== undefined) return printed(terminal, text);
      for (const line of text.split('\n')) terminal.say(line);
      return EXIT.usage;
    }
    const command = COMMANDS.find((one) => one.name === name);
    if (command === undefined) throw new UsageError(`no such command: ${name}; see svc --help`);
    return await run(command, rest, terminal, signal);
  } catch (error) {
    const stopped = signal.aborted && !(error instanceof SdkError);
    const why = stopped ? new SdkError('aborted', 'interrupted', { cause: error }) : error;
    return told(terminal, why, json);
  }
}

async function run(
  command: Command,
  typed: string[],
  terminal: Terminal,
  signal: AbortSignal,
): Promise<ExitCode> {
  const { args, values } = parse(command, typed);
  if (values['help'] === true) return printed(terminal, commandHelp(command));
  const { least, most } = command.takes;
  if (args.length < least || args.length > most) {
    throw new UsageError(`usage: svc ${command.name} ${command.usage}; see svc ${command.name} -h`);
  }
  return command.run({
    args,
    values,
    json: values['json'] === true,
    terminal,
    engine: () => {
      const options = engineOptions(environment(), values, signal);
      terminal.hidden.hide(options.apiKey);
      return options;
    },
    registry: () => publicOptions(environment(), values, signal),
  });
}

function parse(command: Command, args: string[]): { args: string[]; values: Values } {
  const options = parsed({ ...command.options, ...COMMON_OPTIONS });
  try {
    const { positionals, values } = parseArgs({ args, options, allowPositionals: true });
    return { args: positionals, values: values as Values };
  } catch (cause) {
    const { message } = cause as Error;
    throw new UsageError(`${message}; see svc ${command.name} -h`, { cause });
  }
}

function printed(terminal: Terminal, text: string): ExitCode {
  for (const line of text.split('\n')) terminal.print(line);
  return EXIT.yes;
}

/** An error that nobody foresaw is one too, and never a 0. */
function told(terminal: Terminal, error: unknown, json: boolean): ExitCode {
  const code = error instanceof SdkError ? exitCodeOf(error.code) : codeOf(error);
  const message = error instanceof Error ? error.message : String(error);
  if (json) {
    const details = error instanceof SdkError ? detailsOf(error) : { code: nameOf(error) };
    terminal.sayJson({ error: { ...details, message }, exit_code: code });
  } else {
    terminal.say({ style: 'red', text: 'svc: ' }, message);
    if (code === EXIT.undecided && error instanceof SdkError && error.proofId !== undefined) {
      terminal.say(`svc: it was accepted; svc follow ${error.proofId}`);
    }
  }
  return code;
}

function codeOf(error: unknown): ExitCode {
  return error instanceof UsageError ? EXIT.usage : EXIT.undecided;
}

function nameOf(error: unknown): string {
  return error instanceof UsageError ? 'usage' : 'unexpected';
}

function detailsOf({ code, status, problem, denial, pointer, proofId }: SdkError): object {
  return {
    code,
    ...(status !== undefined && { status }),
    ...(problem !== undefined && { problem }),
    ...(denial !== undefined && { denial }),
    ...(pointer !== undefined && { pointer }),
    ...(proofId !== undefined && { proof_id: proofId }),
  };
}
