import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fromBase64, toBase64Url } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import { verifyOffline } from '#protocol/offline';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { AEP_PAYLOAD_TYPE } from '#protocol/schemas/proof-record';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { appendRevocation } from '#sql/lifecycle/entries';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';
import {
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
} from '../../fixtures/engine.js';
import { eraseProof } from '../../fixtures/erase.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let log: TestLog;
let key: string;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  log = testLog(db);
  engine = await startEngine(registry, { logVkey: log.vkey });
  key = await issueKey(registry, { scopes: ['export'] });
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

function get(id: string, query = '', headers: Record<string, string> = {}): Promise<Reply> {
  return engine.call({
    method: 'GET',
    path: `/v1/proofs/${id}/export${query}`,
    headers: { ...headersFor(key), ...headers },
  });
}

async function admitOne(action = 'BOOK_RESERVATION'): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item({ action })]);
  return id;
}

async function published(action?: string): Promise<string> {
  const id = await admitOne(action);
  await registry.verifyAll();
  await log.publish();
  return id;
}

function offline(document: unknown) {
  return verifyOffline(
    document,
    { aepKeys: [registry.admit.signer.publicKey], log: { vkey: log.vkey, origin: log.origin } },
    { sha256: nativeSha256, verify: nativeVerify },
  );
}

describe('GET /v1/proofs/{proof_id}/export', () => {
  it.each(['BOOK_RESERVATION', 'DELETE_AUDIT_LOG'])(
    'contains everything to verify a proof of %s offline',
    async (action) => {
      const id = await published(action);
      const reply = await get(id);
      expect(reply.status).toBe(200);
      expect(reply.headers['content-type']).toBe('application/json');
      expect(reply.headers['content-disposition']).toBe(`attachment; filename="proof-${id}.json"`);
      const document = proofExportSchema.parse(reply.json);
      expect(reply.bytes).toEqual(Buffer.from(canonicalBytes(document)));
      expect(document).toMatchObject({
        proof_id: id,
        log_vkey: log.vkey,
        keys: [{ public_key: toBase64Url(registry.admit.signer.publicKey) }],
        verdict: { verification_status: 'VALID', can_assert_validity: true },
      });
      expect(offline(document)).toMatchObject({
        authentic: true,
        included: true,
        status: `unknown since checkpoint ${document.inclusion.tree_size}`,
      });
    },
  );

  it('returns the same document while the verdict is unchanged and the log grows', async () => {
    const id = await published();
    const first = await get(id);
    await published();
    const second = await get(id, '?format=json');
    expect(second.bytes).toEqual(first.bytes);
    expect(second.headers.etag).toBe(first.headers.etag);
    const etag = first.headers.etag ?? '';
    const again = await get(id, '', { 'If-None-Match': etag });
    expect(again.status).toBe(304);
    expect(again.bytes).toHaveLength(0);
  });

  it('shows a revocation at once, under a checkpoint that covers it', async () => {
    const id = await published();
    const before = await get(id);
    const at = await appendRevocation(registry.admin, nativeSha256, {
      proofId: id,
      artifactKind: 'certificate',
      reason: 'test',
      actor: 'test',
      salt: '00'.repeat(32),
    });
    const pending = await get(id);
    expect(pending.status).toBe(409);
    expect(pending.json['code']).toBe('pending_checkpoint');
    await log.publish();
    const document = proofExportSchema.parse((await get(id)).json);
    expect(document.verdict).toEqual({
      ...(before.json as unknown as ProofExport).verdict,
      artifacts: { proof: 'VALID', passport: 'PASS', certificate: 'REVOKED', trust: 'REVOKED' },
      log_size: at + 1,
    });
    expect(document.inclusion.tree_size).toBe(at + 1);
  });

  it('returns the AEP byte for byte as it was hashed', async () => {
    const id = await published();
    const document = proofExportSchema.parse((await get(id)).json);
    const reply = await get(id, '?format=aep-json');
    expect(reply.headers['content-type']).toBe(AEP_PAYLOAD_TYPE);
    expect(reply.headers['content-disposition']).toBe(`attachment; filename="aep-${id}.json"`);
    expect(hashHex(nativeSha256, reply.bytes)).toBe(document.entry.aep_hash);
    expect(reply.bytes).toEqual(Buffer.from(fromBase64(document.envelope.payload)));
    const asJson = await get(id, '?format=aep-json', { Accept: 'application/json' });
    expect(asJson.headers['content-type']).toBe('application/json');
    expect(asJson.bytes).toEqual(reply.bytes);
  });

  it('gets 409 before the verdict and before the checkpoint', async () => {
    const id = await admitOne();
    for (const code of ['pending_verdict', 'pending_checkpoint']) {
      const reply = await get(id);
      expect(reply.status).toBe(409);
      expect(reply.json['code']).toBe(code);
      expect(reply.headers['retry-after']).toBe('1');
      await registry.verifyAll();
    }
    expect((await get(id, '?format=aep-json')).status).toBe(200);
    await log.publish();
    expect((await get(id)).status).toBe(200);
  });

  it.each(['?format=xml', '?format=', '?format=json&format=json', '?fromat=json', '?format=JSON'])(
    'rejects %s',
    async (query) => {
      const reply = await get(await published(), query);
      expect(reply.status).toBe(400);
      expect(reply.json['code']).toBe('invalid_query');
      expect(reply.json['detail']).toMatch(/fo?r?r?o?mat/);
    },
  );

  it('responds with 406 for an unsupported media type', async () => {
    const reply = await get(await published(), '', { Accept: AEP_PAYLOAD_TYPE });
    expect(reply.status).toBe(406);
    expect(reply.json['code']).toBe('not_acceptable');
  });

  it('responds with 404 for other tenants’ and unknown proofs', async () => {
    await createTenant(registry.admin, { tenantId: 'other', environment: 'sandbox' });
    await setAllowlisted(registry.admin, 'other', true);
    const others = await issueKey(registry, { tenantId: 'other', scopes: ['export'] });
    const id = await published();
    for (const asked of [id, '0'.repeat(32), 'nonsense']) {
      for (const query of ['', '?format=aep-json']) {
        const reply = await get(asked, query, headersFor(others, 'other'));
        expect(reply.status).toBe(404);
        expect(reply.json['code']).toBe('proof_not_found');
      }
    }
  });

  it('requires the scope export', async () => {
    const reader = await issueKey(registry, { scopes: ['admit', 'read'] });
    const reply = await get(await published(), '', headersFor(reader));
    expect(reply.status).toBe(403);
    expect(reply.json['code']).toBe('scope_missing');
  });

  it('responds with 500 for altered and 410 for erased proofs', async () => {
    const altered = await published();
    const erased = await published();
    const lost = await published();
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.proof set aep = set_byte(aep, 40, get_byte(aep, 40) # 1)
        where replace(proof_id::text, '-', '') = ${altered}`;
      // Missing without a recorded erasure: a loss.
      await tx`update svc.proof set aep = null, signature = null
        where replace(proof_id::text, '-', '') = ${lost}`;
    });
    await eraseProof(db, erased);
    for (const query of ['', '?format=aep-json']) {
      expect((await get(altered, query)).json['code']).toBe('integrity_failure');
      expect((await get(lost, query)).json['code']).toBe('integrity_failure');
      const gone = await get(erased, query);
      expect(gone.status).toBe(410);
      expect(gone.json['code']).toBe('payload_erased');
    }
  });
});
