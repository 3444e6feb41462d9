import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FatalPublishError } from '#publisher/errors';
import { ORIGIN, TestSnapshot } from '../fixtures/snapshot.js';

let snapshot: TestSnapshot;
beforeEach(() => {
  snapshot = new TestSnapshot();
  snapshot.registry.addProofs(400);
  snapshot.registry.verify();
});
afterEach(() => snapshot.close());

async function stop(tick: Promise<unknown>): Promise<FatalPublishError> {
  const error: unknown = await tick.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof FatalPublishError) return error;
  throw new Error(`expected the publisher to stop, got ${String(error)}`);
}

const manifest = (): string => readFileSync(join(snapshot.directory, 'lookup/manifest'), 'utf8');

it('publisher > continues from TRUSTED_CHECKPOINT', async () => {
  const first = snapshot.publisher();
  await first.runCycle();
  const trustedCheckpoint = readFileSync(join(snapshot.directory, 'checkpoint'), 'utf8');
  await first.close();
  snapshot.registry.addProofs(10);
  snapshot.registry.verify();
  const publisher = snapshot.publisher({ trustedCheckpoint });
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', treeSize: 411 });
  // Once something is published that extends it, it is not looked at again.
  snapshot.registry.tile = () => Promise.reject(new Error('a tile was read for nothing'));
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', treeSize: 411 });
});

