import { mkdir, mkdtemp, readdir, realpath, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, posix } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { NOT_ADMITTED_META } from '#sdk/adapters/mcp';
import { describe as describeCall } from '#sdk/cli/mcp/mapping';
import { normalPath } from '#sdk/cli/mcp/mapping';
import { useAdapterWorld } from '../fixtures/adapter-world.js';
import { activateApprovalSet, activateSet } from '../fixtures/approval-world.js';
import { metaOf, ownServer, published, textOf, useProxies } from '../fixtures/mcp-proxy.js';
import { openApprover } from '../fixtures/sdk-world.js';

const world = useAdapterWorld();
const proxies = useProxies(world);

/** Activates the example set, with `folder` in place of the documented folder. */
async function activateFileSet(folder: string): Promise<void> {
  const example = join(packageRoot, 'examples', 'policies', 'mcp-filesystem');
  const { policies, ...rest } = await readPolicyFolder(example);
  const moved = Object.entries(policies).map(([id, text]) => [
    id,
    text.replaceAll('/srv/reports', folder),
  ]);
  await activateSet(world.registry.admin, {
    ...rest,
    policies: Object.fromEntries(moved) as Record<string, string>,
  });
}

describe('examples/policies/mcp-filesystem with server-filesystem', () => {
  const MAP = join(packageRoot, 'examples', 'mcp', 'filesystem.json');

  it('writes only below one folder, however a path is spelled', async () => {
    const base = await realpath(await mkdtemp(join(tmpdir(), 'svc-files-')));
    const reports = join(base, 'reports');
    for (const name of ['reports/sub', 'reports-old']) {
      await mkdir(join(base, name), { recursive: true });
    }
    await activateFileSet(reports);
    const { client } = await proxies.v1({
      target: published('filesystem', base),
      options: ['--map', MAP],
    });
    const write = (path: string) =>
      client.callTool({ name: 'write_file', arguments: { path, content: 'text' } });

    expect((await write(`${reports}/one.txt`)).isError).toBeUndefined();
    expect((await write(`${reports}/.//Übersicht 2.txt`)).isError).toBeUndefined();
    const attacks = [
      `${base}/out.txt`,
      `${reports}-old/out.txt`,
      `${reports}/../out.txt`,
      `${reports}/sub/../in.txt`,
      `${reports}/sub/../../out.txt`,
      `${reports}//..//out.txt`,
      `${reports}/%2e%2e/out.txt`,
      `${reports}/..%2fout.txt`,
      `${reports}/%252e%252e/out.txt`,
      `${reports}/..\\out.txt`,
      `${reports}/\u2025/out.txt`,
      `${reports}/\uff0e\uff0e\uff0fout.txt`,
      `${reports}/..\u2215out.txt`,
      `${reports}/.\u200b./out.txt`,
      `${base}/rep\u043erts/out.txt`,
      `${reports}\u0000/../out.txt`,
      `"${base}/out.txt"`,
      `'${reports}/../out.txt'`,
      ` ${base}/out.txt`,
      `~/out.txt`,
      `file://${base}/out.txt`,
      `out.txt`,
      `../out.txt`,
      `${reports.slice(1)}/out.txt`,
      `${base}/REPORTS/out.txt`,
    ];
    for (const path of attacks) {
      const answer = await write(path).catch((error: Error) => error);
      const code = answer instanceof Error ? 'policy_denied' : metaOf(answer, NOT_ADMITTED_META);
      expect([path, code]).toEqual([path, 'policy_denied']);
    }
    for (const args of [{ content: 'x' }, { path: [`${reports}/x`], content: 'x' }]) {
      const answer = await client.callTool({ name: 'write_file', arguments: args });
      expect(metaOf(answer, NOT_ADMITTED_META)).toBe('policy_denied');
    }
    const move = { source: `${reports}/one.txt`, destination: `${base}/out.txt` };
    expect(await client.callTool({ name: 'move_file', arguments: move })).toMatchObject({
      isError: true,
    });
    expect((await readdir(base, { recursive: true })).sort()).toEqual([
      'reports',
      'reports-old',
      'reports/one.txt',
      'reports/sub',
      'reports/Übersicht 2.txt',
    ]);
    const listed = await client.callTool({ name: 'list_directory', arguments: { path: base } });
    expect(textOf(listed)).toContain('[DIR] reports');

    // The documented limit: a gate in front of a server cannot see symbolic links.
    await symlink(join(base, 'reports-old'), join(reports, 'link'));
    expect((await write(`${reports}/link/out.txt`)).isError).toBeUndefined();
    expect(await readdir(join(base, 'reports-old'))).toEqual(['out.txt']);
  });

  it('normalPath returns a path of the same file, or undefined', () => {
    // After a symbolic link, `..` leads to a folder other than the path suggests.
    expect(normalPath('/srv/reports/link/../a.txt')).toBeUndefined();
    // Rules that forbid a folder hold for other spellings that a server or file system reads alike.
    for (const alike of ['\uff53ecret', 'e\u0301', 'secret\ufe0f', 'secret.', 'sec\u00adret']) {
      expect(normalPath(`/srv/${alike}`)).toBeUndefined();
    }
    const step = fc.constantFrom(
      '..',
      '.',
      '',
      'a',
      'b c',
      '%2e',
      '\u2025',
      ' ',
      '...',
      'x\\y',
      '~',
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 8 }), fc.boolean(), (steps, isAbsolute) => {
        const path = (isAbsolute ? '/' : '') + steps.join('/');
        const found = normalPath(path, '/srv/root');
        if (found !== undefined) expect(found).toBe(posix.resolve('/srv/root', path));
        if (/[%\\\u2025]/.test(path)) expect(found).toBeUndefined();
      }),
    );
  });
});

