import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import type { Publisher } from '#publisher/publisher';
import { nativeSha256 } from '#runtime/crypto/node';
import { useSnapshot } from '../fixtures/use-registry.js';

/** Tests which share tokens and packages each publish cycle publishes. */

const snapshot = useSnapshot();
let publisher: Publisher;
let ids: string[];
beforeEach(async () => {
  ids = snapshot.grow(6);
  publisher = snapshot.publisher();
  await publisher.runCycle();
});

const location = (): Buffer => readFileSync(join(snapshot.directory, 'lookup/snapshot'));

describe('share token', () => {
  it('is published under its hash until the token is revoked or expires', async () => {
    const { registry } = snapshot;
    const packageId = registry.bundle([ids[0]!]);
    const tokens = {
      trust: registry.share('trust', ids[0]!),
      package: registry.share('package', packageId),
    };
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', shareChanges: 3 });
    let published = await snapshot.published();
    expect(published.share(tokens.trust)).toEqual({
      schema_version: 'svc.registry.share/1.0',
      token_hash: hashHex(nativeSha256, utf8(tokens.trust)),
      artifact_kind: 'trust',
      id: ids[0],
    });
    expect(published.share(tokens.package)).toMatchObject({ id: packageId });
    expect(published.package(packageId)).toEqual([ids[0]]);

    registry.endShare(tokens.trust);
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 1 });
    published = await snapshot.published();
    expect(published.share(tokens.trust)).toBeNull();
    expect(published.share(tokens.package)).not.toBeNull();
  });

  it('that was revoked or expired stays unpublished after a restart, and after the loss of map pages', async () => {
    const { registry } = snapshot;
    const tokens = Array.from({ length: 300 }, (_, i) => registry.share('proof', ids[i % 6]!));
    registry.endShare(tokens[7]!);
    await publisher.runCycle();
    const before = (await snapshot.published()).opened.snapshot.shares_root;
    await publisher.close();
    publisher = snapshot.publisher();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
    await publisher.close();
    rmSync(join(snapshot.directory, 'map'), { recursive: true });
    publisher = snapshot.publisher();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
    const published = await snapshot.published();
    expect(published.opened.snapshot.shares_root).toBe(before);
    expect(published.shares.size).toBe(299);
    expect(published.share(tokens[7]!)).toBeNull();
  });

  it('is not published when an earlier change is missing', async () => {
    const { registry } = snapshot;
    registry.share('proof', ids[0]!);
    await publisher.runCycle();
    const [token] = [registry.share('proof', ids[1]!), registry.share('proof', ids[2]!)];
    const restore = registry.loseShareChanges(2, 2);
    await expect(publisher.runCycle()).rejects.toThrow('the registry did not list change 2');
    expect((await snapshot.published()).share(token)).toBeNull();
    restore();
    await publisher.runCycle();
    expect((await snapshot.published()).share(token)).not.toBeNull();
  });
});

it.each([false, true])(
  'publisher > stops when the registry has lost published changes (restarted: %s)',
  async (isRestarted) => {
    const { registry } = snapshot;
    for (const id of ids) registry.share('proof', id);
    await publisher.runCycle();
    const before = location();
    if (isRestarted) {
      await publisher.close();
      publisher = snapshot.publisher();
    }
    const restore = registry.loseShareChanges(5, 6);
    const stopped = publisher.runCycle();
    await expect(stopped).rejects.toMatchObject({ code: 'changes_behind' });
    await expect(stopped).rejects.toThrow(/change 6 .*revoke the affected tokens again/);
    expect(location()).toEqual(before);
    restore();
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
  },
);

it.each([
  ['a lost revocation', (token: string) => snapshot.registry.endShare(token), [2, 1]],
  ['a lost token', () => snapshot.registry.share('proof', ids[1]!), [1, 2]],
])(
  'publisher > stops after a restart when the number of %s was reused',
  async (_, lose, [tokens, change]) => {
    const { registry } = snapshot;
    const token = registry.share('proof', ids[0]!);
    await publisher.runCycle();
    lose(token);
    await publisher.runCycle();
    await publisher.close();
    publisher = snapshot.publisher();
    const before = location();
    registry.restoreShares(1);
    registry.share('proof', ids[2]!);
    const stopped = publisher.runCycle();
    await expect(stopped).rejects.toMatchObject({ code: 'changes_behind' });
    await expect(stopped).rejects.toThrow(
      `has other changes of share tokens in place of published changes. Valid tokens that the published snapshot lacks: at least ${tokens}, the first with change ${change}. The database was restored`,
    );
    expect(location()).toEqual(before);
  },
);

