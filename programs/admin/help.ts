import type { Command } from './command.js';

/** Options of every command. */
export const COMMON_OPTIONS = {
  actor: {
    value: 'name',
    help: 'actor recorded in the audit; your account on this machine by default',
  },
} as const;

/** The command line as it is typed. */
function synopsis(command: Command): string {
  const options = Object.entries(command.options ?? {}).map(([name, { value, required }]) =>
    required === true ? `--${name} <${value}>` : `[--${name} <${value}>]`,
  );
  return [command.name, ...command.takes, ...options].join(' ');
}

export function usage(commands: readonly Command[]): string {
  const lines = commands.map((command) => `  ${synopsis(command)}\n      ${command.help}\n`);
  return [
    'usage: npm run admin -- <command>\n\n',
    ...lines,
    '\nEvery command also takes --actor <name>, --json and --help.\n',
    'Exit codes: 0 done, 1 rejected or failed, 2 usage error or unreachable database.\n',
  ].join('');
}

export function helpFor(command: Command): string {
  const options = Object.entries({ ...command.options, ...COMMON_OPTIONS }).map(
    ([name, { value, help }]) => `  --${name} <${value}>\n      ${help}\n`,
  );
  return [
    `usage: npm run admin -- ${synopsis(command)}\n\n`,
    `  ${command.help}\n\noptions:\n`,
    ...options,
    '  --json\n      print JSON even on a terminal\n',
    `\nexample:\n  npm run admin -- ${command.example}\n`,
  ].join('');
}