describe('publisher stops with the next step', () => {
  it('when the database was restored to an older state', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const before = manifest();
    snapshot.registry.truncate(300);
    const { code, message } = await stop(publisher.runCycle());
    expect(code).toBe('database_behind');
    expect(message).toMatch(/300.*401.*LOG_ORIGIN/s);
    expect(manifest()).toBe(before);
  });

  it('when a database without verdicts meets a published log', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    snapshot.registry.verifiedPrefix = () => Promise.resolve(null);
    expect((await stop(publisher.runCycle())).code).toBe('database_behind');
  });

  it.each([
    ['is gone', () => Promise.resolve([])],
    [
      'begins later',
      () => {
        const later = new TestSnapshot();
        later.registry.addKeyEntry('compromise', 3);
        return later.registry.keyEntries().finally(() => later.close());
      },
    ],
  ])('when the published compromise of a key %s', async (_, keyEntries) => {
    const { registry } = snapshot;
    registry.addKeyEntry('compromise', 2);
    registry.verify();
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const before = manifest();
    registry.keyEntries = keyEntries;
    expect((await stop(publisher.runCycle())).code).toBe('tree_mismatch');
    expect(manifest()).toBe(before);
  });

  it('when an unverified key entry differs from the appended one', async () => {
    const { registry } = snapshot;
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const before = manifest();
    registry.addKeyEntry('compromise', 2);
    const { leafIndex } = registry.all.at(-1)!;
    registry.corruptTile(0, Math.floor(leafIndex / 256), (leafIndex % 256) * 32);
    expect((await stop(publisher.runCycle())).code).toBe('tree_mismatch');
    expect(manifest()).toBe(before);
  });

  it('when published verdicts are lost and the log is complete', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const proofId = snapshot.registry.addProof();
    snapshot.registry.verify();
    snapshot.registry.recordVerdict(proofId, { expired: ['proof'] });
    await publisher.runCycle();
    await publisher.runCycle();
    const before = manifest();
    snapshot.registry.loseVerdict();
    const { code, message } = await stop(publisher.runCycle());
    expect(code).toBe('changes_behind');
    expect(message).toMatch(/verdict.*delete lookup\//s);
    expect(manifest()).toBe(before);
    // Lost leaves take precedence: deleting lookup/ would not help there.
    snapshot.registry.truncate(300);
    expect((await stop(publisher.runCycle())).message).not.toContain('delete lookup/');
  });

  it('when the database was restored and then diverged', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const before = manifest();
    snapshot.registry.truncate(300);
    for (let i = 0; i < 250; i++) {
      snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + 10_000 + i });
    }
    snapshot.registry.verify();
    expect((await stop(publisher.runCycle())).code).toBe('log_forked');
    expect(snapshot.registry.checkpoints).toHaveLength(0);
    expect(manifest()).toBe(before);
  });

  it('when the database holds another log of the same size', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    snapshot.registry.truncate(400);
    snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + 10_000 });
    snapshot.registry.verify();
    expect((await stop(publisher.runCycle())).code).toBe('log_forked');
  });

  it('when only the signed checkpoint in the database knows of the lost leaves', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const signed = snapshot.registry.checkpoints.at(-1)!;
    snapshot.registry.truncate(300);
    snapshot.registry.checkpoints.push(signed);
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    rmSync(join(snapshot.directory, 'checkpoint'));
    const { code, message } = await stop(publisher.runCycle());
    expect(code).toBe('database_behind');
    expect(message).toContain('the last signed checkpoint');
  });

  it('when only the checkpoint file knows of them', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    snapshot.registry.truncate(300);
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    const { code, message } = await stop(publisher.runCycle());
    expect(code).toBe('database_behind');
    expect(message).toContain('the published checkpoint');
  });

  it('when only TRUSTED_CHECKPOINT knows of them', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const trustedCheckpoint = readFileSync(join(snapshot.directory, 'checkpoint'), 'utf8');
    await publisher.close();
    // Database and directory went back together: here everything fits.
    rmSync(snapshot.directory, { recursive: true });
    snapshot.registry.truncate(300);
    const second = snapshot.publisher({ trustedCheckpoint });
    const { code, message } = await stop(second.runCycle());
    expect(code).toBe('database_behind');
    expect(message).toContain('TRUSTED_CHECKPOINT');
    for (let i = 0; i < 250; i++) {
      snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + 10_000 + i });
    }
    snapshot.registry.verify();
    expect((await stop(second.runCycle())).code).toBe('log_forked');
    expect(snapshot.registry.checkpoints).toHaveLength(0);
    expect(existsSync(join(snapshot.directory, 'checkpoint'))).toBe(false);
  });

  it('when TRUSTED_CHECKPOINT is of another log', async () => {
    const other = new TestSnapshot();
    other.registry.addProofs(1);
    other.registry.verify();
    await other.publisher().runCycle();
    const trustedCheckpoint = readFileSync(join(other.directory, 'checkpoint'), 'utf8');
    await other.close();
    expect(() => snapshot.publisher({ trustedCheckpoint })).toThrow(
      /TRUSTED_CHECKPOINT.*LOG_RETIRED/s,
    );
  });

  it('when its log is retired', async () => {
    snapshot.registry.retiredLogs.push(ORIGIN);
    const { code, message } = await stop(snapshot.publisher().runCycle());
    expect(code).toBe('log_ended');
    expect(message).toContain('LOG_ORIGIN');
    await snapshot.publisher({ origin: 'test.example/next' }).runCycle();
  });

  it.each([
    ['at the right edge', 0, 1],
    ['inside', 0, 0],
    ['above the leaves', 1, 0],
  ])('when a tile %s differs from the verified one', async (_where, level, index) => {
    snapshot.registry.corruptTile(level, index, 5);
    const publisher = snapshot.publisher();
    expect((await stop(publisher.runCycle())).code).toBe('tree_mismatch');
    expect(snapshot.registry.checkpoints.length).toBeLessThanOrEqual(1);
  });

  it('when a row differs from the verified leaf', async () => {
    const leaf = snapshot.registry.all[17]!;
    if (leaf.kind === 'proof') leaf.aepHash = '0'.repeat(64);
    expect((await stop(snapshot.publisher().runCycle())).code).toBe('tree_mismatch');
  });

  it.each([17, 390])(
    'when row and tile of leaf %i were changed to fit each other',
    async (index) => {
      const leaf = snapshot.registry.all[index]!;
      if (leaf.kind === 'proof') leaf.aepHash = '0'.repeat(64);
      snapshot.registry.fitTileToRow(index);
      expect((await stop(snapshot.publisher().runCycle())).code).toBe('tree_mismatch');
    },
  );

  it('when a leaf is missing from the registry', async () => {
    snapshot.registry.leaves = (from, to) =>
      Promise.resolve(
        snapshot.registry.all.slice(from, to).filter((leaf) => leaf.leafIndex !== 17),
      );
    expect((await stop(snapshot.publisher().runCycle())).code).toBe('tree_mismatch');
  });

  it('with an error when the registry omits a logged revocation', async () => {
    snapshot.registry.revoke(snapshot.registry.addProof());
    snapshot.registry.verify();
    snapshot.registry.statusEntries = () => Promise.resolve([]);
    await expect(snapshot.publisher().runCycle()).rejects.toThrow('did not list the revocation');
  });

  it('when the manifest in its directory is of another log', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    await publisher.close();
    const other = snapshot.publisher({ snapshotName: 'other.example/snapshot' });
    expect((await stop(other.runCycle())).code).toBe('snapshot_unverifiable');
  });

  it('when the manifest in its directory was changed', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    writeFileSync(
      join(snapshot.directory, 'lookup/manifest'),
      manifest().replace('"window":100000', '"window":100001'),
    );
    const { code, message } = await stop(publisher.runCycle());
    expect(code).toBe('snapshot_unverifiable');
    expect(message).toContain('SNAPSHOT_DIR');
  });

  it('when the checkpoint in the database is of another log', async () => {
    snapshot.registry.addProof();
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    await publisher.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    rmSync(join(snapshot.directory, 'checkpoint'));
    const other = snapshot.publisher({ origin: 'other.example/log' });
    const { code, message } = await stop(other.runCycle());
    expect(code).toBe('checkpoint_unverifiable');
    expect(message).toContain('LOG_KEY_FILE');
  });

  it('when a published tile would have to change', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const tile = join(snapshot.directory, 'tile/0/000');
    const bytes = readFileSync(tile);
    bytes[100]! ^= 1;
    writeFileSync(tile, bytes);
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    const { code, message } = await stop(publisher.runCycle());
    expect(code).toBe('published_file_differs');
    expect(message).toContain(tile);
  });

  it('when an index segment is damaged', async () => {
    const publisher = snapshot.publisher();
    const [id] = snapshot.registry.addProofs(1);
    snapshot.registry.verify();
    await publisher.runCycle();
    const part = /"index_parts":\[.*?"sha256":"([0-9a-f]{64})"/.exec(
      manifest().replace(/"resident_sha256":"[0-9a-f]{64}",/g, ''),
    )![1]!;
    const path = join(snapshot.directory, 'lookup/segments', part);
    const bytes = readFileSync(path);
    for (let at = 0; at < bytes.length; at += 48) bytes[at]! ^= 1;
    writeFileSync(path, bytes);
    snapshot.registry.recordVerdict(id!, { outcome: 'fail' });
    const { code, message } = await stop(publisher.runCycle());
    expect(code).toBe('snapshot_damaged');
    expect(message).toContain('Delete');
  });
});
