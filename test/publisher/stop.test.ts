import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { FatalPublishError } from '#publisher/errors';
import { ORIGIN, TestSnapshot } from '../fixtures/snapshot.js';
import { useSnapshot } from '../fixtures/use-registry.js';

const snapshot = useSnapshot();
beforeEach(() => {
  snapshot.registry.addProofs(400);
  snapshot.registry.verify();
});

async function stop(tick: Promise<unknown>): Promise<FatalPublishError> {
  const error: unknown = await tick.catch((reason: unknown) => reason);
  if (error instanceof FatalPublishError) return error;
  throw new Error(`expected the publisher to stop, got ${String(error)}`);
}

const file = (path: string): string => join(snapshot.directory, path);
const manifest = (): string => readFileSync(file('lookup/manifest'), 'utf8');
const removeLookup = (): void => rmSync(file('lookup'), { recursive: true });

/** Another log from leaf 300 on. */
function diverge(): void {
  snapshot.registry.truncate(300);
  for (let i = 0; i < 250; i++) {
    snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + 10_000 + i });
  }
  snapshot.registry.verify();
}

function changeRow(index: number): void {
  const leaf = snapshot.registry.all[index]!;
  if (leaf.kind === 'proof') leaf.aepHash = '0'.repeat(64);
}

it('publisher > continues from TRUSTED_CHECKPOINT', async () => {
  const first = snapshot.publisher();
  await first.runCycle();
  const trustedCheckpoint = readFileSync(file('checkpoint'), 'utf8');
  await first.close();
  snapshot.registry.addProofs(10);
  snapshot.registry.verify();
  const publisher = snapshot.publisher({ trustedCheckpoint });
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', treeSize: 411 });
  // Once a published checkpoint extends the trusted one, the publisher does not check it again.
  snapshot.registry.tile = () => Promise.reject(new Error('a tile was read for nothing'));
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', treeSize: 411 });
});

