import { describe, expect, it } from 'vitest';
import { startHeartbeat } from '#programs/database';
import { logger } from '#runtime/process/log';
import type { Readiness } from '#runtime/ops/health';
import { publishing, readHeartbeats } from '#sql/ops/heartbeats';
import { testRegistry } from './world.js';

const { db } = await testRegistry();

describe('startHeartbeat', () => {
  it('never replaces a later heartbeat with an earlier one that took longer', async () => {
    const stop = new AbortController();
    const finds: ((readiness: Readiness) => void)[] = [];
    const find = () => new Promise<Readiness>((resolve) => finds.push(resolve));
    const report = (n: number): Readiness => ({ ready: true, details: { n } });
    const context = { signal: stop.signal, log: logger('test', 'silent') };
    const started = startHeartbeat(db.as('svc_engine'), find, context);
    await expect.poll(() => finds.length).toBe(1);
    finds[0]!(report(0));
    const beat = await started;
    const [earlier, later] = [beat(), beat()];
    await expect.poll(() => finds.length).toBe(2);
    finds[1]!(report(1));
    await earlier;
    await expect.poll(() => finds.length).toBe(3);
    finds[2]!(report(2));
    await later;
    const [recorded] = await readHeartbeats(db.as('svc_admin'));
    expect(recorded?.readiness).toEqual({ n: 2 });
    stop.abort();
  });
});

it.each([
  [1, 2],
  [2, 1],
])('publishing > returns the latest error of several publishers', (forked, behind) => {
  const refusals = { log_forked: forked, database_behind: behind };
  const heartbeats = Object.entries(refusals).map(([refused, beatAt]) => ({
    ...{ program: 'publisher', startedAt: 0 },
    beatAt,
    readiness: { refused },
  }));
  expect(publishing(heartbeats).refused).toBe(behind > forked ? 'database_behind' : 'log_forked');
});
