import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Checkpoints } from '#api/public/log/checkpoints';
import { directorySource } from '#api/public/snapshot/source';
import type { PublicContext } from '#api/public/operation';
import { resolve, type Resolved } from '#api/public/lookup/resolve';
import { lookupResponse, trustPackageOf } from '#api/public/lookup/views';
import { BY_PATH } from '#protocol/lookup-routes';
import { parseVkey } from '#protocol/note';
import { callAt } from '../../fixtures/public-call.js';
import { interruptible } from '../../fixtures/interruptible.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';
import { membersOf, ViewsWorld } from '../../fixtures/views-world.js';

const views = new ViewsWorld();
const {
  snapshot,
  plain,
  denied,
  certificateRevoked,
  passportExpired,
  failed,
  twin,
  call,
  verdictOn,
  historyOn,
  chainOn,
  packageOn,
  leafOf,
} = views;
beforeAll(() => views.open());
afterAll(() => views.close());

describe('trust package view', () => {
  const expectedEvidence = async (proof: string) => {
    const { leafIndex } = leafOf(proof);
    return {
      log_entry: (await call(`/log/entry/${leafIndex}`)).body,
      leaf_index: leafIndex,
      tlog_proof: (await call(`/log/proof/${leafIndex}`)).text,
      keys: (await call('/api/public/keys')).body,
    };
  };

  it('combines verdict, history, chain and evidence', async () => {
    for (const proof of [plain, certificateRevoked, passportExpired, failed]) {
      for (const prefix of ['trust_', 'trustref_', 'asset_']) {
        const id = prefix + proof;
        const facade = await verdictOn('trust', id);
        expect(await packageOn(id)).toEqual({
          schema_version: 'svc.public_verification.trust_package/1.0',
          ...membersOf(facade),
          facade,
          history: await historyOn('trust', id),
          chain: await chainOn('trust', id),
          evidence: await expectedEvidence(proof),
        });
      }
    }
  });

  it('is read from one snapshot when a newer snapshot is published meanwhile', async () => {
    const world = new TestSnapshot();
    const proof = world.registry.addProof();
    world.registry.verify();
    const publisher = world.publisher();
    await publisher.runCycle();
    const { source, before: interrupt } = interruptible(world.directory, 'logFile');
    const publicServer = world.publicServer({ source });
    const from = await world.serve(publicServer);
    try {
      const before = await packageOn(`trust_${proof}`, from);
      interrupt(async () => {
        world.registry.revoke(proof);
        world.registry.addProofs(300);
        world.registry.addKeyEntry('retire');
        world.registry.verify();
        await publisher.runCycle();
        await publicServer.poller.refresh();
        expect(publicServer.poller.current!.log.size).toBeGreaterThan(304);
      });
      const reply = await callAt(from, `/api/public/trust/trust_${proof}/package`);
      expect(reply.body).toEqual(before);
      expect(reply.headers['x-svc-tree-size']).toBe('4');

      const after = await packageOn(`trust_${proof}`, from);
      expect(after.verification_status).toBe('REVOKED');
      expect(after.history.events.at(-1)).toMatchObject({ event: 'revoked' });
      expect(after.chain.links.at(-1)).toMatchObject({ verification_status: 'REVOKED' });
      expect(after.evidence!.keys).not.toEqual(before.evidence!.keys);
      expect(after.evidence!.tlog_proof).toMatch(/\n30[0-9]\n/);
    } finally {
      await world.close();
    }
  });

  it('answers 503 when the log entry at the leaf index belongs to another proof', async () => {
    const publicServer = snapshot.publicServer();
    await publicServer.poller.refresh();
    const { current } = publicServer.poller;
    const source = directorySource(snapshot.directory);
    const trust = [parseVkey(snapshot.logVkey)] as const;
    const checkpoints = new Checkpoints(source, trust, snapshot.clock);
    const ctx = { source, trust, checkpoints } as unknown as PublicContext;
    const right = (await resolve(current!, BY_PATH.trust, `trust_${plain}`))!;
    const packageOf = (resolved: Resolved) =>
      trustPackageOf(ctx, current!, lookupResponse(resolved), resolved);
    expect((await packageOf(right)).evidence!.log_entry.proof_id).toBe(plain);
    const [proof] = right.proofs;
    const wrong = (members: object): Resolved => ({
      ...right,
      proofs: [{ ...proof, proof: { ...proof.proof, ...members } }],
    });
    // A record whose leaf index points to another proof or to a different kind of entry.
    for (const leafIndex of [leafOf(denied).leafIndex, leafOf(twin).leafIndex, 0]) {
      await expect(packageOf(wrong({ leafIndex }))).rejects.toThrow(
        `leaf ${leafIndex} does not match the record`,
      );
    }
    for (const name of ['aepHash', 'proofRecordHash']) {
      await expect(packageOf(wrong({ [name]: new Uint8Array(32) }))).rejects.toThrow(
        'does not match the record',
      );
    }
  });
});
