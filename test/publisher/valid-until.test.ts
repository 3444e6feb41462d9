import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { formatTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import { useSnapshot } from '../fixtures/use-registry.js';

/** Tests until when the last snapshot may be reported as valid. */

const VALID_FOR = 15 * 60_000;

const snapshot = useSnapshot();
let publisher: Publisher;
beforeEach(() => {
  snapshot.registry.addProofs(6);
  publisher = snapshot.publisher();
});

const validUntil = async () => (await snapshot.published()).opened.validUntil;

describe('validity of a snapshot', () => {
  it('ends SNAPSHOT_TTL after the expiries that the last verdict entry covers', async () => {
    const { registry, clock } = snapshot;
    const through = clock.at - 60_000;
    registry.verifierCheckedAt = through;
    registry.verify();
    await publisher.runCycle();
    expect(await validUntil()).toBe(through + VALID_FOR);
    expect((await snapshot.published()).log.expired_through).toBe(formatTime(through));
    const before = readFileSync(join(snapshot.directory, 'lookup/snapshot'));
    const { size } = registry;

    clock.at = through + VALID_FOR;
    registry.addProof();
    registry.share('proof', registry.addProof());
    const silent = { outcome: 'verifier_silent', expired_through: formatTime(through) };
    expect(await publisher.runCycle()).toEqual(silent);
    registry.verify();
    expect(await publisher.runCycle()).toEqual(silent);
    expect(readFileSync(join(snapshot.directory, 'lookup/snapshot'))).toEqual(before);
    expect(registry.size).toBe(size + 3);

    registry.verifierCheckedAt = clock.at - 200;
    registry.verify();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published' });
    expect(await validUntil()).toBe(clock.at - 200 + VALID_FOR);
  });

  it("is not extended when the clock of the publisher's host is behind", async () => {
    const { registry, clock } = snapshot;
    registry.verify();
    const own = clock.at - 60_000;
    publisher = snapshot.publisher({ clock: { now: () => own } });
    await publisher.runCycle();
    expect(await validUntil()).toBe(own + VALID_FOR);
  });

  it("has no gap while the clock of the publisher's host is behind", async () => {
    const { registry, clock } = snapshot;
    const late = { now: () => clock.at - 10 * 60_000 };
    publisher = snapshot.publisher({ clock: late });
    for (let second = 0; second < 15 * 60; second += 10) {
      clock.at += 10_000;
      registry.verifierCheckedAt = clock.at;
      if (second % 450 === 0) registry.verify();
      await publisher.runCycle();
      expect(await validUntil()).toBeGreaterThan(clock.at);
    }
  });

  it("is not signed when the clock of the publisher's host is far behind: the cycle fails with this cause", async () => {
    snapshot.registry.verify();
    const own = snapshot.clock.at - VALID_FOR;
    publisher = snapshot.publisher({ clock: { now: () => own } });
    await expect(publisher.runCycle()).rejects.toThrow('the clock of this publisher is far behind');
  });

  it('is at most 24 hours', async () => {
    snapshot.registry.verify();
    publisher = snapshot.publisher({ snapshotTtlMs: 3 * 24 * 60 * 60_000 });
    await publisher.runCycle();
    expect(await validUntil()).toBe(snapshot.clock.at + 24 * 60 * 60_000);
  });
});
