import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { hashHex } from '#protocol/hash';
import { utf8 } from '#protocol/bytes';
import { PACKAGE_PARTS, PROOF_PARTS, SHARE_PARTS } from '#protocol/snapshot/manifest';
import type { Publisher } from '#publisher/publisher';
import { FatalPublishError } from '#publisher/errors';
import { nativeSha256 } from '#runtime/crypto/node';
import { PublishedGrants } from '../fixtures/published.js';
import { become, type Standing } from '../fixtures/standing.js';
import { useSnapshot } from '../fixtures/use-registry.js';

/** Share tokens and packages, cycle by cycle. */

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
const segmentFiles = (): string[] =>
  readdirSync(join(snapshot.directory, 'lookup/segments')).map((name) =>
    join(snapshot.directory, 'lookup/segments', name),
  );

describe('share token', () => {
  it('is published under its hash, and later as expired', async () => {
    const { registry } = snapshot;
    const packageId = registry.bundle([ids[0]!]);
    const tokens = {
      trust: registry.share('trust', ids[0]!),
      package: registry.share('package', packageId),
    };
    const token_hash = hashHex(nativeSha256, utf8(tokens.trust));
    expect(await published.share(tokens.trust)).toBeNull();
    expect(await tick()).toMatchObject({ outcome: 'published', shareChanges: 3 });
    const version = { schema_version: 'svc.public_verification.share/1.0' };
    const live = { ...version, token_hash, artifact_kind: 'trust', proof_id: ids[0] };
    expect(await published.share(tokens.trust)).toEqual(live);
    expect(await published.share(tokens.package)).toMatchObject({
      artifact_kind: 'package',
      package_id: packageId,
    });

    registry.endShare(tokens.trust);
    expect(await tick()).toMatchObject({ shareChanges: 1 });
    expect(await published.share(tokens.trust)).toEqual({
      ...version,
      token_hash,
      artifact_kind: null,
    });
    expect(await published.share(tokens.package)).toMatchObject({ artifact_kind: 'package' });
    // No file of the snapshot contains a token or the prefix of tokens.
    for (const file of segmentFiles()) {
      const text = readFileSync(file, 'latin1');
      for (const token of Object.values(tokens)) expect(text).not.toContain(token.slice(0, 20));
      expect(text).not.toContain('share_');
    }
  });
});

describe('index segments', () => {
  it('are merged by kind and find every record', async () => {
    const { registry } = snapshot;
    const tokens: string[] = [];
    const packages: string[] = [];
    for (let round = 0; round < 40; round++) {
      ids.push(...registry.addProofs(1 + (round % 7)));
      registry.verify();
      for (let i = 0; i <= round % 5; i++) tokens.push(registry.share('proof', ids[round]!));
      packages.push(registry.bundle([ids[round]!, ids[ids.length - 1]!]));
      if (round % 4 === 0) registry.endShare(tokens[round]!);
      if (round % 6 === 0) become(snapshot.registry, ids[round]!, 'over');
      await tick();
    }
    const { index_parts: pins } = await published.manifest();
    for (const kind of [PROOF_PARTS, SHARE_PARTS, PACKAGE_PARTS]) {
      const own = pins.filter((pin) => pin.kind === kind);
      expect(own.length).toBeGreaterThan(0);
      expect(own.length).toBeLessThan(9);
    }
    for (const [i, token] of tokens.entries()) {
      const ended = i < 40 && i % 4 === 0;
      const share = await published.share(token);
      expect(share?.artifact_kind).toBe(ended ? null : 'proof');
    }
    for (const packageId of packages) expect(await published.package(packageId)).not.toBeNull();
    for (const id of ids) expect(await published.place(PROOF_PARTS, id)).not.toBeNull();
    for (const id of packages.map((one) => one.slice(4))) {
      expect(await published.place(PROOF_PARTS, id)).toBeNull();
    }
    expect(await published.bookmark()).toBe(registry.shareChanges.length);
  });
});

