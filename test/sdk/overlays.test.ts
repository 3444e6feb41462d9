import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { admitHttp } from '#sdk/index';
import { issueKey } from '../fixtures/engine.js';
import { NO_DELETIONS, overlayCase } from '../fixtures/overlays.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { sdkTest } from '../fixtures/sdk-world.js';
import { openFolder, svc } from '../fixtures/svc.js';

const it = sdkTest();
const deletion = {
  kind: 'admission',
  agent: { id: 'agent-7' },
  action: 'DELETE_RECORD',
} as const;

it('svc overlay stores, tests, activates and deactivates the rules of a folder', async ({
  world,
}) => {
  const folder = await openFolder();
  const write = (file: string, text: string) => writeFile(join(folder.path, file), text);
  await mkdir(join(folder.path, 'rules'));
  await write('rules/no-deletions.cedar', NO_DELETIONS);
  await write('good.json', JSON.stringify([overlayCase()]));
  await write('failing.json', JSON.stringify([overlayCase('OTHER')]));
  const env = {
    SVC_ENGINE_URL: world.engine.url,
    SVC_TENANT_ID: world.options.tenantId,
    SVC_API_KEY: await issueKey(world.registry, { scopes: ['policy'] }),
  };
  const overlay = (...args: string[]) =>
    svc(['overlay', ...args, '--json'], { cwd: folder.path, env });
  const admitted = await admitHttp(world.options, deletion);

  const { lines } = await overlay('put', '--rules', 'rules');
  const id = String(lines[0]?.['overlay_id']);
  const tested = await overlay('test', '--id', id, '--cases', 'good.json');
  expect(tested).toMatchObject({ code: 0, lines: [{ cases: { failed: 0 } }] });
  const failing = await overlay('test', '--id', id, '--cases', 'failing.json');
  expect(failing).toMatchObject({ code: 1, lines: [{ cases: { failed: 1 } }] });
  const since = await overlay('test', '--id', id, '--since', '2026-01-01T00:00:00.000Z');
  const changes = [
    { proof_id: admitted.registry_proof_id, simulated: 'DENY [overlay.no-deletions]' },
  ];
  expect(since).toMatchObject({ code: 0, lines: [{ simulation: { denied: 1, changes } }] });
  const untested = await overlay('activate', '--id', id, '--cases', 'failing.json');
  expect(untested.code).toBe(3);
  expect(untested.stderr).toContain('overlay_untested');

  expect(await overlay('activate', '--id', id, '--cases', 'good.json')).toMatchObject({ code: 0 });
  await sdkError(admitHttp(world.options, deletion), 'policy_denied');
  const listed = await svc(['list', 'overlays', '--json'], { env });
  expect(listed.lines).toMatchObject([{ overlay_id: id, active: true }]);
  expect(await overlay('deactivate', '--id', id)).toMatchObject({ code: 0 });
  await admitHttp(world.options, deletion);
  for (const line of [
    ['list'],
    ['put'],
    ['test'],
    ['activate', '--id', id],
    ['put', '--rules', 'none'],
  ]) {
    expect(await overlay(...line)).toMatchObject({ code: 2 });
  }
  await folder.remove();
});
