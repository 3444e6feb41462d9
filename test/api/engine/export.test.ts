import { describe, expect } from 'vitest';
import { fromBase64, toBase64Url } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import { verifyOffline } from '#protocol/offline';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { AEP_PAYLOAD_TYPE } from '#protocol/schemas/aep';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { eraseProof } from '../../fixtures/erase.js';
import { engineTest, ofProof, type Setup } from './setup.js';

const it = engineTest({ scopes: ['export'] });

const exportOf = ({ get }: Setup, id: string, query = '', headers: Record<string, string> = {}) =>
  get(`/v1/proofs/${id}/export${query}`, headers);

async function published({ admitOne, publish }: Setup, action?: string): Promise<string> {
  const id = await admitOne(action);
  await publish();
  return id;
}

function offline({ log, registry }: Setup, document: unknown) {
  return verifyOffline(
    document,
    { aepKeys: [registry.admit.signer.publicKey], log: { vkey: log.vkey, origin: log.origin } },
    { sha256: nativeSha256, verify: nativeVerify },
  );
}

describe('GET /v1/proofs/{proof_id}/export', () => {
  it.for(['BOOK_RESERVATION', 'DELETE_AUDIT_LOG'])(
    'contains everything to verify a proof of %s offline',
    async (action, { setup }) => {
      const id = await published(setup, action);
      const reply = await exportOf(setup, id);
      expect(reply.status).toBe(200);
      expect(reply.headers['content-type']).toBe('application/json');
      expect(reply.headers['content-disposition']).toBe(`attachment; filename="proof-${id}.json"`);
      const document = proofExportSchema.parse(reply.json);
      expect(reply.bytes).toEqual(Buffer.from(canonicalBytes(document)));
      expect(document).toMatchObject({
        proof_id: id,
        log_vkey: setup.log.vkey,
        keys: [{ public_key: toBase64Url(setup.registry.admit.signer.publicKey) }],
        verdict: { verification_status: 'VALID', can_assert_validity: true },
      });
      expect(offline(setup, document)).toMatchObject({
        authentic: true,
        included: true,
        status: `unknown since checkpoint ${document.inclusion.tree_size}`,
      });
    },
  );

  it('returns the same document while the verdict is unchanged and the log grows', async ({
    setup,
  }) => {
    const id = await published(setup);
    const first = await exportOf(setup, id);
    await published(setup);
    const second = await exportOf(setup, id, '?format=json');
    expect(second.bytes).toEqual(first.bytes);
    expect(second.headers.etag).toBe(first.headers.etag);
    const etag = first.headers.etag ?? '';
    const again = await exportOf(setup, id, '', { 'If-None-Match': etag });
    expect(again.status).toBe(304);
    expect(again.bytes).toHaveLength(0);
  });

  it('shows a revocation at once, under a checkpoint that covers it', async ({ setup }) => {
    const id = await published(setup);
    const before = await exportOf(setup, id);
    const at = await setup.revoke(id, 'certificate');
    const pending = await exportOf(setup, id);
    expect(pending.status).toBe(409);
    expect(pending.json['code']).toBe('pending_checkpoint');
    await setup.log.publish();
    const document = proofExportSchema.parse((await exportOf(setup, id)).json);
    expect(document.verdict).toEqual({
      ...(before.json as unknown as ProofExport).verdict,
      artifacts: { proof: 'VALID', passport: 'PASS', certificate: 'REVOKED', trust: 'REVOKED' },
      log_size: at + 1,
    });
    expect(document.inclusion.tree_size).toBe(at + 1);
  });

  it('returns the AEP byte for byte as it was hashed', async ({ setup }) => {
    const id = await published(setup);
    const document = proofExportSchema.parse((await exportOf(setup, id)).json);
    const reply = await exportOf(setup, id, '?format=aep-json');
    expect(reply.headers['content-type']).toBe(AEP_PAYLOAD_TYPE);
    expect(reply.headers['content-disposition']).toBe(`attachment; filename="aep-${id}.json"`);
    expect(hashHex(nativeSha256, reply.bytes)).toBe(document.entry.aep_hash);
    expect(reply.bytes).toEqual(Buffer.from(fromBase64(document.envelope.payload)));
    const asJson = await exportOf(setup, id, '?format=aep-json', { Accept: 'application/json' });
    expect(asJson.headers['content-type']).toBe('application/json');
    expect(asJson.bytes).toEqual(reply.bytes);
  });

  it('gets 409 before the verdict and before the checkpoint', async ({ setup }) => {
    const id = await setup.admitOne();
    for (const code of ['pending_verdict', 'pending_checkpoint']) {
      const reply = await exportOf(setup, id);
      expect(reply.status).toBe(409);
      expect(reply.json['code']).toBe(code);
      expect(reply.headers['retry-after']).toBe('1');
      await setup.registry.verifyAll();
    }
    expect((await exportOf(setup, id, '?format=aep-json')).status).toBe(200);
    await setup.log.publish();
    expect((await exportOf(setup, id)).status).toBe(200);
  });

  it.for(['?format=xml', '?format=', '?format=json&format=json', '?fromat=json', '?format=JSON'])(
    'rejects %s',
    async (query, { setup }) => {
      const reply = await exportOf(setup, await published(setup), query);
      expect(reply.status).toBe(400);
      expect(reply.json['code']).toBe('invalid_query');
      expect(reply.json['detail']).toMatch(/fo?r?r?o?mat/);
    },
  );

  it('responds with 500 for altered and 410 for erased proofs', async ({ setup }) => {
    const altered = await published(setup);
    const erased = await published(setup);
    const lost = await published(setup);
    await setup.byHand(async (tx) => {
      await tx.unsafe(`update svc.proof set aep = set_byte(aep, 40, get_byte(aep, 40) # 1)
        where ${ofProof(altered)}`);
      // Missing without a recorded erasure: a loss.
      await tx.unsafe(`update svc.proof set aep = null, signature = null
        where ${ofProof(lost)}`);
    });
    await eraseProof(setup.db, erased);
    for (const query of ['', '?format=aep-json']) {
      expect((await exportOf(setup, altered, query)).json['code']).toBe('integrity_failure');
      expect((await exportOf(setup, lost, query)).json['code']).toBe('integrity_failure');
      const gone = await exportOf(setup, erased, query);
      expect(gone.status).toBe(410);
      expect(gone.json['code']).toBe('payload_erased');
    }
  });
});