describe('snapshot with share tokens and packages', () => {
  it('contains every token and package after it is rebuilt', async () => {
    const { registry } = snapshot;
    const tokens = Array.from({ length: 30 }, (_, i) => registry.share('proof', ids[i % 6]!));
    const packages = [registry.bundle(ids.slice(0, 2)), registry.bundle(ids.slice(2, 5))];
    registry.endShare(tokens[7]!);
    become(snapshot.registry, ids[3]!, 'revoked');
    await tick();
    await publisher.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    publisher = snapshot.publisher();
    expect(await tick()).toMatchObject({ newProofs: 6, shareChanges: 33 });
    const fresh = new PublishedGrants(snapshot);
    for (const [i, token] of tokens.entries()) {
      expect((await fresh.share(token))?.artifact_kind).toBe(i === 7 ? null : 'proof');
    }
    expect(await fresh.statusOf(packages[0]!)).toBe('TRUST_ESTABLISHED');
    expect(await fresh.statusOf(packages[1]!)).toBe('REVOKED');
  });

  it('gets a limited number of changes and members per cycle, and the rest in the next', async () => {
    const { registry } = snapshot;
    const first = registry.share('proof', ids[0]!);
    for (let i = 0; i < 20_000; i++) registry.share('proof', ids[0]!);
    const last = registry.share('proof', ids[1]!);
    expect(await tick()).toMatchObject({ shareChanges: 20_000 });
    expect(await published.share(first)).not.toBeNull();
    expect(await published.share(last)).toBeNull();
    expect(await tick()).toMatchObject({ shareChanges: 2 });
    expect(await published.share(last)).toMatchObject({ proof_id: ids[1] });

    for (let i = 0; i < 5000; i++) registry.bundle(ids);
    const report = await tick();
    expect(report).toMatchObject({ outcome: 'published' });
    // A step looks up 20,000 members, and completes the package that reaches this limit.
    expect((report as { shareChanges: number }).shareChanges).toBe(3500);
    expect(await tick()).toMatchObject({ shareChanges: 1500 });
  }, 30_000);

  it('causes the publisher to stop when the registry has lost changes', async () => {
    const { registry } = snapshot;
    for (const id of ids) registry.share('proof', id);
    await tick();
    const before = readFileSync(join(snapshot.directory, 'lookup/manifest'));
    const lost = registry.shareChanges.splice(4);
    const error: unknown = await tick().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(FatalPublishError);
    expect((error as FatalPublishError).code).toBe('changes_behind');
    expect(String(error)).toMatch(/change 6 .*revoke those tokens again/);
    expect(readFileSync(join(snapshot.directory, 'lookup/manifest'))).toEqual(before);
    // Although new changes now have the lost numbers, the publisher still does not continue.
    registry.bundle(ids.slice(0, 2));
    registry.share('proof', ids[0]!);
    registry.share('proof', ids[0]!);
    await expect(tick()).rejects.toMatchObject({ code: 'changes_behind' });
    registry.shareChanges.splice(4, Infinity, ...lost);
    await expect(tick()).resolves.toMatchObject({ outcome: 'published' });
  });

  it('accepts further cycles when its last change is a package', async () => {
    const { registry } = snapshot;
    const packageId = registry.bundle(ids.slice(0, 2));
    await tick();
    registry.recordVerdict(ids[0]!, { outcome: 'fail' });
    await tick();
    await expect(tick()).resolves.toMatchObject({ outcome: 'published' });
    expect(await published.statusOf(packageId)).toBe('BACKEND_LOOKUP_REQUIRED');
    registry.shareChanges.length = 0;
    registry.bundle(ids.slice(1, 3));
    await expect(tick()).rejects.toMatchObject({ code: 'changes_behind' });
  });

  it('contains no change that follows a missing change', async () => {
    const { registry } = snapshot;
    registry.share('proof', ids[0]!);
    await tick();
    const [token] = [registry.share('proof', ids[1]!), registry.share('proof', ids[2]!)];
    const [missing] = registry.shareChanges.splice(1, 1);
    await expect(tick()).rejects.toThrow('the registry did not list change 2');
    expect(await published.share(token)).toBeNull();
    registry.shareChanges.splice(1, 0, missing!);
    await tick();
    expect(await published.share(token)).not.toBeNull();
  });
});

const STATUS: Record<Standing, string> = {
  asserts: 'TRUST_ESTABLISHED',
  over: 'EXPIRED',
  failed: 'BACKEND_LOOKUP_REQUIRED',
  revoked: 'REVOKED',
};

/** The expected package status by the statuses of its members. */
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
  it.each(TABLE)('with members %j is %s, also after they change', async (of, is) => {
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

  it('is rewritten only when a member changes', async () => {
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

  it('uses the published records of its members, not the registry', async () => {
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

  it('does not resolve when its members were altered in the registry', async () => {
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

  it('asserts no validity when a member is a policy denial', async () => {
    const denied = snapshot.registry.addProof({ effect: 'DENY' });
    snapshot.registry.verify();
    const packageId = snapshot.registry.bundle([ids[0]!, denied]);
    await tick();
    const facade = (await published.package(packageId))!;
    expect(facade.verification.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(facade.trust_chain.available).toBe(false);
  });

  it('is in the live environment only when every member is', async () => {
    const live = [0, 1].map(() => snapshot.registry.addProof({ environment: 'live' }));
    snapshot.registry.verify();
    const all = snapshot.registry.bundle(live);
    const some = snapshot.registry.bundle([live[0]!, ids[0]!]);
    await tick();
    expect((await published.package(all))?.artifact).toMatchObject({ environment: 'live' });
    expect((await published.package(some))?.artifact).toMatchObject({ environment: 'sandbox' });
  });

  it('waits for an unpublished member, and delays all later changes', async () => {
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
    // In the publish cycle that publishes the member.
    expect(await tick()).toMatchObject({ newProofs: 1, shareChanges: 3 });
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
    expect(await published.share(before)).toMatchObject({ artifact_kind: null });
    expect(await published.share(after)).toMatchObject({ proof_id: ids[1] });
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

  it('withdraws packages of failed proofs and publishes no other change', async () => {
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

  it('does not make a withdrawn package valid', async () => {
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
