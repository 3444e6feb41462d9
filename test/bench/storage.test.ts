import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { countFiles } from '#bench/figures/files';
import { liveBytes } from '#bench/growth/live-bytes';
import { publishedManifest } from '#bench/service/published';
import type { Publisher } from '#publisher/publisher';
import { TestSnapshot } from '../fixtures/snapshot.js';

const snapshot = new TestSnapshot();
let publisher: Publisher;
beforeAll(() => {
  publisher = snapshot.publisher();
});
afterAll(() => snapshot.close());

async function publish(proofs: number): Promise<{ live: number; written: number; all: number }> {
  snapshot.registry.addProofs(proofs);
  snapshot.registry.verify();
  const before = publisher.written().bytes;
  await publisher.runCycle();
  const { directory: snapshotDir, logVkey: log, snapshotVkey } = snapshot;
  const manifest = await publishedManifest({ snapshotDir, vkeys: { log, snapshot: snapshotVkey } });
  return {
    live: await liveBytes(snapshotDir, manifest!),
    written: publisher.written().bytes - before,
    all: (await countFiles(snapshotDir)).bytes,
  };
}

describe('what a published snapshot consists of', () => {
  it('is all that was written, as long as nothing was replaced', async () => {
    // More than a tile, so that there is a second level.
    const { live, written, all } = await publish(600);
    expect(live).toBe(written);
    expect(live).toBe(all);
  });

  it('is less once files were replaced, which are still there', async () => {
    const first = await publish(5);
    const { live, written, all } = await publish(5);
    expect(live).toBeGreaterThan(first.live);
    expect(live).toBeLessThan(all);
    // In a trickle the partial tiles and bundles are written again.
    expect(written).toBeGreaterThan(live - first.live);
  });
});
