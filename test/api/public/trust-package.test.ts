import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Checkpoints } from '#api/public/log/checkpoints';
import { parseVkey } from '#protocol/note';
import { directorySource } from '#api/public/snapshot/source';
import type { PublicContext } from '#api/public/operation';
import { trustPackageOf } from '#api/public/lookup/views';
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
  published,
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
        expect(publicServer.poller.current!.opened.manifest.tree_size).toBe(304);
      });
      const reply = await callAt(from, `/api/public/trust/trust_${proof}/package`);
      expect(reply.body).toEqual(before);
      expect(reply.headers['x-svc-tree-size']).toBe('2');

      const after = await packageOn(`trust_${proof}`, from);
      expect(after.verification_status).toBe('REVOKED');
      expect(after.history.events.at(-1)).toMatchObject({ event: 'revoked' });
      expect(after.chain.links.at(-1)).toMatchObject({ verification_status: 'REVOKED' });
      expect(after.evidence!.keys).not.toEqual(before.evidence!.keys);
      expect(after.evidence!.tlog_proof).toContain('\n304\n');
    } finally {
      await world.close();
    }
  });

  it('answers 503 when the log entry at the leaf index belongs to another proof', async () => {
    const publicServer = snapshot.publicServer();
    await publicServer.poller.refresh();
    const source = directorySource(snapshot.directory);
    const checkpoints = new Checkpoints(source, [parseVkey(snapshot.logVkey)], snapshot.clock);
    const ctx = { source, checkpoints } as PublicContext;
    const right = published(plain, {});
    const made = trustPackageOf(ctx, publicServer.poller.current!, right.facade, right.resolved);
    expect((await made).evidence!.log_entry.proof_id).toBe(plain);
    // A record whose leaf index points to another proof or to a different kind of entry.
    for (const leaf_index of [leafOf(denied).leafIndex, leafOf(twin).leafIndex, 0]) {
      const wrong = published(plain, {}, { leaf_index });
      await expect(
        trustPackageOf(ctx, publicServer.poller.current!, wrong.facade, wrong.resolved),
      ).rejects.toThrow(`leaf ${leaf_index} does not match the record`);
    }
    for (const name of ['aep_hash', 'proof_record_hash']) {
      const wrong = published(plain, {}, { [name]: '0'.repeat(64) });
      await expect(
        trustPackageOf(ctx, publicServer.poller.current!, wrong.facade, wrong.resolved),
      ).rejects.toThrow('does not match the record');
    }
    source.close();
  });
});
