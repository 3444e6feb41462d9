import { COMMON_OPTIONS, type Command, type Option } from './command.js';
import { COMMANDS } from './commands.js';

const SETTINGS = `Settings, from the environment:
  SVC_PUBLIC_URL     where the public API is
  SVC_ENGINE_URL     where the engine is
  SVC_TENANT_ID      your tenant
  SVC_API_KEY_FILE   a file with the key, or the key itself in SVC_API_KEY
  NO_COLOR           no colours; there are none outside a terminal either`;

const EXIT_CODES = `Exit codes:
  0    it is so: valid, admitted, included, authentic, the same
  1    it is not so
  2    the command, its settings or its input are wrong; nothing was asked
  3    nobody could tell, or it was refused: unreachable, not verified yet, no key pinned
  4    denied, and proved to be: also for a valid proof of a denial
  130  interrupted`;

export function programHelp(): string {
  const commands = COMMANDS.map(({ name, summary }) => `  ${name.padEnd(11)}${summary}`);
  return `Usage: svc COMMAND [ARGUMENTS] [OPTIONS]

${commands.join('\n')}

svc COMMAND --help says more, with examples.

${SETTINGS}

${EXIT_CODES}`;
}

export function commandHelp(command: Command): string {
  const { name, usage, summary, description, options, examples } = command;
  return `Usage: svc ${[name, usage, '[OPTIONS]'].filter(Boolean).join(' ')}

${summary}.

${description}

Options:
${optionLines({ ...options, ...COMMON_OPTIONS })}

Examples:
${examples.map((example) => `  ${example}`).join('\n')}`;
}

function optionLines(options: Readonly<Record<string, Option>>): string {
  const lines = Object.entries(options).map(([name, { short, value, help }]) => {
    const names = `${short === undefined ? '    ' : `-${short}, `}--${name}`;
    return [value === undefined ? names : `${names} ${value}`, help] as const;
  });
  const width = Math.max(...lines.map(([left]) => left.length)) + 2;
  return lines.map(([left, help]) => `  ${left.padEnd(width)}${help}`).join('\n');
}
