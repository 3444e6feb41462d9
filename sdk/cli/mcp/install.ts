import { constants, copyFile, readFile, realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { utf8 } from '../../../protocol/bytes.js';
import { parseStrict, type JsonValue } from '../../../protocol/json.js';
import { UsageError } from '../config.js';
import { writeOutput } from '../files.js';
import { isObject, type JsonObject, objectIn } from './message.js';

const desktopFolder = (home: string): string =>
  process.platform === 'darwin'
    ? join(home, 'Library', 'Application Support')
    : process.platform === 'win32'
      ? join(home, 'AppData', 'Roaming')
      : join(home, '.config');

/**
 * Hosts by name, with their configuration files, and the members that list the servers. Relative paths
 * start at the project folder.
 */
export const HOSTS: Record<
  string,
  { file: (home: string) => string; list: 'mcpServers' | 'servers' }
> = {
  'claude-desktop': {
    file: (home) => join(desktopFolder(home), 'Claude', 'claude_desktop_config.json'),
    list: 'mcpServers',
  },
  'claude-code': { file: () => '.mcp.json', list: 'mcpServers' },
  cursor: { file: (home) => join(home, '.cursor', 'mcp.json'), list: 'mcpServers' },
  vscode: { file: () => join('.vscode', 'mcp.json'), list: 'servers' },
  windsurf: {
    file: (home) => join(home, '.codeium', 'windsurf', 'mcp_config.json'),
    list: 'mcpServers',
  },
};

export interface Installation {
  host: string;
  /** Path of the configuration file; by default that of the host. */
  file?: string | undefined;
  name: string;
  /** Command line or URL of the server; if empty, that of the server in the file. */
  target: readonly string[];
  /** The command line of `svc mcp` before the target. */
  proxy: readonly [command: string, ...args: string[]];
  env: Record<string, string>;
}

export interface PlannedInstall {
  file: string;
  before: string;
  after: string;
}

/** Throws `UsageError` for files that are not plain JSON: rewriting would lose their comments. */
export async function planInstall(install: Installation): Promise<PlannedInstall> {
  const known = HOSTS[install.host];
  if (known === undefined) {
    throw new UsageError(`HOST is one of ${Object.keys(HOSTS).join(', ')}`);
  }
  const named = resolve(install.file ?? known.file(homedir()));
  // Replaces the file that a link names, not the link.
  const file = await realpath(named).catch(() => named);
  const before = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw new UsageError(`${file} cannot be read: ${error.code ?? ''}`, { cause: error });
  });
  const config = before.trim() === '' ? {} : parseConfig(file, before);
  const servers = objectIn(config, known.list);
  const entry = wrap(
    install,
    Object.hasOwn(servers, install.name) ? servers[install.name] : undefined,
  );
  const typed = known.list === 'servers' ? { type: 'stdio', ...entry } : entry;
  const changed = { ...config, [known.list]: { ...servers, [install.name]: typed } };
  const indent = /^[{[]\r?\n([ \t]+)/.exec(before)?.[1] ?? '  ';
  return { file, before, after: `${JSON.stringify(changed, null, indent)}\n` };
}

function parseConfig(file: string, text: string): JsonObject {
  let config: JsonValue;
  try {
    config = parseStrict(utf8(text));
  } catch (cause) {
    const message = `${file} is not plain JSON, and is left as it is: edit it by hand, or remove its comments: ${(cause as Error).message}`;
    throw new UsageError(message, { cause });
  }
  if (isObject(config)) return config;
  throw new UsageError(`${file} is not a JSON object`);
}

function wrap(
  { name, target, proxy, env }: Installation,
  found: JsonValue | undefined,
): JsonObject {
  const entry = isObject(found) ? found : {};
  const [command, ...args] = proxy;
  if (objectIn(entry, 'env')['SVC_ENGINE_URL'] !== undefined) {
    throw new UsageError(`the server ${name} already runs behind svc mcp`);
  }
  const { url, headers } = entry;
  if (headers !== undefined) {
    throw new UsageError(
      `the server ${name} has headers, which svc mcp does not send: give a URL after --, and set SVC_MCP_SERVER_TOKEN`,
    );
  }
  const existing =
    typeof url === 'string'
      ? [url]
      : typeof entry['command'] === 'string'
        ? [entry['command'], ...((entry['args'] ?? []) as string[])]
        : [];
  const server = target.length > 0 ? target : existing;
  if (server.length === 0) {
    throw new UsageError(`there is no server ${name} yet: give its command after --`);
  }
  return {
    ...Object.fromEntries(Object.entries(entry).filter(([key]) => key !== 'url' && key !== 'type')),
    command,
    args: [...args, '--', ...server],
    env: { ...objectIn(entry, 'env'), ...env },
  };
}

/** The removed and added lines with up to 3 lines around them, marked as in a diff. */
export function diffLines({ before, after }: PlannedInstall): string[] {
  const [old, now] = [before, after].map((text) =>
    text === '' ? [] : text.trimEnd().split('\n'),
  ) as [string[], string[]];
  let start = 0;
  while (start < old.length && old[start] === now[start]) start++;
  let end = 0;
  const rest = Math.min(old.length, now.length) - start;
  while (end < rest && old.at(-1 - end) === now.at(-1 - end)) end++;
  return [
    ...old.slice(Math.max(0, start - 3), start).map((line) => `  ${line}`),
    ...old.slice(start, old.length - end).map((line) => `- ${line}`),
    ...now.slice(start, now.length - end).map((line) => `+ ${line}`),
    ...now
      .slice(now.length - end)
      .slice(0, 3)
      .map((line) => `  ${line}`),
  ];
}

/** Writes the file, and returns the name of its backup; null for a new file. */
export async function writeInstall({
  file,
  before,
  after,
}: PlannedInstall): Promise<string | null> {
  const backup = `${file}.${new Date()
    .toISOString()
    .replaceAll(/[^0-9]/g, '')
    .slice(0, 17)}.bak`;
  if (before !== '') await copyFile(file, backup, constants.COPYFILE_EXCL);
  await writeOutput(file, utf8(after));
  return before === '' ? null : backup;
}
