import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hashHex } from '#protocol/hash';
import { canonicalBytes } from '#protocol/canonical-json';
import { PACKAGE_PARTS, PROOF_PARTS } from '#protocol/snapshot/manifest';
import { TRUST_CHAIN } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import { FatalPublishError } from '#publisher/errors';
import { nativeSha256 } from '#runtime/crypto/node';
import { PublishedGrants } from '../fixtures/published.js';
import { ORIGIN, TestSnapshot } from '../fixtures/snapshot.js';
import { become, type Standing } from '../fixtures/standing.js';

/** Published packages, cycle by cycle. */

let snapshot: TestSnapshot;
let published: PublishedGrants;
let publisher: Publisher;
let ids: string[];
beforeEach(async () => {
  snapshot = new TestSnapshot();
  published = new PublishedGrants(snapshot);
  ids = snapshot.registry.addProofs(6);
  snapshot.registry.verify();
  publisher = snapshot.publisher();
  await publisher.runCycle();
});
afterEach(() => snapshot.close());

const tick = async () => {
  snapshot.clock.at += 1000;
  return publisher.runCycle();
};

const STATUS: Record<Standing, string> = {
  asserts: 'TRUST_ESTABLISHED',
  over: 'EXPIRED',
  failed: 'BACKEND_LOOKUP_REQUIRED',
  revoked: 'REVOKED',
};

/** Expected package status by the statuses of its members, written out. */
const TABLE: [Standing[], string][] = [
  [['asserts'], 'TRUST_ESTABLISHED'],
  [['asserts', 'asserts', 'asserts'], 'TRUST_ESTABLISHED'],
  [['asserts', 'over'], 'EXPIRED'],
  [['over', 'over'], 'EXPIRED'],
  [['asserts', 'failed'], 'BACKEND_LOOKUP_REQUIRED'],
  [['over', 'failed'], 'BACKEND_LOOKUP_REQUIRED'],
  [['failed'], 'BACKEND_LOOKUP_REQUIRED'],
  [['asserts', 'revoked'], 'REVOKED'],
  [['revoked', 'over'], 'REVOKED'],
  [['failed', 'revoked'], 'REVOKED'],
  [['over', 'failed', 'revoked', 'asserts'], 'REVOKED'],
];

