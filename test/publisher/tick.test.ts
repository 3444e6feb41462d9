import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { fromUtf8, toHex } from '#protocol/bytes';
import { openCheckpoint } from '#protocol/checkpoint';
import { facadeSchema, type Facade as FacadeBody } from '#protocol/schemas/facade';
import { decodeEntryBundle, entriesPath, rootFromTiles, tilePath } from '#protocol/tiles';
import { leafHash } from '#protocol/merkle';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { ORIGIN } from '../fixtures/snapshot.js';
import { useSnapshot } from '../fixtures/use-registry.js';

const snapshot = useSnapshot();

const read = (path: string): Buffer => readFileSync(join(snapshot.directory, path));

const manifest = () => snapshot.manifest();

/** Public view of a proof, through a public API server that has just started. */
async function look(path: string): Promise<{ status: number; body: FacadeBody }> {
  const server = await snapshot.serve(snapshot.publicServer());
  const response = await fetch(`${server.url}/api/public/verify/${path}`);
  return { status: response.status, body: (await response.json()) as FacadeBody };
}

async function status(path: string): Promise<string> {
  return (await look(path)).body.verification.verification_status;
}

describe('publish cycle', () => {
  it('publishes only verified leaves', async () => {
    const { registry } = snapshot;
    const [first] = registry.addProofs(3);
    registry.verify();
    const unverified = registry.addProof();
    const publisher = snapshot.publisher();
    expect(await publisher.runCycle()).toMatchObject({
      outcome: 'published',
      treeSize: 4,
      newProofs: 3,
    });
    expect((await look(`proof/${first}`)).status).toBe(200);
    expect((await look(`proof/${unverified}`)).status).toBe(404);
  });

  it('publishes a policy denial as a valid proof without passport, certificate or trust', async () => {
    const { registry } = snapshot;
    const id = registry.addProof({ effect: 'DENY' });
    registry.verify();
    await snapshot.publisher().runCycle();
    const { body } = await look(`proof/${id}`);
    expect(facadeSchema.parse(body)).toEqual(body);
    expect(body.verification.verification_status).toBe('VALID');
    expect(body.artifact).toMatchObject({ effect: 'DENY' });
    expect(body.trust_chain).toEqual({
      available: false,
      sequence: ['execution', 'evidence', 'verification'],
    });
    const certificate = await look(`certificate/cert_${id}`);
    expect(certificate.status).toBe(200);
    expect(certificate.body.artifact).toEqual({});
    expect(certificate.body.verification.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
  });

  it('writes a log that can be verified leaf by leaf from its files', async () => {
    const { registry } = snapshot;
    const publisher = snapshot.publisher({ chunkLeaves: 256 });
    const sizes: number[] = [];
    for (const count of [1, 3, 250, 1, 1, 300, 600]) {
      registry.addProofs(count);
      registry.verify();
      await publisher.runCycle();
      const checkpoint = openCheckpoint(
        fromUtf8(read('checkpoint')),
        snapshot.logVkey,
        ORIGIN,
        nativeVerify,
      );
      sizes.push(checkpoint.size);
      const root = await rootFromTiles(nativeSha256, checkpoint.size, (level, index, width) =>
        Promise.resolve(read(tilePath(level, index, width))),
      );
      expect(toHex(root)).toBe(toHex(checkpoint.root));
    }
    const size = sizes.at(-1)!;
    expect(size).toBe(registry.all.length);
    for (let index = 0; index * 256 < size; index++) {
      const width = Math.min(256, size - index * 256);
      const hashes = read(tilePath(0, index, width));
      decodeEntryBundle(read(entriesPath(index, width))).forEach((entry, i) => {
        expect(toHex(leafHash(nativeSha256, entry))).toBe(
          toHex(hashes.subarray(32 * i, 32 * i + 32)),
        );
      });
    }
    // The partial tiles of each published checkpoint still exist.
    for (const earlier of sizes) {
      await rootFromTiles(nativeSha256, earlier, (level, index, width) =>
        Promise.resolve(read(tilePath(level, index, width))),
      );
    }
  });

  it('signs only a new manifest when nothing has changed', async () => {
    snapshot.registry.addProofs(5);
    snapshot.registry.verify();
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const before = manifest();
    const files = publisher.written().files;
    snapshot.clock.at += 1000;
    await publisher.runCycle();
    const after = manifest();
    expect(publisher.written().files).toBe(files + 1);
    expect(after.manifest.generation).toBe(before.manifest.generation + 1);
    expect(after.issuedAt).toBe(before.issuedAt + 1000);
    expect(after.validUntil).toBe(after.issuedAt + 15 * 60 * 1000);
    expect(after.manifest.index_parts).toEqual(before.manifest.index_parts);
  });

  it('publishes a revocation once the verified prefix covers its log entry', async () => {
    const { registry } = snapshot;
    const [published, fresh] = registry.addProofs(2);
    registry.verify();
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    expect(await status(`proof/${published}`)).toBe('VALID');

    const late = registry.addProof();
    registry.revoke(published!);
    registry.revoke(fresh!, 'passport');
    registry.revoke(late);
    expect(await publisher.runCycle()).toMatchObject({ newProofs: 0 });
    // The revocation is not in the verified prefix yet, so not in the snapshot's tree either.
    expect(await status(`proof/${published}`)).toBe('VALID');

    registry.verify();
    expect(await publisher.runCycle()).toMatchObject({ newProofs: 1, changedRecords: 2 });
    for (const kind of ['proof/', 'certificate/cert_', 'passport/pass_', 'trust/trust_']) {
      expect(await status(kind + published)).toBe('REVOKED');
      expect(await status(kind + late)).toBe('REVOKED');
    }
    expect(await status(`proof/${fresh}`)).toBe('VALID');
    expect(await status(`passport/pass_${fresh}`)).toBe('REVOKED');
    expect(await status(`certificate/cert_${fresh}`)).toBe('REVOKED');

    // A later verdict does not undo the revocation.
    registry.recordVerdict(published!, { outcome: 'pass' });
    await publisher.runCycle();
    expect(await status(`proof/${published}`)).toBe('REVOKED');
  });

  it('publishes expiries, failures and repairs of proofs that are already published', async () => {
    const { registry } = snapshot;
    const [one, two] = registry.addProofs(2);
    registry.verify();
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    registry.recordVerdict(one!, { expired: ['certificate'] });
    registry.recordVerdict(two!, { outcome: 'fail' });
    expect(await publisher.runCycle()).toMatchObject({ changedRecords: 2 });
    expect(await status(`passport/pass_${one}`)).toBe('PASS');
    expect(await status(`certificate/cert_${one}`)).toBe('EXPIRED');
    expect(await status(`trust/trust_${one}`)).toBe('EXPIRED');
    const failed = await look(`proof/${two}`);
    expect(failed.status).toBe(200);
    expect(facadeSchema.parse(failed.body)).toEqual(failed.body);
    expect(failed.body.verification).toMatchObject({
      verification_status: 'BACKEND_LOOKUP_REQUIRED',
      can_assert_validity: false,
    });
    expect(failed.body.trust_chain).toEqual({ available: false, sequence: [] });

    registry.recordVerdict(two!, { outcome: 'pass' });
    await publisher.runCycle();
    const again = await look(`proof/${two}`);
    expect(again.body.verification.verification_status).toBe('VALID');
    expect(again.body.trust_chain.available).toBe(true);
    // A repeated verdict is not a change.
    registry.recordVerdict(two!, { outcome: 'pass' });
    expect(await publisher.runCycle()).toMatchObject({ changedRecords: 0 });
  });

  it('publishes the AEP keys with their states by log position', async () => {
    const { registry } = snapshot;
    registry.addProofs(2);
    registry.addKeyEntry('retire');
    registry.addKeyEntry('compromise', 2);
    registry.verify();
    await snapshot.publisher().runCycle();
    const server = await snapshot.serve(snapshot.publicServer());
    const response = await fetch(`${server.url}/api/public/keys`);
    expect(await response.json()).toMatchObject({
      aep: [{ kty: 'OKP', crv: 'Ed25519', activated_at: 0, retired_at: 3, compromised_from: 2 }],
      log: { origin: ORIGIN, vkey: snapshot.logVkey, retired: [] },
      snapshot: { vkey: snapshot.snapshotVkey, retired: [] },
    });
  });

  it('publishes a key compromise, but no other key change, before the verified prefix covers it', async () => {
    const { registry } = snapshot;
    registry.addProofs(3);
    registry.verify();
    registry.addKeyEntry('retire');
    registry.addKeyEntry('compromise', 2);
    expect(await snapshot.publisher().runCycle()).toMatchObject({ treeSize: 4 });
    const server = await snapshot.serve(snapshot.publicServer());
    const response = await fetch(`${server.url}/api/public/keys`);
    expect(await response.json()).toMatchObject({
      aep: [{ retired_at: null, compromised_from: 2 }],
    });
  });

  it('publishes no verdict of a compromise that the published key list lacks', async () => {
    const { registry } = snapshot;
    registry.addProofs(3);
    registry.addKeyEntry('compromise', 2);
    registry.verify();
    const all = registry.keyEntries.bind(registry);
    registry.keyEntries = async () => (await all()).slice(0, -1);
    const publisher = snapshot.publisher();
    await expect(publisher.runCycle()).rejects.toThrow('did not list the key entry at leaf 4');
    registry.keyEntries = all;
    expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', treeSize: 5 });
  });

  it('rebuilds a lost directory with a generation above every published one', async () => {
    const { registry, clock } = snapshot;
    const ids = registry.addProofs(700);
    registry.revoke(ids[3]!);
    registry.verify();
    const first = snapshot.publisher({ chunkLeaves: 256 });
    for (let i = 0; i < 3; i++) {
      await first.runCycle();
      clock.at += 1000;
    }
    const seen = manifest().manifest.generation;
    await first.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    await snapshot.publisher({ chunkLeaves: 256 }).runCycle();
    expect(manifest().manifest.generation).toBeGreaterThan(seen);
    expect(await status(`proof/${ids[3]}`)).toBe('REVOKED');
    expect(await status(`proof/${ids[600]}`)).toBe('VALID');
  });
});
