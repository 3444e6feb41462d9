import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { openFolder, svc, type Folder } from '../fixtures/svc.js';

let folder: Folder;
let file: string;
beforeAll(async () => {
  folder = await openFolder();
  file = join(folder.path, 'config.json');
  env.SVC_API_KEY_FILE = join(folder.path, await folder.write('key', 'svc_sk_secret'));
});

const env = {
  SVC_ENGINE_URL: 'http://127.0.0.1:8080',
  SVC_TENANT_ID: 'demo',
  SVC_API_KEY_FILE: '',
};
const install = (args: string[], more: Record<string, string> = env) =>
  svc(['mcp', 'install', ...args], { env: more, cwd: folder.path });
const config = async () => JSON.parse(await readFile(file, 'utf8')) as Record<string, unknown>;

const EXISTING = `{
    "theme": "dark",
    "mcpServers": {
        "files": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/data"],
            "env": { "OWN": "kept" }
        },
        "web": { "url": "https://mcp.example/mcp" }
    }
}
`;

describe('svc mcp install', () => {
  it('wraps a server, prints the change, and keeps a backup and everything else', async () => {
    await writeFile(file, EXISTING);
    // A user may make this file private, because configurations contain keys of servers.
    await chmod(file, 0o600);
    const given = ['cursor', '--name', 'files', '--file', file, '--map', 'map.json', '--observe'];
    given.push('--run', '--timeout', '7');
    const planned = await install([...given, '--dry-run']);
    expect(planned.code).toBe(0);
    expect(await readFile(file, 'utf8')).toBe(EXISTING);
    const ran = await install(given);
    expect(ran.stdout).toBe(planned.stdout);
    expect(ran.stdout).toMatch(/^- {13}"command": "npx"/m);
    expect(ran.stdout).toMatch(/^\+ {17}"@modelcontextprotocol\/server-filesystem"/m);
    expect(await config()).toEqual({
      theme: 'dark',
      mcpServers: {
        files: {
          command: process.execPath,
          args: [
            process.argv[1],
            'mcp',
            ...['--agent', 'svc-mcp', '--timeout', '7'],
            ...['--map', join(folder.path, 'map.json'), '--observe', '--run', '--'],
            ...['npx', '-y', '@modelcontextprotocol/server-filesystem', '/srv/data'],
          ],
          env: { OWN: 'kept', ...env },
        },
        web: { url: 'https://mcp.example/mcp' },
      },
    });
    const [backup = ''] = (await readdir(folder.path)).filter((name) => name.endsWith('.bak'));
    expect(await readFile(join(folder.path, backup), 'utf8')).toBe(EXISTING);
    for (const one of [file, join(folder.path, backup)]) {
      expect((await stat(one)).mode & 0o777).toBe(0o600);
    }
    const again = await install(given);
    expect(again.stderr).toContain('already runs behind svc mcp');
  });

  it('wraps a URL, and adds a server that the file does not have', async () => {
    await writeFile(file, EXISTING);
    const backups = async () => (await readdir(folder.path)).filter((one) => one.endsWith('.bak'));
    const before = await backups();
    expect((await install(['cursor', '--name', 'web', '--file', file])).code).toBe(0);
    const added = ['vscode', '--name', 'new', '--file', file, '--', 'node', 'server.js', '--flag'];
    expect((await install(added)).code).toBe(0);
    // The second change does not replace the backup of the first, also within one second.
    expect(await backups()).toHaveLength(before.length + 2);
    expect(await config()).toMatchObject({
      mcpServers: {
        web: { args: expect.arrayContaining(['--', 'https://mcp.example/mcp']) as string[] },
      },
      servers: {
        new: {
          type: 'stdio',
          args: expect.arrayContaining(['--', 'node', 'server.js', '--flag']) as string[],
        },
      },
    });
    const missing = await install(['cursor', '--name', 'no-such', '--file', file]);
    expect([missing.code, missing.stderr]).toEqual([
      2,
      expect.stringContaining('no server no-such'),
    ]);
  });

  it('does not change files that are not plain JSON, and writes no key', async () => {
    for (const text of ['{ // a comment\n}', '{"a":1,"a":2}', '[]']) {
      await writeFile(file, text);
      const ran = await install(['cursor', '--name', 'a', '--file', file, '--', 'server']);
      expect(ran.code).toBe(2);
      expect(await readFile(file, 'utf8')).toBe(text);
    }
    const keyed = { ...env, SVC_API_KEY_FILE: '', SVC_API_KEY: 'svc_sk_secret' };
    const ran = await install(['cursor', '--name', 'a', '--file', file, '--', 'server'], keyed);
    expect([ran.code, ran.stderr]).toEqual([
      2,
      expect.stringContaining('must not contain the key'),
    ]);
  });
});