describe('svc mcp --wait-for-approval', () => {
  const refund = { name: 'refund', arguments: { amount: '480.00', currency: 'EUR' } };
  const facts = {
    amount: { pointer: '/amount', type: 'decimal' },
    currency: { pointer: '/currency', type: 'string' },
  };
  const map = () => proxies.mapping({ refund: { action: 'ISSUE_REFUND', facts } });

  it('reports progress, and runs the tool only after the approval', async () => {
    await activateApprovalSet(world.registry);
    const decide = await openApprover(world);
    const { client } = await proxies.v1({
      target: ownServer('deploy.mjs'),
      options: ['--map', await map(), '--wait-for-approval', '20'],
    });
    const messages: string[] = [];
    const onprogress = ({ message = '' }) => void messages.push(message);
    const call = () => client.callTool(refund, undefined, { onprogress });
    for (const decision of ['reject', 'approve'] as const) {
      const calling = call();
      await expect.poll(() => messages.length).toBeGreaterThan(0);
      const [, proof = ''] =
        /\/approve#([0-9a-f]{32}), or run svc approve/.exec(messages[0]!) ?? [];
      expect(await proxies.ran()).toEqual([]);
      await decide(proof, decision);
      const result = await calling;
      if (decision === 'approve') expect(textOf(result)).toBe('refunded 480.00');
      else expect(metaOf(result, NOT_ADMITTED_META)).toBe('policy_denied');
      messages.length = 0;
    }
    expect(await proxies.ran()).toEqual(['refund 480.00']);
  });
});

describe('svc mcp --map', () => {
  it('states no fact from an argument whose name is also present in another spelling', () => {
    const facts = { path: { pointer: '/file/path', type: 'path' as const } };
    const mapping = { tools: { write: { facts, hashed: ['file'] } } };
    const file = { path: '/srv/a' };
    expect(describeCall(mapping, 'write', { file, other: 1 })).toEqual({
      facts: { path: '/srv/a' },
      hashed: { file },
    });
    for (const given of [{ file, FILE: { path: '/etc' } }, { file: { ...file, PATH: '/etc' } }]) {
      expect(describeCall(mapping, 'write', given)).toEqual({ hashed: given });
    }
  });

  it.each([
    ['{"tools":{"a":{"facts":{"a":{"pointer":"a","type":"string"}}}}}', 'JSON Pointer'],
    ['{"tools":{},"tools":{}}', 'duplicate'],
  ])('rejects %s', async (text, reason) => {
    const file = join(proxies.folder(), 'bad.json');
    await writeFile(file, text);
    const host = proxies.raw({ target: ownServer('deploy.mjs'), options: ['--map', file] });
    expect(await host.close()).toBe(2);
    expect(host.stderr()).toContain(reason);
  });
});
