import { describe, expect } from 'vitest';
import { inclusionResponseSchema, receiptEvidenceSchema } from '#protocol/schemas/proof-export';
import { proofViewSchema } from '#protocol/schemas/proof-view';
import { fromBase64, toBase64 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { documentHash } from '#protocol/hash';
import { verifyOffline } from '#protocol/offline';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { parseTlogProof } from '#protocol/checkpoint';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { openCheckpoint } from '../../fixtures/checkpoints.js';
import { eraseProof } from '../../fixtures/erase.js';
import { executeBody } from '../../fixtures/engine.js';
import { executeReceiptSchema } from '#protocol/schemas/admission';
import { engineTest, ofProof } from './setup.js';

const it = engineTest({ scopes: ['admit', 'read'] });

describe('GET /v1/proofs/{proof_id}', () => {
  it('returns the record with all hashed documents', async ({ setup }) => {
    const id = await setup.admitOne();
    const reply = await setup.get(`/v1/proofs/${id}`);
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toBe('application/json');
    const view = proofViewSchema.parse(reply.json);
    expect(view).toMatchObject({ proof_id: id, effect: 'ADMIT', environment: 'sandbox' });
    expect(documentHash(nativeSha256, view.aep)).toBe(view.log_entry.aep_hash);
    expect(documentHash(nativeSha256, view.proof_record)).toBe(view.log_entry.proof_record_hash);
    expect(fromBase64(view.proof_record!.envelope.payload)).toEqual(canonicalBytes(view.aep));
  });

  it('returns only the log entry and hashes of an erased proof', async ({ setup }) => {
    const id = await setup.admitOne();
    await eraseProof(setup.db, id);
    const view = proofViewSchema.parse((await setup.get(`/v1/proofs/${id}`)).json);
    expect(view).toMatchObject({
      receipt: null,
      aep: null,
      proof_record: null,
      log_entry: { proof_id: id },
      verdict: { can_assert_validity: false },
    });
  });
});

it('GET /v1/proofs/{proof_id}/receipt-evidence > proves the receipt at once, and its inclusion once a checkpoint covers the entry', async ({
  setup,
}) => {
  const { log, pins } = setup;
  const { json } = await setup.execute(executeBody());
  const receipt = executeReceiptSchema.parse(json);
  const evidence = async () => {
    const { json } = await setup.get(`/v1/proofs/${receipt.registry_proof_id}/receipt-evidence`);
    return receiptEvidenceSchema.parse(json);
  };
  const crypto = nativeCrypto;

  const first = await evidence();
  expect(first.tlog_proof).toBeNull();
  expect(verifyOffline(first, pins, crypto, { receipt })).toMatchObject({
    authentic: true,
    status: 'unknown',
    faults: [],
  });
  const other = { ...receipt, status: 'DENIED' as const };
  expect(verifyOffline(first, pins, crypto, { receipt: other })).toMatchObject({
    authentic: false,
    faults: [{ code: 'receipt_mismatch' }],
  });

  await log.publish();
  const later = await evidence();
  expect(later).toEqual({
    ...first,
    key: { ...first.key, tlog_proof: expect.any(String) as string },
    tlog_proof: expect.any(String) as string,
  });
  expect(verifyOffline(later, pins, crypto, { receipt })).toMatchObject({ included: true });
  const text = later.tlog_proof!.replace(/^index \d+/m, 'index 0');
  expect(verifyOffline({ ...later, tlog_proof: text }, pins, crypto)).toMatchObject({
    included: false,
    faults: [{ code: 'not_in_tree' }],
  });

  await setup.admitOne();
  await log.publish();
  expect(await evidence()).toEqual(later);
});

describe('GET /v1/proofs/{proof_id}/inclusion', () => {
  it('reports pending_checkpoint while no checkpoint covers the proof', async ({ setup }) => {
    const path = `/v1/proofs/${await setup.admitOne()}/inclusion`;
    const reply = await setup.get(path);
    expect(reply.status).toBe(200);
    expect(inclusionResponseSchema.parse(reply.json).state).toBe('pending_checkpoint');
    const text = await setup.get(path, { Accept: 'text/plain' });
    expect(text.json).toMatchObject({ status: 409, code: 'pending_checkpoint' });
    expect(text.headers['retry-after']).toBe('1');
  });

  it('proves the leaf under a signed checkpoint in JSON and tlog-proof', async ({ setup }) => {
    const ids = await setup.registry.admitAll(
      Array.from({ length: 300 }, () => setup.registry.item()),
    );
    await setup.log.publish();
    for (const id of [ids[0]!, ids[150]!, ids[299]!]) {
      const path = `/v1/proofs/${id}/inclusion`;
      const answer = inclusionResponseSchema.parse((await setup.get(path)).json);
      if (answer.state !== 'included') throw new Error('not included');
      const { inclusion } = answer;
      const head = openCheckpoint(inclusion.checkpoint, setup.log.vkey, setup.log.origin);
      expect(head.size).toBe(inclusion.tree_size);
      expect(toBase64(head.root)).toBe(answer.root);
      const hash = leafHash(nativeSha256, canonicalBytes(answer.entry));
      expect(toBase64(hash)).toBe(answer.leaf_hash);
      const claim = {
        index: answer.leaf_index,
        size: head.size,
        leafHash: hash,
        path: inclusion.path.map(fromBase64),
        root: head.root,
      };
      expect(verifyInclusion(nativeSha256, claim)).toBe(true);

      const text = await setup.get(path, { Accept: 'text/plain;\tcharset=utf-8' });
      expect(text.headers['content-type']).toBe('text/plain; charset=utf-8');
      expect(text.headers.vary).toBe('Accept');
      const proof = parseTlogProof(text.bytes.toString());
      expect(proof.index).toBe(answer.leaf_index);
      expect(proof.path.map(toBase64)).toEqual(inclusion.path);
      expect(proof.checkpoint).toBe(inclusion.checkpoint);
    }
  });

  it('responds with 500 when the tile, leaf or checkpoint was altered', async ({ setup }) => {
    await setup.admitOne();
    await setup.log.publish();
    // The last leaf is in the inclusion path of the leaf before it.
    const [id = ''] = await setup.registry.admitAll([setup.registry.item(), setup.registry.item()]);
    await setup.log.publish();
    const path = `/v1/proofs/${id}/inclusion`;
    const flipped = (column: string): string =>
      `${column} = set_byte(${column}, length(${column}) - 1, get_byte(${column}, length(${column}) - 1) # 1)`;
    const latest = 'tree_size = (select max(tree_size) from svc.checkpoint)';
    for (const [table, change, rows] of [
      ['tile', flipped('hashes'), 'level = 0'],
      ['log_entry', flipped('aep_hash'), ofProof(id)],
      ['checkpoint', flipped('root'), latest],
      ['checkpoint', 'note = (select note from svc.checkpoint order by tree_size limit 1)', latest],
    ] as const) {
      await setup.whileAltered(table, change, rows, async () => {
        const fault = { status: 500, code: 'integrity_failure' };
        expect((await setup.get(path)).json).toMatchObject(fault);
      });
      expect((await setup.get(path)).json).toMatchObject({ state: 'included' });
    }
  });
});