describe('package', () => {
  it('has the lookup response of a trust artifact, with its ordered members', async () => {
    const [second, first] = [ids[4]!, ids[1]!];
    const at = snapshot.clock.at + 500;
    snapshot.registry.recordVerdict(second, { verifiedAt: at, expired: ['trust'] });
    const packageId = snapshot.registry.bundle([second, first]);
    await tick();
    const member = (
      proof_id: string,
      verification_status: string,
      can_assert_validity: boolean,
    ) => ({
      proof_id,
      trust_id: `trust_${proof_id}`,
      verification_status,
      can_assert_validity,
    });
    expect(await published.package(packageId)).toEqual({
      schema_version: 'svc.public_verification.facade/1.0',
      artifact_kind: 'trust',
      identifier: packageId,
      lookup: { requested: packageId, matched_on: 'package_id' },
      verification: {
        verification_status: 'EXPIRED',
        can_assert_validity: false,
        frontend_recomputed: false,
        verified_at: formatTime(at),
      },
      artifact: {
        artifact_level: 'PACKAGE_BACKED_PUBLIC_PROJECTION',
        package_id: packageId,
        members: 2,
        effect: 'ADMIT',
        environment: 'sandbox',
      },
      trust_chain: TRUST_CHAIN.FULL,
      mutation_allowed: false,
      serves_authoritative_truth: false,
      references: {
        package_id: packageId,
        members: [member(second, 'EXPIRED', false), member(first, 'TRUST_ESTABLISHED', true)],
      },
      downloads: { checkpoint: '/log/checkpoint', keys: '/api/public/keys' },
      integrity: {
        members_hash: hashHex(nativeSha256, canonicalBytes([second, first])),
        log_origin: ORIGIN,
      },
    });
    // In a window as long as its newest member.
    const place = await published.place(PACKAGE_PARTS, packageId.slice(4));
    const newest = await published.place(PROOF_PARTS, second);
    expect(place?.place.proofNumber).toBe(newest?.place.proofNumber);
  });

  it.each(TABLE)('with members %j is %s, at first and after a change', async (of, is) => {
    const members = ids.slice(0, of.length);
    const before = snapshot.registry.bundle([...members].reverse());
    await tick();
    expect(await published.statusOf(before)).toBe('TRUST_ESTABLISHED');
    of.forEach((standing, i) => become(snapshot.registry, members[i]!, standing));
    const after = snapshot.registry.bundle(members);
    await tick();
    for (const packageId of [before, after]) {
      const facade = (await published.package(packageId))!;
      expect(facade.verification.verification_status).toBe(is);
      expect(facade.verification.can_assert_validity).toBe(is === 'TRUST_ESTABLISHED');
      // A failed proof claims no trust chain.
      expect(facade.trust_chain.available).toBe(!of.includes('failed'));
      const { members: listed } = facade.references as {
        members: { proof_id: string; verification_status: string }[];
      };
      const statuses = new Map(listed.map((one) => [one.proof_id, one.verification_status]));
      of.forEach((standing, i) => expect(statuses.get(members[i]!)).toBe(STATUS[standing]));
    }
  });

  it('is valid again when a failed member passes, and stays revoked with a revoked one', async () => {
    const packageId = snapshot.registry.bundle(ids.slice(0, 2));
    await tick();
    become(snapshot.registry, ids[0]!, 'failed');
    await tick();
    expect(await published.statusOf(packageId)).toBe('BACKEND_LOOKUP_REQUIRED');
    snapshot.registry.recordVerdict(ids[0]!, { outcome: 'pass' });
    await tick();
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
    become(snapshot.registry, ids[1]!, 'revoked');
    await tick();
    become(snapshot.registry, ids[1]!, 'failed');
    await tick();
    snapshot.registry.recordVerdict(ids[1]!, { outcome: 'pass' });
    await tick();
    expect(await published.statusOf(packageId)).toBe('REVOKED');
  });

  it('is rewritten with a changed member, and only then', async () => {
    const { registry } = snapshot;
    const having = [registry.bundle(ids.slice(0, 2)), registry.bundle([ids[2]!, ids[0]!])];
    const other = registry.bundle([ids[1]!, ids[2]!]);
    await tick();
    become(snapshot.registry, ids[0]!, 'over');
    const token = registry.share('package', other);
    await tick();
    for (const packageId of having) expect(await published.statusOf(packageId)).toBe('EXPIRED');
    expect(await published.statusOf(other)).toBe('TRUST_ESTABLISHED');
    // A rewritten record is not a change: the next change is applied once.
    expect(await published.share(token)).toMatchObject({ package_id: other });
    expect(await published.bookmark()).toBe(4);
    become(snapshot.registry, ids[0]!, 'revoked');
    expect(await tick()).toMatchObject({ shareChanges: 0 });
    expect(await published.bookmark()).toBe(4);
  });

  it('follows the published records, not the registry', async () => {
    const { registry } = snapshot;
    const packageId = registry.bundle(ids.slice(0, 2));
    await tick();
    registry.bundles[0]!.proofIds = [ids[3]!, ids[0]!];
    become(snapshot.registry, ids[0]!, 'over');
    await tick();
    const facade = await published.package(packageId);
    expect(facade?.references).toMatchObject({
      members: [{ proof_id: ids[0] }, { proof_id: ids[1] }],
    });
  });

  it('is unresolvable when its members were changed', async () => {
    const { registry } = snapshot;
    const forged = registry.bundle(ids.slice(0, 2));
    registry.bundles[0]!.proofIds = [ids[1]!];
    const lost = registry.bundle([ids[3]!]);
    registry.bundles.pop();
    const sound = registry.bundle([ids[4]!]);
    expect(await tick()).toMatchObject({ shareChanges: 3 });
    expect(await published.package(forged)).toBeNull();
    expect(await published.package(lost)).toBeNull();
    expect(await published.statusOf(sound)).toBe('TRUST_ESTABLISHED');
    become(snapshot.registry, ids[0]!, 'over');
    become(snapshot.registry, ids[1]!, 'over');
    await tick();
    expect(await published.package(forged)).toBeNull();
  });

  it('with a policy denial asserts nothing', async () => {
    const denied = snapshot.registry.addProof({ effect: 'DENY' });
    snapshot.registry.verify();
    const packageId = snapshot.registry.bundle([ids[0]!, denied]);
    await tick();
    const facade = (await published.package(packageId))!;
    expect(facade.verification.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(facade.trust_chain.available).toBe(false);
  });

  it('is live only when every member is', async () => {
    const live = [0, 1].map(() => snapshot.registry.addProof({ environment: 'live' }));
    snapshot.registry.verify();
    const all = snapshot.registry.bundle(live);
    const some = snapshot.registry.bundle([live[0]!, ids[0]!]);
    await tick();
    expect((await published.package(all))?.artifact).toMatchObject({ environment: 'live' });
    expect((await published.package(some))?.artifact).toMatchObject({ environment: 'sandbox' });
  });

  it('waits for an unpublished member, and later changes wait behind it', async () => {
    const { registry } = snapshot;
    const before = registry.share('proof', ids[0]!);
    const member = registry.addProof();
    const packageId = registry.bundle([ids[0]!, member]);
    registry.endShare(before);
    const after = registry.share('proof', ids[1]!);
    expect(await tick()).toMatchObject({ shareChanges: 1 });
    expect(await published.package(packageId)).toBeNull();
    expect(await published.share(after)).toBeNull();
    expect(await published.bookmark()).toBe(1);
    expect(await tick()).toMatchObject({ shareChanges: 0 });
    registry.verify();
    // With the very tick that publishes the member.
    expect(await tick()).toMatchObject({ newProofs: 1, shareChanges: 3 });
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
    expect(await published.share(before)).toMatchObject({ artifact_kind: null });
    expect(await published.share(after)).toMatchObject({ proof_id: ids[1] });
  });

  it('defers every change behind it', async () => {
    const { registry } = snapshot;
    registry.bundle([ids[0]!, registry.addProof()]);
    for (let i = 0; i < 1200; i++) registry.share('proof', ids[0]!);
    expect(await tick()).toMatchObject({ shareChanges: 0 });
    expect(await published.bookmark()).toBe(0);
    registry.verify();
    expect(await tick()).toMatchObject({ shareChanges: 1201 });
  });

  it('is not published twice after it was rewritten', async () => {
    snapshot.registry.bundle(ids.slice(0, 2));
    await tick();
    for (let round = 0; round < 6; round++) {
      snapshot.registry.recordVerdict(ids[0]!, { outcome: round % 2 === 0 ? 'fail' : 'pass' });
      expect(await tick()).toMatchObject({ changedRecords: 1, shareChanges: 0 });
      expect(await published.bookmark()).toBe(1);
    }
    expect(await tick()).toMatchObject({ shareChanges: 0 });
  });

  it('depends on the member records of the same cycle', async () => {
    const packageId = snapshot.registry.bundle(ids.slice(0, 3));
    become(snapshot.registry, ids[2]!, 'revoked');
    await tick();
    expect(await published.statusOf(packageId)).toBe('REVOKED');
  });
});

describe('publisher stopped by a contradiction in the registry', () => {
  const stop = async (): Promise<void> => {
    await expect(tick()).rejects.toThrow(FatalPublishError);
  };
  beforeEach(async () => {
    ids = snapshot.registry.addProofs(300);
    snapshot.registry.verify();
    await tick();
  });
  /** The log grows over a tile that is damaged. */
  const damage = (): void => {
    snapshot.registry.corruptTile(0, 1, 5);
    snapshot.registry.addProof();
    snapshot.registry.verify();
  };

  it('withdraws packages of failed proofs and applies no other change', async () => {
    const { registry } = snapshot;
    const failing = registry.bundle([ids[0]!, ids[1]!]);
    const sound = registry.bundle([ids[2]!]);
    const ending = registry.share('proof', ids[2]!);
    await tick();
    damage();
    become(snapshot.registry, ids[1]!, 'failed');
    become(snapshot.registry, ids[2]!, 'over');
    registry.endShare(ending);
    const late = registry.bundle([ids[3]!]);
    await stop();
    const fresh = new PublishedGrants(snapshot);
    expect(await fresh.statusOf(failing)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(await fresh.statusOf(sound)).toBe('TRUST_ESTABLISHED');
    expect(await fresh.share(ending)).toMatchObject({ proof_id: ids[2] });
    expect(await fresh.package(late)).toBeNull();
    expect(await published.bookmark()).toBe(3);
    // After the repair it continues.
    registry.corruptTile(0, 1, 5);
    await publisher.close();
    publisher = snapshot.publisher();
    expect(await tick()).toMatchObject({ shareChanges: 2 });
    expect(await published.statusOf(failing)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(await published.statusOf(sound)).toBe('EXPIRED');
    expect(await published.share(ending)).toMatchObject({ artifact_kind: null });
    expect(await published.statusOf(late)).toBe('TRUST_ESTABLISHED');
  });

  it('makes no package valid again', async () => {
    const { registry } = snapshot;
    const withheld = registry.bundle([ids[0]!]);
    registry.bundle([ids[1]!]);
    become(snapshot.registry, ids[0]!, 'failed');
    await tick();
    // The registry hides that the package has a changed member.
    registry.packagesWith = () => Promise.resolve([]);
    registry.recordVerdict(ids[0]!, { outcome: 'pass' });
    await tick();
    expect(await published.statusOf(withheld)).toBe('BACKEND_LOOKUP_REQUIRED');
    registry.packagesWith = () => Promise.resolve(registry.bundles.map((one) => one.packageId));
    damage();
    become(snapshot.registry, ids[1]!, 'failed');
    await stop();
    expect(await published.statusOf(withheld)).toBe('BACKEND_LOOKUP_REQUIRED');
  });
});
