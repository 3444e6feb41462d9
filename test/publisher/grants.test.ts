import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hashHex } from '#protocol/hash';
import { utf8 } from '#protocol/bytes';
import { PACKAGE_PARTS, PROOF_PARTS, SHARE_PARTS } from '#protocol/snapshot/manifest';
import type { Publisher } from '#publisher/publisher';
import { FatalPublishError } from '#publisher/errors';
import { nativeSha256 } from '#runtime/crypto/node';
import { PublishedGrants } from '../fixtures/published.js';
import { TestSnapshot } from '../fixtures/snapshot.js';
import { become } from '../fixtures/standing.js';

/** Share tokens and packages on their way from the registry into the snapshot. */

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
const segmentFiles = (): string[] =>
  readdirSync(join(snapshot.directory, 'lookup/segments')).map((name) =>
    join(snapshot.directory, 'lookup/segments', name),
  );

describe('share token', () => {
  it('is published by its hash, and then as expired', async () => {
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
    // Nowhere in the snapshot is a token itself, nor the text that it begins with.
    for (const file of segmentFiles()) {
      const text = readFileSync(file, 'latin1');
      for (const token of Object.values(tokens)) expect(text).not.toContain(token.slice(0, 20));
      expect(text).not.toContain('share_');
    }
  });

  it('is published as expired when it expired before its publication', async () => {
    const token = snapshot.registry.share('proof', ids[0]!);
    snapshot.registry.endShare(token);
    expect(await tick()).toMatchObject({ shareChanges: 2 });
    expect(await published.share(token)).toMatchObject({ artifact_kind: null });
    expect(await published.bookmark()).toBe(2);
  });

  it('stays expired when it ends twice, and writes nothing without a change', async () => {
    const token = snapshot.registry.share('proof', ids[0]!);
    snapshot.registry.endShare(token);
    await tick();
    snapshot.registry.endShare(token);
    await tick();
    expect(await published.bookmark()).toBe(3);
    const { files } = publisher.written();
    expect(await tick()).toMatchObject({ shareChanges: 0 });
    expect(publisher.written().files).toBe(files + 1);
    expect(await published.share(token)).toMatchObject({ artifact_kind: null });
  });

  it('shows nothing without a row in the registry', async () => {
    const token = snapshot.registry.share('proof', ids[0]!);
    snapshot.registry.shares.clear();
    await tick();
    expect(await published.share(token)).toMatchObject({ artifact_kind: null });
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

  it('protect the files that they refer to from the janitor', async () => {
    const token = snapshot.registry.share('proof', ids[0]!);
    const packageId = snapshot.registry.bundle(ids.slice(0, 2));
    await tick();
    for (let hour = 0; hour < 4; hour++) {
      snapshot.clock.at += 61 * 60_000;
      await tick();
    }
    const fresh = new PublishedGrants(snapshot);
    expect(await fresh.share(token)).toMatchObject({ proof_id: ids[0] });
    expect(await fresh.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
  });
});

describe('a snapshot', () => {
  it('continues from a manifest without tokens and packages', async () => {
    expect((await published.manifest()).index_parts.map(({ kind }) => kind)).toEqual([PROOF_PARTS]);
    const packageId = snapshot.registry.bundle(ids.slice(0, 2));
    await publisher.close();
    publisher = snapshot.publisher();
    await tick();
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
  });

  it('contains every token and package when it is rebuilt', async () => {
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

  it('limits changes and members per cycle and publishes the rest in the next', async () => {
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
    // 20,000 members are looked up, and the step is finished in which that is reached.
    expect((report as { shareChanges: number }).shareChanges).toBe(3500);
    expect(await tick()).toMatchObject({ shareChanges: 1500 });
  }, 30_000);

  it('stops the publisher when the registry lost changes', async () => {
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
    // It has made as many since: those, and what they end, were never looked at.
    registry.bundle(ids.slice(0, 2));
    registry.share('proof', ids[0]!);
    registry.share('proof', ids[0]!);
    await expect(tick()).rejects.toMatchObject({ code: 'changes_behind' });
    registry.shareChanges.splice(4, Infinity, ...lost);
    await expect(tick()).resolves.toMatchObject({ outcome: 'published' });
  });

  it('continues when its last change is a package', async () => {
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

  it('publishes no change behind a missing one', async () => {
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

  it.each([
    'expiryScanDoneAt',
    'shareChangesSince',
    'sharesNow',
    'packages',
    'packagesWith',
  ] as const)('stays unchanged when the registry fails at %s', async (question) => {
    const { registry } = snapshot;
    const old = registry.bundle(ids.slice(0, 2));
    await tick();
    const token = registry.share('proof', ids[0]!);
    registry.bundle(ids.slice(2, 4));
    become(snapshot.registry, ids[0]!, 'over');
    const before = readFileSync(join(snapshot.directory, 'lookup/manifest'));
    registry.onCall = (what) => {
      if (what === question) throw new Error('the database is away');
    };
    await expect(tick()).rejects.toThrow('the database is away');
    expect(readFileSync(join(snapshot.directory, 'lookup/manifest'))).toEqual(before);
    registry.onCall = () => undefined;
    await tick();
    expect(await published.statusOf(old)).toBe('EXPIRED');
    expect(await published.share(token)).not.toBeNull();
  });
});
