import { describe, expect } from 'vitest';
import { startHeartbeat } from '#programs/heartbeat';
import { logger } from '#runtime/process/log';
import type { Readiness } from '#runtime/ops/health';
import { publishing, readHeartbeats, type Heartbeat } from '#sql/ops/heartbeats';
import { it } from './fixture.js';

describe('startHeartbeat', () => {
  it('never replaces a later report with an earlier one that took longer', async ({ db }) => {
    const stop = new AbortController();
    const finds: ((readiness: Readiness) => void)[] = [];
    const find = () => new Promise<Readiness>((resolve) => finds.push(resolve));
    const report = (n: number): Readiness => ({ ready: true, says: { n } });
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

describe("a publisher's heartbeat", () => {
  const publisher = (beatAt: number, refused: string): Heartbeat => ({
    program: 'publisher',
    startedAt: 0,
    beatAt,
    readiness: { refused },
  });

  it.each([
    [publisher(1, 'log_forked'), publisher(2, 'database_behind')],
    [publisher(2, 'database_behind'), publisher(1, 'log_forked')],
  ])('reports the latest refusal of several publishers', (...heartbeats) => {
    expect(publishing(heartbeats).refused).toBe('database_behind');
  });
});
