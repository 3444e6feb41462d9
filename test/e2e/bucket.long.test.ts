import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { executeReceiptSchema } from '#protocol/schemas/admission';
import { adminWith, done } from '../fixtures/admin.js';
import { breakNetwork, type BrokenNetwork } from '../fixtures/broken-network.js';
import { checked } from '../fixtures/damaged-copies.js';
import { awsSettings, BUCKET, skipsS3, startS3 } from '../fixtures/s3-server.js';
import { startProgram } from '../fixtures/program.js';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';
import { pinning } from '../fixtures/pins.js';

const where = `s3://${BUCKET}/2026/log`;

describe.skipIf(skipsS3)('a stack whose snapshot is in a bucket', () => {
  let server: Awaited<ReturnType<typeof startS3>>;
  let network: BrokenNetwork;
  let stack: RunningStack;

  beforeAll(async () => {
    server = await startS3();
    network = await breakNetwork(server.url);
    stack = await startStack({ SNAPSHOT_STORE: where, ...awsSettings(network.url) });
  }, 90_000);
  afterAll(async () => {
    await stack.destroy();
    await network.close();
    await server.stop();
  });

  const admit = async (intent_id: string): Promise<string> => {
    const answer = await stack.execute({ intent_id, action: 'SEND_EMAIL' });
    return executeReceiptSchema.parse(await answer.json()).registry_proof_id;
  };
  const statusOf = async (id: string): Promise<string> => {
    const body = (await (await stack.lookUp(id)).json()) as {
      verification?: { verification_status: string };
    };
    return body.verification?.verification_status ?? '';
  };
  const untilValid = (id: string) =>
    eventually(
      async () => ((await statusOf(id)) === 'VALID' ? true : null),
      30_000,
      `the public verdict of ${id}`,
    );

  it('gives public verdicts, even after the publisher was killed during an upload', async () => {
    await untilValid(await admit('one'));
    network.seen.length = 0;
    network.faults.push({ kind: 'silent', on: /^PUT .*\/map\// });
    const id = await admit('two');
    await eventually(() => Promise.resolve(network.faults[0] ? null : true), 10_000, 'an upload');
    stack.kill('publisher');
    await untilValid(id);
  }, 60_000);

  it('passes the checks of fsck and admin log lost', async () => {
    const keys = await fetch(`${stack.publicUrl}/api/public/keys`);
    const { log } = (await keys.json()) as { log: { vkey: string } };
    const port = stack.lines.find((line) => line['cluster'] !== undefined)?.['port'];
    const databaseUrl = async (role: string): Promise<string> => {
      await stack.superuser().unsafe(`alter role ${role} login password 'test'`);
      return `postgres://${role}:test@127.0.0.1:${String(port)}/svc`;
    };
    const { code, corrupt, err } = await checked({
      DATABASE_URL: await databaseUrl('svc_fsck'),
      SNAPSHOT_STORE: where,
      ...pinning(log.vkey),
      DATA_DIR: stack.dataDir,
    });
    expect({ code, corrupt, err }).toEqual({ code: 0, corrupt: {}, err: '' });
    const admin = adminWith({ DATABASE_URL: await databaseUrl('svc_admin') });
    const compared = await done(admin('log', 'lost', where, '--vkey', log.vkey));
    expect(compared).toMatchObject({ lost: [], common: expect.any(Number) as number });
  }, 60_000);

  it('lets a monitor read the snapshot from the bucket, and report a mirror without a checkpoint', async () => {
    const keys = await fetch(`${stack.publicUrl}/api/public/keys`);
    const { log } = (await keys.json()) as { log: { vkey: string } };
    const monitor = await startProgram('monitor', {
      MONITOR_URL: where,
      MONITOR_MIRRORS: `s3://${BUCKET}/nowhere`,
      MONITOR_DIR: join(stack.dataDir, 'monitor-of-the-bucket'),
      ...awsSettings(server.url),
      ...pinning(log.vkey),
    });
    expect(await monitor.stop()).toBe(0);
    const lines = monitor.stderr.map((line) => JSON.parse(line) as Record<string, unknown>);
    const findings = lines.flatMap(({ finding }) => (finding ?? []) as { code: string }[]);
    expect(findings.filter(({ code }) => code !== 'key_entry')).toMatchObject([
      { code: 'state_missing' },
      { code: 'checkpoint_missing', where: `s3://${BUCKET}/nowhere` },
    ]);
    const passed = lines.find(({ msg }) => msg === 'monitor: first pass complete');
    expect(passed?.['leaves']).toBeGreaterThan(0);
  }, 60_000);

  it('keeps its last verdicts and logs the bucket as unreachable during an outage of the bucket', async () => {
    const id = await admit('three');
    await untilValid(id);
    await server.stop();
    await eventually(
      () =>
        Promise.resolve(
          stack.lines.find((line) => JSON.stringify(line).includes(`${where}: `)) ?? null,
        ),
      60_000,
      'a log line that names the bucket',
    );
    expect(await statusOf(id)).toBe('VALID');
  }, 90_000);
});