it('publisher > signs a tree that contains snapshot entries of failed cycles with different shares', async () => {
  const { registry } = snapshot;
  for (const [at, isRestarted] of [false, true, true].entries()) {
    registry.share('proof', ids[at]!);
    registry.onCall = (name) => {
      if (name === 'insertCheckpoint') throw new Error('no answer');
    };
    await expect(publisher.runCycle()).rejects.toThrow('no answer');
    if (!isRestarted) continue;
    await publisher.close();
    publisher = snapshot.publisher();
  }
  registry.onCall = () => undefined;
  registry.share('proof', ids[3]!);
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', shareChanges: 4 });
});

describe('package', () => {
  it.each([false, true])(
    'waits for a member without a record, but delays no later change (restarted: %s)',
    async (isRestarted) => {
      const { registry } = snapshot;
      const before = registry.share('proof', ids[0]!);
      expect(await publisher.runCycle()).toMatchObject({ shareChanges: 1 });
      const member = registry.addProof();
      const packageId = registry.bundle([ids[0]!, member]);
      const tokens = {
        proof: registry.share('proof', ids[1]!),
        package: registry.share('package', packageId),
      };
      const sound = registry.bundle([ids[2]!]);
      registry.endShare(before);
      expect(await publisher.runCycle()).toMatchObject({ shareChanges: 5 });
      let published = await snapshot.published();
      expect(published.package(packageId)).toBeNull();
      expect(published.share(before)).toBeNull();
      expect(published.share(tokens.proof)).toMatchObject({ id: ids[1] });
      expect(published.share(tokens.package)).toMatchObject({ id: packageId });
      expect(published.package(sound)).toEqual([ids[2]]);
      registry.endShare(tokens.proof);
      registry.verify();
      if (isRestarted) {
        await publisher.close();
        publisher = snapshot.publisher();
      }
      // The cycle that publishes the member also publishes the package.
      expect(await publisher.runCycle()).toMatchObject({ shareChanges: 1 });
      published = await snapshot.published();
      expect(published.package(packageId)).toEqual([ids[0], member]);
      expect(published.share(tokens.proof)).toBeNull();
      expect(published.share(tokens.package)).not.toBeNull();
    },
  );

  it('is not published when its members were altered, and does not delay other packages', async () => {
    const { registry } = snapshot;
    const forged = registry.bundle(ids.slice(0, 2));
    registry.losePackage(forged, 'first member');
    const lost = registry.bundle([ids[3]!]);
    registry.losePackage(lost, 'all');
    const sound = registry.bundle([ids[4]!]);
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 3 });
    const published = await snapshot.published();
    expect(published.package(forged)).toBeNull();
    expect(published.package(lost)).toBeNull();
    expect(published.package(sound)).toEqual([ids[4]]);
  });
});

it.each(['failed cycle', 'cycle without a new snapshot'])(
  'publisher > publishes each change of share tokens when a failover lost the changes of a %s',
  async (cycle) => {
    const { registry } = snapshot;
    const revoked = registry.share('proof', ids[0]!);
    await publisher.runCycle();
    const lost = registry.share('proof', ids[1]!);
    if (cycle === 'failed cycle') {
      registry.share('proof', ids[2]!);
      registry.onCall = (what) => {
        if (what === 'appendSnapshot') throw new Error('the primary is down');
      };
      await expect(publisher.runCycle()).rejects.toThrow('the primary is down');
      registry.onCall = () => undefined;
    } else {
      registry.endShare(lost);
      expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
    }
    registry.restoreShares(1);
    registry.endShare(revoked);
    registry.bundle([ids[3]!]);
    expect(await publisher.runCycle()).toMatchObject({ shareChanges: 2 });
    const published = await snapshot.published();
    expect([published.share(revoked), published.share(lost)]).toEqual([null, null]);
  },
);
