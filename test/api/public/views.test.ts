import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Checkpoints } from '#api/public/log/checkpoints';
import { lookUp, type Resolved } from '#api/public/lookup/resolve';
import { lookupResponse, trustPackageOf } from '#api/public/lookup/views';
import type { PublicContext } from '#api/public/operation';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { BY_PATH } from '#protocol/lookup-routes';
import { parseVkey } from '#protocol/note';
import {
  facadeSchema,
  trustPackageSchema,
  type PublicTrustPackage,
} from '#protocol/schemas/facade';
import { COSIGNED_PATH } from '#protocol/snapshot/location';
import { membersOf } from '#protocol/state/views';
import { formatTime } from '#protocol/time';
import type { HttpServer } from '#runtime/http/server';
import { callAt, type Call } from '../../fixtures/public-call.js';
import { proofIdAt, START, TestSnapshot } from '../../fixtures/snapshot.js';

const snapshot = new TestSnapshot();
const { registry } = snapshot;
const plain = registry.addProof();
const denied = registry.addProof({ effect: 'DENY' });
const deniedRevoked = registry.addProof({ effect: 'DENY' });
const failed = registry.addProof();
const packaged = registry.bundle([plain, failed]);
const unknown = proofIdAt(1_700_000_000_000, 'unknown');

const leafOf = (proofId: string) => {
  const leaf = registry.all.find((one) => one.kind === 'proof' && one.proofId === proofId);
  if (leaf?.kind !== 'proof') throw new Error(`no leaf of ${proofId}`);
  return leaf;
};
const { aepHash, proofRecordHash } = leafOf(plain);
/** A second proof with the hashes of `plain`. */
const twin = registry.addProof({ aepHash, proofRecordHash });

let server: HttpServer;
beforeAll(async () => {
  registry.revoke(deniedRevoked);
  registry.verify();
  registry.recordVerdict(failed, { outcome: 'fail' });
  await snapshot.publisher().runCycle();
  server = await snapshot.serve(snapshot.publicServer());
});
afterAll(() => snapshot.close());

const call = (path: string, options?: Call) => callAt(server, path, options);
const packageOn = async (id: string, from = server): Promise<PublicTrustPackage> =>
  trustPackageSchema.parse((await callAt(from, `/api/public/trust/${id}/package`)).body);

it('history view > names the log entry that revokes a denial', async () => {
  const { body } = await call(`/api/public/proof/${deniedRevoked}/history`);
  const { leafIndex, acceptedAt } = leafOf(deniedRevoked);
  expect(body).toMatchObject({
    verification_status: 'REVOKED',
    events: [
      { event: 'accepted', at: formatTime(acceptedAt) },
      { event: 'appended', leaf_index: leafIndex },
      { event: 'revoked', artifact: 'proof' },
      { event: 'verified', at: formatTime(START) },
    ],
  });
  const { leaf_index, reason_hash } = (
    body as { events: { leaf_index: number; reason_hash: string }[] }
  ).events[2]!;
  const entry = await call(`/log/entry/${leaf_index}`);
  expect(entry.body).toMatchObject({ type: 'status', proof_id: deniedRevoked, reason_hash });
  for (const id of [unknown, `cert_${plain}`]) {
    const { body: none } = await call(`/api/public/proof/${id}/history`);
    expect(none).toMatchObject({ artifact_kind: 'proof', identifier: id, events: [] });
  }
});

