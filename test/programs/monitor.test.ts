import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { freePort } from '../fixtures/free-port.js';
import { startProgram } from '../fixtures/program.js';
import { ServedLog } from '../fixtures/served-log.js';
import { testFolder } from '../fixtures/test-folder.js';
import { pinning } from '../fixtures/pins.js';

const home = await testFolder();
const log = await ServedLog.open({ isLive: true });
await log.snapshotAll();
await log.writeTo(join(home, 'public'));
const opsPort = await freePort();
const settings = {
  MONITOR_URL: join(home, 'public'),
  MONITOR_DIR: join(home, 'monitor'),
  MONITOR_INTERVAL: '100ms',
  OPS_PORT: String(opsPort),
  ...pinning(log.keys.log.vkey),
};
const monitor = await startProgram('monitor', settings);
afterAll(() => monitor.kill());

const metric = async (name: string): Promise<number> => {
  const text = await (await fetch(`http://127.0.0.1:${String(opsPort)}/metrics`)).text();
  return Number(new RegExp(`^${name}\\{.*\\} (\\S+)$`, 'm').exec(text)?.[1]);
};

it('monitor > raises the metric of its alert when the log commits to a false map', async () => {
  expect(await metric('svc_monitor_log_leaves')).toBe(11);
  expect(await metric('svc_monitor_alarms')).toBe(0);
  await log.snapshotAll((values) => values.clear());
  await log.writeTo(join(home, 'public'));
  // Files appear one by one, so a poll in between reports a damaged log first.
  const logged = () => monitor.stderr.join('\n');
  await expect.poll(logged, { timeout: 10_000 }).toContain('map_root_differs');
  await expect.poll(() => metric('svc_monitor_alarms'), { timeout: 10_000 }).toBe(1);
  expect(await monitor.stop()).toBe(0);
});

it('monitor > names MONITOR_DIR when it cannot write there', async () => {
  const unusable = { ...settings, OPS_PORT: '0', MONITOR_DIR: join(home, 'public', 'checkpoint') };
  const { exited, stderr } = await startProgram('monitor', unusable);
  expect(await exited).toBe(1);
  expect(stderr.join('\n')).toContain('set MONITOR_DIR to a directory that this user can write');
});