describe('publisher stops with an error that names the next step', () => {
  it.each<[string, () => unknown, code: string, message: RegExp]>([
    [
      'the database was restored to an older state',
      () => snapshot.registry.truncate(300),
      'database_behind',
      /300.*401.*LOG_ORIGIN/s,
    ],
    [
      'a database without verdicts meets a published log',
      () => (snapshot.registry.verifiedPrefix = () => Promise.resolve(null)),
      'database_behind',
      /./,
    ],
    ['the database was restored and then diverged', diverge, 'log_forked', /./],
    [
      'only the signed checkpoint in the database knows of lost leaves',
      () => {
        const signed = snapshot.registry.checkpoints.at(-1)!;
        snapshot.registry.truncate(300);
        snapshot.registry.checkpoints.push(signed);
        removeLookup();
        rmSync(file('checkpoint'));
      },
      'database_behind',
      /the last signed checkpoint/,
    ],
    [
      'only the checkpoint file knows of lost leaves',
      () => {
        snapshot.registry.truncate(300);
        removeLookup();
      },
      'database_behind',
      /the published checkpoint/,
    ],
    [
      'the manifest in its directory was changed',
      () =>
        writeFileSync(
          file('lookup/manifest'),
          manifest().replace('"window":100000', '"window":100001'),
        ),
      'snapshot_unverifiable',
      /SNAPSHOT_DIR/,
    ],
    [
      'a published tile would have to change',
      () => {
        const bytes = readFileSync(file('tile/0/000'));
        bytes[100]! ^= 1;
        writeFileSync(file('tile/0/000'), bytes);
        removeLookup();
      },
      'published_file_differs',
      /tile\/0\/000/,
    ],
  ])('when %s', async (_, damage, code, message) => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    damage();
    const before = existsSync(file('lookup/manifest')) ? manifest() : null;
    expect(await stop(publisher.runCycle())).toMatchObject({
      code,
      message: expect.stringMatching(message) as string,
    });
    expect(existsSync(file('lookup/manifest')) ? manifest() : null).toBe(before);
  });

  it.each<[string, () => unknown]>([
    ['a tile at the right edge differs', () => snapshot.registry.corruptTile(0, 1, 5)],
    ['a tile inside differs', () => snapshot.registry.corruptTile(0, 0, 5)],
    ['a tile above the leaves differs', () => snapshot.registry.corruptTile(1, 0, 5)],
    ['a row differs from the verified leaf', () => changeRow(17)],
    [
      'row and tile of a leaf were changed to fit each other',
      () => {
        changeRow(17);
        snapshot.registry.fitTileToRow(17);
      },
    ],
    [
      'a leaf is missing from the registry',
      () => {
        const { all } = snapshot.registry;
        snapshot.registry.leaves = (from, to) =>
          Promise.resolve(all.slice(from, to).filter((leaf) => leaf.leafIndex !== 17));
      },
    ],
  ])('when published leaves and the database disagree: %s', async (_, damage) => {
    damage();
    expect((await stop(snapshot.publisher().runCycle())).code).toBe('tree_mismatch');
    expect(existsSync(file('lookup/manifest'))).toBe(false);
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
  ])('when the entry of a published key compromise %s', async (_, keyEntries) => {
    const { registry } = snapshot;
    registry.addKeyEntry('compromise', 2);
    registry.verify();
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    registry.keyEntries = keyEntries;
    expect((await stop(publisher.runCycle())).code).toBe('tree_mismatch');
  });

  it('when an unverified key entry differs from the entry that was appended', async () => {
    const { registry } = snapshot;
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    registry.addKeyEntry('compromise', 2);
    const { leafIndex } = registry.all.at(-1)!;
    registry.corruptTile(0, Math.floor(leafIndex / 256), (leafIndex % 256) * 32);
    expect((await stop(publisher.runCycle())).code).toBe('tree_mismatch');
  });

  it('when published verdicts are lost although the log is complete', async () => {
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
    // Lost leaves take precedence, because deleting lookup/ would not help then.
    snapshot.registry.truncate(300);
    expect((await stop(publisher.runCycle())).message).not.toContain('delete lookup/');
  });

  it('when TRUSTED_CHECKPOINT covers leaves that the database lacks', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const trustedCheckpoint = readFileSync(file('checkpoint'), 'utf8');
    await publisher.close();
    // Database and directory were rolled back together, so they agree with each other.
    rmSync(snapshot.directory, { recursive: true });
    snapshot.registry.truncate(300);
    const second = snapshot.publisher({ trustedCheckpoint });
    const { code, message } = await stop(second.runCycle());
    expect(code).toBe('database_behind');
    expect(message).toContain('TRUSTED_CHECKPOINT');
    diverge();
    expect((await stop(second.runCycle())).code).toBe('log_forked');
    expect(snapshot.registry.checkpoints).toHaveLength(0);
    expect(existsSync(file('checkpoint'))).toBe(false);
    const other = () => snapshot.publisher({ trustedCheckpoint, origin: 'other.example/log' });
    expect(other).toThrow(/TRUSTED_CHECKPOINT.*LOG_RETIRED/s);
  });

  it('when its log is marked as ended', async () => {
    snapshot.registry.retiredLogs.push(ORIGIN);
    const { code, message } = await stop(snapshot.publisher().runCycle());
    expect(code).toBe('log_ended');
    expect(message).toContain('LOG_ORIGIN');
    await snapshot.publisher({ origin: 'test.example/next' }).runCycle();
  });

  it('when the registry omits a logged revocation', async () => {
    snapshot.registry.revoke(snapshot.registry.addProof());
    snapshot.registry.verify();
    snapshot.registry.statusEntries = () => Promise.resolve([]);
    await expect(snapshot.publisher().runCycle()).rejects.toThrow('did not list the revocation');
  });

  it('when the manifest or the checkpoint belongs to another log', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    await publisher.close();
    const elsewhere = snapshot.publisher({ snapshotName: 'other.example/snapshot' });
    expect((await stop(elsewhere.runCycle())).code).toBe('snapshot_unverifiable');
    await elsewhere.close();
    removeLookup();
    rmSync(file('checkpoint'));
    const other = snapshot.publisher({ origin: 'other.example/log' });
    const { code, message } = await stop(other.runCycle());
    expect(code).toBe('checkpoint_unverifiable');
    expect(message).toContain('LOG_KEY_FILE');
  });

  it('when an index segment is damaged', async () => {
    const publisher = snapshot.publisher();
    const [id] = snapshot.registry.addProofs(1);
    snapshot.registry.verify();
    await publisher.runCycle();
    const part = /"index_parts":\[.*?"sha256":"([0-9a-f]{64})"/.exec(
      manifest().replace(/"resident_sha256":"[0-9a-f]{64}",/g, ''),
    )![1]!;
    const path = file(join('lookup/segments', part));
    const bytes = readFileSync(path);
    for (let at = 0; at < bytes.length; at += 48) bytes[at]! ^= 1;
    writeFileSync(path, bytes);
    snapshot.registry.recordVerdict(id!, { outcome: 'fail' });
    const { code, message } = await stop(publisher.runCycle());
    expect(code).toBe('snapshot_damaged');
    expect(message).toContain('Delete');
  });
});