it('view paths > return an ETag that covers the whole body', async () => {
  const world = new TestSnapshot();
  const proof = world.registry.addProof();
  const publisher = world.publisher();
  const publicServer = world.publicServer();
  const from = await world.serve(publicServer);
  const paths = ['', '/timeline', '/chain', '/package'].map(
    (view) => `/api/public/trust/trust_${proof}${view}`,
  );
  const republish = async (): Promise<string[]> => {
    world.registry.verify();
    await publisher.runCycle();
    await publicServer.poller.refresh();
    const replies = await Promise.all(paths.map((path) => callAt(from, path)));
    const tags = replies.map(({ headers }) => headers.etag!);
    expect(new Set(tags).size).toBe(paths.length);
    for (const [i, path] of paths.entries()) {
      const again = await callAt(from, path, { headers: { 'If-None-Match': tags[i]! } });
      expect([again.status, again.text]).toEqual([304, '']);
    }
    return tags;
  };
  const first = await republish();
  world.registry.addProof();
  const grown = await republish();
  // The added proof changes only the package view, whose evidence contains the new checkpoint.
  const withoutGeneration = (tag: string): string => tag.replace(/^"\d+-/, '"');
  const [before, after] = [first, grown].map((all) => all.map(withoutGeneration));
  expect(after!.slice(0, 3)).toEqual(before!.slice(0, 3));
  expect(after![3]).not.toBe(before![3]);
  world.registry.revoke(proof, 'trust');
  const ended = await republish();
  for (const [i, tag] of grown.entries()) expect([first[i], ended[i]]).not.toContain(tag);
  await world.close();
});

describe('trust package view', () => {
  it.each([
    ['a valid proof', plain],
    ['a failed proof', failed],
  ])('combines verdict, history, chain and evidence of %s', async (_what, proof) => {
    const { leafIndex } = leafOf(proof);
    const id = `trust_${proof}`;
    const facade = facadeSchema.parse((await call(`/api/public/verify/trust/${id}`)).body);
    expect(await packageOn(id)).toEqual({
      schema_version: 'svc.public_verification.trust_package/1.0',
      ...membersOf(facade),
      facade,
      history: (await call(`/api/public/trust/${id}/timeline`)).body,
      chain: (await call(`/api/public/trust/${id}/chain`)).body,
      evidence: {
        log_entry: (await call(`/log/entry/${leafIndex}`)).body,
        leaf_index: leafIndex,
        tlog_proof: (await call(`/log/proof/${leafIndex}`)).text,
        keys: (await call('/api/public/keys')).body,
      },
    });
  });

  it('is built from one snapshot when a newer snapshot is published during the request', async () => {
    const world = new TestSnapshot();
    const proof = world.registry.addProof();
    world.registry.verify();
    const publisher = world.publisher();
    await publisher.runCycle();
    const source = directorySource(world.directory);
    let meanwhile: (() => Promise<void>) | null = null;
    const logFile: SnapshotSource['logFile'] = async (path) => {
      const work = meanwhile;
      // Clears `meanwhile` before the call, because the called function reads log files too.
      meanwhile = null;
      await work?.();
      return source.logFile(path);
    };
    const publicServer = world.publicServer({ source: { ...source, logFile } });
    const from = await world.serve(publicServer);
    const before = await packageOn(`trust_${proof}`, from);
    meanwhile = async () => {
      world.registry.revoke(proof);
      world.registry.addProofs(300);
      world.registry.addKeyEntry('retire');
      world.registry.verify();
      await publisher.runCycle();
      await publicServer.poller.refresh();
    };
    const reply = await callAt(from, `/api/public/trust/trust_${proof}/package`);
    expect(reply.body).toEqual(before);
    expect(reply.headers['x-svc-tree-size']).toBe('4');

    const after = await packageOn(`trust_${proof}`, from);
    expect(after.verification_status).toBe('REVOKED');
    expect(after.history.events.at(-1)).toMatchObject({ event: 'revoked' });
    expect(after.chain.links.at(-1)).toMatchObject({ verification_status: 'REVOKED' });
    expect(after.evidence!.keys).not.toEqual(before.evidence!.keys);
    expect(after.evidence!.tlog_proof).toMatch(/\n30[0-9]\n/);
    await world.close();
  });

  it('proves the entry under the tree of its verdict while the witnesses cosigned an earlier tree', async () => {
    const world = new TestSnapshot();
    const [proof] = world.grow(1);
    const publisher = world.publisher();
    await publisher.runCycle();
    copyFileSync(join(world.directory, 'checkpoint'), join(world.directory, COSIGNED_PATH));
    const publicServer = world.publicServer();
    const from = await world.serve(publicServer);
    const checkpointText = async () => (await fetch(`${from.url}/log/checkpoint`)).text();
    const cosigned = await checkpointText();
    await world.publishProof(publisher);
    await publicServer.poller.refresh();
    expect(await checkpointText()).toBe(cosigned);
    const { evidence } = await packageOn(`trust_${proof!}`, from);
    const { checkpointNote } = publicServer.poller.current!;
    expect(evidence!.tlog_proof.endsWith(`\n\n${checkpointNote}`)).toBe(true);
    await world.close();
  });

  it('throws when the log entry at the leaf index does not match the record of the proof', async () => {
    const { poller } = snapshot.publicServer();
    await poller.refresh();
    const source = directorySource(snapshot.directory);
    const trust = [parseVkey(snapshot.logVkey)] as const;
    const checkpoints = new Checkpoints(source, trust, snapshot.clock);
    const ctx = { source, trust, checkpoints } as unknown as PublicContext;
    const target = { route: BY_PATH.trust, requested: `trust_${plain}` };
    const right = lookUp(poller.current!, target, snapshot.clock.now()).resolved!;
    const packageOf = (resolved: Resolved) =>
      trustPackageOf(ctx, poller.current!, lookupResponse(resolved), resolved);
    expect((await packageOf(right)).evidence!.log_entry.proof_id).toBe(plain);
    const [proof] = right.proofs;
    // A record whose leaf index points to another proof or to a different kind of entry.
    const wrong = [leafOf(denied).leafIndex, leafOf(twin).leafIndex, 0];
    for (const members of [
      ...wrong.map((leafIndex) => ({ leafIndex })),
      { aepHash: new Uint8Array(32) },
      { proofRecordHash: new Uint8Array(32) },
    ]) {
      const proofs = [{ ...proof, proof: { ...proof.proof, ...members } }] as const;
      await expect(packageOf({ ...right, proofs })).rejects.toThrow('does not match the record');
    }
  });
});

it('cached package > keeps no page of the map in memory', async () => {
  const { poller } = snapshot.publicServer();
  await poller.refresh();
  const target = { route: BY_PATH.package, requested: packaged };
  const { resolved } = lookUp(poller.current!, target, snapshot.clock.now());
  const [{ proof, history }] = resolved!.proofs;
  const kept = [proof.aepHash, proof.proofRecordHash, history];
  expect(kept.map(({ buffer }) => buffer.byteLength)).toEqual(kept.map(({ length }) => length));
});
