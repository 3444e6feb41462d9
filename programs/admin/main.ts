import { parseArgs } from 'node:util';
import { adminConfig, ConfigError } from '#runtime/config';
import { connect } from '#runtime/postgres';
import { AdministrationError } from '#sql/administration';
import { assertRole } from '#sql/roles';
import { UsageError, type Command } from './command.js';
import { logCommands } from './log.js';
import { policyCommands } from './policies.js';
import { tenantCommands } from './tenants.js';

const COMMANDS = [...tenantCommands, ...policyCommands, ...logCommands];

function usage(): string {
  const lines = COMMANDS.map((command) => {
    const options = Object.entries(command.options ?? {}).map(([name, { required }]) =>
      required ? ` --${name} …` : ` [--${name} …]`,
    );
    const words = [command.name, ...command.takes].join(' ') + options.join('');
    return `  ${words}\n      ${command.help}`;
  });
  return `usage: npm run admin -- <command>\n\n${lines.join('\n')}\n`;
}

function find(words: string[]): { command: Command; rest: string[] } {
  for (const length of [2, 1]) {
    const name = words.slice(0, length).join(' ');
    const command = COMMANDS.find((one) => one.name === name);
    if (command !== undefined) return { command, rest: words.slice(length) };
  }
  throw new UsageError(`there is no command ${words.slice(0, 2).join(' ')}`);
}

/** Runs one command line and returns the exit code: 0 done, 1 refused, 2 not understood. */
export async function administer(
  words: string[],
  write: { out(text: string): void; err(text: string): void },
): Promise<0 | 1 | 2> {
  if (words.length === 0 || words[0] === 'help' || words[0] === '--help') {
    write.out(usage());
    return words.length === 0 ? 2 : 0;
  }
  try {
    const { command, rest } = find(words);
    const { values, positionals } = parseArgs({
      args: rest,
      allowPositionals: true,
      options: Object.fromEntries(
        Object.keys(command.options ?? {}).map((name) => [name, { type: 'string' as const }]),
      ),
    });
    if (positionals.length !== command.takes.length) {
      throw new UsageError(`${command.name} takes ${command.takes.join(' ') || 'nothing'}`);
    }
    const sql = connect(adminConfig().databaseUrl, { application: 'svc-admin', max: 1 });
    try {
      await assertRole(sql, 'admin');
      const given = {
        arguments: positionals,
        option: (name: string) => values[name],
      };
      write.out(`${JSON.stringify(await command.run(sql, given), null, 2)}\n`);
      return 0;
    } finally {
      await sql.end({ timeout: 5 });
    }
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const understood = !(error instanceof UsageError || error instanceof TypeError);
    write.err(`${error.message}\n`);
    if (!understood) write.err('`npm run admin -- help` lists the commands\n');
    if (error instanceof AdministrationError || error instanceof ConfigError) return 1;
    return understood ? 1 : 2;
  }
}
