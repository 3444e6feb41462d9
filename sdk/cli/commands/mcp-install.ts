import { Option } from 'commander';
import { mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { type CommandSpec, apiKeyFile, type Invocation, UsageError } from '../config.js';
import { diffLines, HOSTS, planInstall, writeInstall } from '../mcp/install.js';
import { EXIT, type ExitCode } from '../terminal.js';
import { mcpOptions, type McpOptions, mcpTimeout } from './mcp.js';

interface InstallOptions extends McpOptions {
  file?: string;
  name: string;
  dryRun?: true;
}

export const mcpInstallCommand: CommandSpec<InstallOptions> = {
  name: 'mcp install',
  summary: 'Put svc mcp between a host and one of its MCP servers',
  description: `Edits the configuration of HOST: ${Object.keys(HOSTS).join(', ')}. SERVER is the command or the URL of a server; without SERVER, svc wraps the server in the file that --name names. Prints the change, and keeps a backup. The file gets SVC_ENGINE_URL, SVC_TENANT_ID and the path in SVC_API_KEY_FILE, but no key.`,
  examples: [
    'svc mcp install claude-desktop --name files -- npx -y @modelcontextprotocol/server-filesystem /srv/data',
    'svc mcp install vscode --name files --map map.json --dry-run',
  ],
  argument: '<HOST...>',
  usage: '[options] <HOST> [-- SERVER...]',
  options: [
    new Option('--name <NAME>', 'name of the server in the configuration').makeOptionMandatory(),
    ['--file <FILE>', 'edit FILE instead of the default configuration file of the host'],
    ['--dry-run', 'print the change only'],
    ...mcpOptions,
  ],
  timeout: mcpTimeout,
  run: install,
};

async function install(invocation: Invocation<InstallOptions>): Promise<ExitCode> {
  const { args, options, terminal } = invocation;
  const [host = '', ...target] = args;
  const { engineUrl, tenantId } = invocation.engine();
  const { agent, file, map, name, observe, run, timeout, waitForApproval } = options;
  // A host may start svc in a different directory and with a different PATH, so all paths are absolute.
  const given = [
    ...['--agent', agent],
    ...(timeout ? ['--timeout', String(timeout / 1_000)] : []),
    ...(map === undefined ? [] : ['--map', resolve(map)]),
    ...(waitForApproval ? ['--wait-for-approval', String(waitForApproval / 1_000)] : []),
    ...(observe ? ['--observe'] : []),
    ...(run ? ['--run'] : []),
  ];
  const program = process.argv[1];
  if (program === undefined)
    throw new UsageError(
      'cannot determine the path of svc: run its script with node, such as node node_modules/.bin/svc',
    );
  const plan = await planInstall({
    host,
    file,
    name,
    target,
    proxy: [process.execPath, program, 'mcp', ...given],
    env: {
      SVC_ENGINE_URL: engineUrl,
      SVC_TENANT_ID: tenantId,
      SVC_API_KEY_FILE: resolve(apiKeyFile()),
    },
  });
  for (const line of diffLines(plan)) terminal.print(line);
  if (options.dryRun === true) return EXIT.success;
  await mkdir(dirname(plan.file), { recursive: true });
  const backup = await writeInstall(plan);
  terminal.printError(`wrote ${plan.file}${backup === null ? '' : `; backup: ${backup}`}`);
  terminal.printError(`restart ${host} to use it`);
  return EXIT.success;
}
