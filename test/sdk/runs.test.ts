import { expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { admitHttp, exportRunHttp, listProofPageHttp, readRunHttp } from '#sdk/index';
import { newRunId } from '../fixtures/agent.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { sdkTest, type SdkWorld } from '../fixtures/sdk-world.js';
import { openFolder, svc } from '../fixtures/svc.js';

const agent = 'agent-7';

/** A run of two requests and its close, under a checkpoint. */
async function closedRun({ options, log }: SdkWorld) {
  const id = newRunId();
  const send = (seq: number) =>
    admitHttp(options, {
      ...{ kind: 'admission', agent: { id: agent }, action: 'BOOK', run: { id, seq } },
    });
  const receipts = [await send(0), await send(1)];
  await admitHttp(options, { kind: 'close', agent: { id: agent }, run: { id, seq: 2 } });
  await log.publish();
  return { id, members: receipts.map(({ registry_proof_id: proof }) => proof) };
}

const it = sdkTest().extend<{ run: Awaited<ReturnType<typeof closedRun>> }>({
  run: [async ({ world }, use) => use(await closedRun(world)), { scope: 'file' }],
});

it('readRunHttp and listProofPageHttp > return the requests of a run', async ({ run, world }) => {
  const { response } = await readRunHttp(world.options, { run: run.id, agent });
  expect(response).toMatchObject({ state: 'closed', missing: [] });
  expect(response.members.map(({ proof_id }) => proof_id)).toEqual(run.members);
  const listed = await listProofPageHttp(world.options, { run: run.id, agent, bound: false });
  const ids = listed.proofs.map(({ proof_id }) => proof_id);
  expect(ids).toEqual([response.close_proof_id, ...run.members.toReversed()]);
  await sdkError(readRunHttp(world.options, { run: run.id, agent: 'other' }), 'not_found');
  await sdkError(readRunHttp(world.shaky, { run: '../proofs', agent }), 'invalid_input');
});

it('exportRunHttp > rejects the package of another run', async ({ run, world }) => {
  const other = await closedRun(world);
  const { response } = await exportRunHttp(world.options, { run: other.id, agent });
  world.network.faults.push({ kind: 'changed', change: () => JSON.stringify(response) });
  await sdkError(exportRunHttp(world.shaky, { run: run.id, agent }), 'unexpected_response');
});

it('svc > exports a run, and verifies it offline', async ({ run, world }) => {
  const folder = await openFolder();
  const { apiKey, engineUrl, tenantId } = world.options;
  const env = { SVC_ENGINE_URL: engineUrl, SVC_API_KEY: apiKey, SVC_TENANT_ID: tenantId };
  const command = (...args: string[]) => svc(args, { cwd: folder.path, env });
  const pins = ['--log-vkey', world.log.vkey, '--log-origin', world.log.origin];
  const key = toBase64Url(world.registry.admit.signer.publicKey);
  const verify = ['verify', 'run.json', '--offline', '--aep-key', key];
  expect(await command('export', run.id, '--agent', agent, '-o', 'run.json')).toMatchObject({
    code: 0,
  });
  const verified = await command(...verify, ...pins);
  expect(verified).toMatchObject({ code: 0 });
  expect(verified.stdout).toContain(`${run.id} of ${agent} (claimed by the caller)`);
  for (const member of run.members) {
    expect(verified.stdout).toMatch(new RegExp(`${member}.*, agent claimed by the caller`));
  }
  expect(await command(...verify)).toMatchObject({ code: 3 });
  const pdf = await command('export', run.id, '--agent', agent, '--format', 'pdf');
  expect(pdf).toMatchObject({ code: 2 });
  await folder.remove();
});
