import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Facade as FacadeBody } from '#protocol/schemas/facade';
import type { Publisher } from '#publisher/publisher';
import { FatalPublishError } from '#publisher/errors';
import type { HttpServer } from '#runtime/http/server';
import { useSnapshot } from '../fixtures/use-registry.js';

const snapshot = useSnapshot();
let publisher: Publisher;
let ids: string[];
beforeEach(async () => {
  ids = snapshot.registry.addProofs(400);
  snapshot.registry.verify();
  publisher = snapshot.publisher();
  await publisher.runCycle();
});

const manifestBytes = () => readFileSync(join(snapshot.directory, 'lookup/manifest'));
const manifest = () => snapshot.manifest();

async function statusOf(server: HttpServer, id: string, kind = 'proof'): Promise<string> {
  const response = await fetch(`${server.url}/api/public/verify/${kind}/${id}`);
  const { verification } = (await response.json()) as FacadeBody;
  expect(verification.can_assert_validity).toBe(verification.verification_status === 'VALID');
  return verification.verification_status;
}

async function expectStopped(code = 'tree_mismatch'): Promise<void> {
  const error: unknown = await publisher.runCycle().catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(FatalPublishError);
  expect((error as FatalPublishError).code).toBe(code);
}

/** Damages a tile that the log then extends. */
function damage(): void {
  snapshot.registry.corruptTile(0, 1, 5);
  snapshot.registry.addProof();
  snapshot.registry.verify();
}

describe('publisher stopped by a contradiction in the registry', () => {
  it('withdraws failed proofs and leaves all other records as published', async () => {
    const publicServer = snapshot.publicServer();
    const server = await snapshot.serve(publicServer);
    const before = manifest();
    damage();
    snapshot.registry.recordVerdict(ids[3]!, { outcome: 'fail' });
    snapshot.clock.at += 60_000;
    await expectStopped();

    const after = manifest();
    expect({ ...after.manifest, generation: 0, index_parts: [] }).toEqual({
      ...before.manifest,
      generation: 0,
      index_parts: [],
    });
    expect(after.manifest.generation).toBeGreaterThan(before.manifest.generation);
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toBeNull();
    expect(await statusOf(server, ids[3]!)).toBe('BACKEND_LOOKUP_REQUIRED');
    for (const id of [ids[2]!, ids[4]!]) expect(await statusOf(server, id)).toBe('VALID');
  });

  it('extends no validity, and resumes after a repair', async () => {
    snapshot.registry.recordVerdict(ids[3]!, { outcome: 'fail' });
    await publisher.runCycle();
    const before = manifest();
    damage();
    snapshot.registry.recordVerdict(ids[3]!, { outcome: 'pass' });
    snapshot.registry.recordVerdict(ids[4]!, { outcome: 'pass', expired: ['proof'] });
    await expectStopped();
    expect(manifest()).toEqual(before);
    snapshot.registry.recordVerdict(ids[5]!, { outcome: 'fail' });
    await expectStopped();
    const server = await snapshot.serve(snapshot.publicServer());
    expect(await statusOf(server, ids[3]!)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(await statusOf(server, ids[4]!)).toBe('VALID');
    expect(await statusOf(server, ids[5]!)).toBe('BACKEND_LOOKUP_REQUIRED');

    snapshot.registry.corruptTile(0, 1, 5);
    await publisher.runCycle();
    const repaired = await snapshot.serve(snapshot.publicServer());
    expect(await statusOf(repaired, ids[3]!)).toBe('VALID');
    expect(await statusOf(repaired, ids[4]!)).toBe('EXPIRED');
    expect(await statusOf(repaired, ids[5]!)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(manifest().manifest.tree_size).toBe(402);
  });

  it('withdraws each proof once, also across restarts', async () => {
    damage();
    snapshot.registry.recordVerdict(ids[3]!, { outcome: 'fail' });
    await expectStopped();
    const once = manifestBytes();
    await publisher.close();
    publisher = snapshot.publisher();
    await expectStopped();
    expect(manifestBytes()).toEqual(once);
    snapshot.registry.recordVerdict(ids[4]!, { outcome: 'fail' });
    await expectStopped();
    const server = await snapshot.serve(snapshot.publicServer());
    for (const id of [ids[3]!, ids[4]!]) {
      expect(await statusOf(server, id)).toBe('BACKEND_LOOKUP_REQUIRED');
    }
  });

  it('keeps revoked artifacts revoked', async () => {
    snapshot.registry.revoke(ids[3]!);
    snapshot.registry.verify();
    await publisher.runCycle();
    damage();
    snapshot.registry.recordVerdict(ids[3]!, { outcome: 'fail' });
    snapshot.registry.statusEntriesOf = () => Promise.resolve([]);
    await expectStopped();
    const server = await snapshot.serve(snapshot.publicServer());
    expect(await statusOf(server, ids[3]!)).toBe('REVOKED');
  });

  it('withdraws every failed proof, even beyond the limit per cycle', async () => {
    const { registry } = snapshot;
    const all = registry.verdictChangesSince.bind(registry);
    registry.verdictChangesSince = (since, limit) => all(since, Math.min(limit, 2));
    damage();
    for (const id of [ids[0]!, ids[1]!, ids[0]!, ids[7]!, ids[399]!]) {
      registry.recordVerdict(id, { outcome: 'fail' });
    }
    await expectStopped();
    const server = await snapshot.serve(snapshot.publicServer());
    for (const id of [ids[0]!, ids[1]!, ids[7]!, ids[399]!]) {
      expect(await statusOf(server, id)).toBe('BACKEND_LOOKUP_REQUIRED');
    }
    expect(await statusOf(server, ids[2]!)).toBe('VALID');
  });

  it('writes nothing when the published snapshot has expired', async () => {
    const before = manifestBytes();
    damage();
    snapshot.registry.recordVerdict(ids[3]!, { outcome: 'fail' });
    snapshot.clock.at = manifest().validUntil;
    await expectStopped();
    expect(manifestBytes()).toEqual(before);
  });

  it('retries a failed withdrawal before it exits', async () => {
    damage();
    snapshot.registry.recordVerdict(ids[3]!, { outcome: 'fail' });
    const before = manifestBytes();
    const histories = snapshot.registry.verdictHistories.bind(snapshot.registry);
    snapshot.registry.verdictHistories = () => Promise.reject(new Error('the database is away'));
    const failed: unknown = await publisher.runCycle().catch((reason: unknown) => reason);
    expect(failed).not.toBeInstanceOf(FatalPublishError);
    expect(String(failed)).toMatch(/could not be withdrawn.*contradicts itself/);
    expect(manifestBytes()).toEqual(before);
    snapshot.registry.verdictHistories = histories;
    await expectStopped();
    expect(manifestBytes()).not.toEqual(before);
  });
});

describe('publisher stopped by a forked log', () => {
  it('withdraws no proof', async () => {
    const before = manifestBytes();
    snapshot.registry.truncate(300);
    for (let i = 0; i < 250; i++) {
      snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + 10_000 + i });
    }
    snapshot.registry.verify();
    snapshot.registry.recordVerdict(ids[3]!, { outcome: 'fail' });
    await expectStopped('log_forked');
    expect(manifestBytes()).toEqual(before);
  });
});
