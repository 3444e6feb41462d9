import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { PROOF_PARTS } from '#protocol/snapshot/manifest';
import { formatTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import { PublishedGrants } from '../fixtures/published.js';
import { useSnapshot } from '../fixtures/use-registry.js';

/** How long the last snapshot may be reported as valid. */

const snapshot = useSnapshot();
let published: PublishedGrants;
let publisher: Publisher;
let ids: string[];
beforeEach(async () => {
  published = new PublishedGrants(snapshot);
  ids = snapshot.registry.addProofs(6);
  snapshot.registry.verify();
  publisher = snapshot.publisher();
  await publisher.runCycle();
});

const tick = async () => {
  snapshot.clock.at += 1000;
  return publisher.runCycle();
};

describe('validity of the snapshot while the verifier is silent', () => {
  const VALID_FOR = 15 * 60_000;
  const manifestBytes = () => readFileSync(join(snapshot.directory, 'lookup/manifest'));
  const validUntil = async () => (await published.manifest()).valid_until;

  it('ends SNAPSHOT_TTL after the last expiry scan', async () => {
    const { registry, clock } = snapshot;
    const verifierCheckedAt = clock.at;
    registry.verifierCheckedAt = verifierCheckedAt;
    clock.at = verifierCheckedAt + 60_000;
    await publisher.runCycle();
    expect(await validUntil()).toBe(formatTime(verifierCheckedAt + VALID_FOR));
    clock.at = verifierCheckedAt + VALID_FOR - 1;
    await publisher.runCycle();
    expect((await published.manifest()).issued_at).toBe(formatTime(clock.at));
    expect(await validUntil()).toBe(formatTime(verifierCheckedAt + VALID_FOR));
    const before = manifestBytes();
    const checkpoints = registry.checkpoints.length;

    clock.at = verifierCheckedAt + VALID_FOR;
    registry.addProof();
    registry.verify();
    const silent = { outcome: 'verifier_silent', looked_at: formatTime(verifierCheckedAt) };
    expect(await publisher.runCycle()).toEqual(silent);
    clock.at += 3_600_000;
    expect(await publisher.runCycle()).toEqual(silent);
    expect(manifestBytes()).toEqual(before);
    expect(registry.checkpoints).toHaveLength(checkpoints);

    registry.verifierCheckedAt = clock.at - 200;
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', newProofs: 1 });
    expect(await validUntil()).toBe(formatTime(clock.at - 200 + VALID_FOR));
  });

  it('prevents a first snapshot when no expiry scan has completed', async () => {
    const { registry } = snapshot;
    await publisher.close();
    rmSync(snapshot.directory, { recursive: true });
    registry.verifierCheckedAt = null;
    publisher = snapshot.publisher();
    expect(await tick()).toEqual({ outcome: 'verifier_silent', looked_at: null });
    expect(existsSync(join(snapshot.directory, 'lookup'))).toBe(false);
    expect(existsSync(join(snapshot.directory, 'checkpoint'))).toBe(false);
  });

  it("is not extended when the verifier's clock is ahead", async () => {
    snapshot.registry.verifierCheckedAt = snapshot.clock.at + 3_600_000;
    await publisher.runCycle();
    expect(await validUntil()).toBe(formatTime(snapshot.clock.at + VALID_FOR));
  });

  it('is computed from a scan time that the publisher reads before the verdicts', async () => {
    const asked: string[] = [];
    snapshot.registry.onCall = (what) => asked.push(what);
    await tick();
    expect(asked[0]).toBe('expiryScanDoneAt');
  });

  it('may expire during a long publish cycle, and the next cycle continues', async () => {
    const { registry, clock } = snapshot;
    registry.addProof();
    registry.verify();
    registry.verifierCheckedAt = clock.at;
    registry.onCall = (what) => {
      if (what === 'leaves') clock.at += VALID_FOR;
    };
    const began = clock.at;
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', newProofs: 1 });
    const { issued_at, valid_until } = await published.manifest();
    expect([issued_at, valid_until]).toEqual([formatTime(began), formatTime(began + VALID_FOR)]);
    expect(clock.at).toBeGreaterThanOrEqual(began + VALID_FOR);
    registry.verifierCheckedAt = undefined;
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', newProofs: 0 });
    expect(await validUntil()).toBe(formatTime(clock.at + VALID_FOR));
  });
});

describe('changes beyond the limit per publish cycle', () => {
  const VALID_FOR = 15 * 60_000;
  const ends = async () => Date.parse((await published.manifest()).valid_until);

  it('keep validity from being extended until every verdict is published', async () => {
    const { registry, clock } = snapshot;
    const until = await ends();
    for (let i = 0; i < 40_000; i++) registry.recordVerdict(ids[0]!);
    registry.recordVerdict(ids[1]!, { expired: ['proof'] });
    await tick();
    expect(await ends()).toBe(until);
    // The last snapshot has expired, so the publisher continues, and its snapshot is not valid.
    clock.at = until + 1000;
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', changedRecords: 0 });
    expect(await ends()).toBe(until);
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', changedRecords: 1 });
    expect(await ends()).toBe(clock.at + VALID_FOR);
  });

  it('delay no other change when they are proofs that a compromised key voids', async () => {
    const { registry, clock } = snapshot;
    registry.addKeyEntry('compromise', 3);
    registry.verify();
    for (let i = 0; i < 40_000; i++) {
      registry.recordVerdict(ids[2]!, { outcome: 'fail', failedChecks: ['signing_key'] });
    }
    registry.recordVerdict(ids[0]!, { expired: ['proof'] });
    await tick();
    expect(await ends()).toBe(clock.at + VALID_FOR);
    const { verdict_cursor: cursor } = await published.manifest();
    expect(cursor).toBeLessThan(await registry.lastVerdictId());
    const found = await published.place(PROOF_PARTS, ids[0]!);
    expect(Buffer.from(found!.record).toString('latin1')).toContain(
      '"verification_status":"EXPIRED"',
    );
    // The expiry that follows them is published once.
    expect(await tick()).toMatchObject({ outcome: 'published', changedRecords: 0 });
    expect(await ends()).toBe(clock.at + VALID_FOR);
  });

  it('keep validity from being extended when they are proofs by an active key', async () => {
    const { registry } = snapshot;
    const ofOtherKey = registry.addProof({ keyId: 'A'.repeat(43) });
    registry.addKeyEntry('compromise', 3);
    registry.verify();
    await tick();
    const until = await ends();
    for (let i = 0; i < 20_001; i++) {
      registry.recordVerdict(ofOtherKey, { outcome: 'fail', failedChecks: ['signing_key'] });
    }
    await tick();
    expect(await ends()).toBe(until);
  });

  it('keep validity from being extended when they are tokens and packages, unless a member is unpublished', async () => {
    const { registry, clock } = snapshot;
    const until = await ends();
    for (let i = 0; i < 20_001; i++) registry.share('proof', ids[0]!);
    await tick();
    expect(await ends()).toBe(until);
    for (let i = 0; i < 3501; i++) registry.bundle(ids);
    await tick();
    expect(await ends()).toBe(until);
    const waiting = registry.bundle([registry.addProof()]);
    await tick();
    expect(await published.package(waiting)).toBeNull();
    expect(await ends()).toBe(clock.at + VALID_FOR);
  }, 30_000);
});
