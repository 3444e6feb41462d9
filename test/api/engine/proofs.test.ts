import { generateKeyPairSync, sign } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { inclusionResponseSchema } from '#protocol/schemas/inclusion';
import { proofViewSchema } from '#protocol/schemas/proof-view';
import { fromBase64, toBase64 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { formatCheckpoint, openCheckpoint } from '#protocol/checkpoint';
import { documentHash } from '#protocol/hash';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { formatVkey, keyId, signNote } from '#protocol/note';
import { rootFromTiles } from '#protocol/tiles';
import { parseTlogProof } from '#protocol/tlog-proof';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { insertCheckpoint, latestCheckpoint } from '#sql/log/checkpoints';
import { readTile, treeSize } from '#sql/log/log';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
  without,
} from '../../fixtures/engine.js';
import { eraseProof } from '../../fixtures/erase.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

const ORIGIN = 'test.example/log';
const logKey = generateKeyPairSync('ed25519');
const logPublic = logKey.publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
const VKEY = formatVkey(nativeSha256, ORIGIN, logPublic);

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
  key = await issueKey(registry);
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

function get(path: string, headers: Record<string, string> = {}): Promise<Reply> {
  return engine.call({ method: 'GET', path, headers: { ...headersFor(key), ...headers } });
}

/** Signs the log as it is now, as the publisher does. */
async function publishCheckpoint(changeRoot = false): Promise<void> {
  const size = await treeSize(db.sql);
  const root = await rootFromTiles(nativeSha256, size, async (level, index) => {
    const tile = await readTile(db.sql, level, index);
    return tile!;
  });
  if (changeRoot) root[0]! ^= 1;
  const note = signNote(formatCheckpoint({ origin: ORIGIN, size, root }), {
    name: ORIGIN,
    keyHash: keyId(nativeSha256, ORIGIN, logPublic),
    sign: (message) => sign(null, message, logKey.privateKey),
  });
  const previous = (await latestCheckpoint(db.sql))?.treeSize ?? 0;
  expect(
    await insertCheckpoint(db.as('svc_publisher'), { treeSize: size, root, note, previous }),
  ).toBe(true);
}

async function admitOne(action = 'BOOK_RESERVATION'): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item({ action })]);
  return id;
}

describe('GET /v1/proofs/{proof_id}', () => {
  it('returns the record with all hashed documents', async () => {
    const id = await admitOne();
    const reply = await get(`/v1/proofs/${id}`);
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toBe('application/json');
    const view = proofViewSchema.parse(reply.json);
    expect(view).toMatchObject({ proof_id: id, effect: 'ADMIT', environment: 'sandbox' });
    expect(documentHash(nativeSha256, view.aep)).toBe(view.log_entry.aep_hash);
    expect(documentHash(nativeSha256, view.proof_record)).toBe(view.log_entry.proof_record_hash);
    expect(fromBase64(view.proof_record!.envelope.payload)).toEqual(canonicalBytes(view.aep));
    expect(view.receipt!.response_hash).toBe(view.proof_record!.response_hash);
  });

  it('returns a denial', async () => {
    const view = proofViewSchema.parse(
      (await get(`/v1/proofs/${await admitOne('DELETE_AUDIT_LOG')}`)).json,
    );
    expect(view).toMatchObject({ effect: 'DENY', receipt: { status: 'DENIED' } });
    expect(view.aep!.decision.reasons).toEqual(['audit-log-is-kept']);
  });

  it('revalidates with an ETag', async () => {
    const path = `/v1/proofs/${await admitOne()}`;
    const first = await get(path);
    expect(first.headers['cache-control']).toBe('private, no-cache');
    const again = await get(path, { 'If-None-Match': first.headers.etag! });
    expect(again.status).toBe(304);
    expect(again.bytes).toHaveLength(0);
    expect((await get(path, { 'If-None-Match': '"other"' })).status).toBe(200);
    const head = await engine.call({ method: 'HEAD', path, headers: headersFor(key) });
    expect(head.status).toBe(200);
    expect(head.headers.etag).toBe(first.headers.etag);
  });

  it('responds with 404 for other tenants’ proofs', async () => {
    const id = await admitOne();
    await createTenant(registry.admin, { tenantId: 'other', environment: 'sandbox' });
    await setAllowlisted(registry.admin, 'other', true);
    const headers = headersFor(await issueKey(registry, { tenantId: 'other' }), 'other');
    const unknown = `${id.slice(0, -1)}${id.endsWith('0') ? '1' : '0'}`;
    for (const suffix of ['', '/inclusion']) {
      const others = await get(`/v1/proofs/${id}${suffix}`, headers);
      const nobodys = await get(`/v1/proofs/${unknown}${suffix}`, headers);
      expect(others.status).toBe(404);
      expect(without(others.json, 'request_id')).toEqual(without(nobodys.json, 'request_id'));
      expect(others.json['code']).toBe('proof_not_found');
    }
    const admission = await get(`/v1/admissions/${id}`, headers);
    expect(admission.json).toMatchObject({ status: 404, code: 'admission_not_found' });
  });

  it.each(['x', 'F'.repeat(32), '0'.repeat(32), "'--", '%00'])(
    'responds with 404 for the id %s',
    async (id) => {
      expect((await get(`/v1/proofs/${id}`)).json).toMatchObject({ code: 'proof_not_found' });
    },
  );

  it.each([
    ['the AEP', 'proof', 'aep = set_byte(aep, 5, get_byte(aep, 5) # 1)'],
    ['the signature', 'proof', 'signature = set_byte(signature, 5, get_byte(signature, 5) # 1)'],
    ['the effect', 'proof', "effect = 'DENY'"],
    ['the logged hash', 'log_entry', 'aep_hash = set_byte(aep_hash, 5, get_byte(aep_hash, 5) # 1)'],
  ])('is not served when %s was altered', async (_, table, change) => {
    const id = await admitOne();
    const alter = () =>
      db.sql.unsafe(`
        set session_replication_role = replica;
        update svc.${table} set ${change} where replace(proof_id::text, '-', '') = '${id}';
        set session_replication_role = default`);
    await alter();
    const reply = await get(`/v1/proofs/${id}`);
    expect(reply.json).toMatchObject({ status: 500, code: 'integrity_failure' });
    // A damaged log accepts no entries: flipping the same bit again repairs it.
    if (table === 'log_entry') await alter();
  });

  it('returns the commitments of an erased proof', async () => {
    const id = await admitOne();
    await eraseProof(db, id);
    const view = proofViewSchema.parse((await get(`/v1/proofs/${id}`)).json);
    expect(view).toMatchObject({
      receipt: null,
      aep: null,
      proof_record: null,
      log_entry: { proof_id: id },
      verdict: { can_assert_validity: false },
    });
  });
});

describe('GET /v1/proofs/{proof_id}/inclusion', () => {
  it('reports pending_checkpoint while no checkpoint covers the proof', async () => {
    const path = `/v1/proofs/${await admitOne()}/inclusion`;
    const reply = await get(path);
    expect(reply.status).toBe(200);
    expect(inclusionResponseSchema.parse(reply.json).state).toBe('pending_checkpoint');
    const text = await get(path, { Accept: 'text/plain' });
    expect(text.json).toMatchObject({ status: 409, code: 'pending_checkpoint' });
    expect(text.headers['retry-after']).toBe('1');
  });

  it('proves the leaf under a signed checkpoint, as JSON and tlog-proof', async () => {
    const ids = await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await publishCheckpoint();
    for (const id of [ids[0]!, ids[150]!, ids[299]!]) {
      const path = `/v1/proofs/${id}/inclusion`;
      const answer = inclusionResponseSchema.parse((await get(path)).json);
      if (answer.state !== 'included') throw new Error('not included');
      const { inclusion } = answer;
      const head = openCheckpoint(inclusion.checkpoint, VKEY, ORIGIN, nativeVerify);
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

      const text = await get(path, { Accept: 'text/plain' });
      expect(text.headers['content-type']).toBe('text/plain; charset=utf-8');
      expect(text.headers.vary).toBe('Accept');
      const proof = parseTlogProof(text.bytes.toString());
      expect(proof.index).toBe(answer.leaf_index);
      expect(proof.path.map(toBase64)).toEqual(inclusion.path);
      expect(proof.checkpoint).toBe(inclusion.checkpoint);
    }
  });

  it('responds with 500 when a tile or leaf was altered', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await publishCheckpoint();
    const path = `/v1/proofs/${ids[0]!}/inclusion`;
    expect((await get(path)).json).toMatchObject({ state: 'included' });
    const flipLast = (column: string): string =>
      `set_byte(${column}, length(${column}) - 1, get_byte(${column}, length(${column}) - 1) # 1)`;
    const flips = [
      `update svc.tile set hashes = ${flipLast('hashes')}
       where level = 0 and tile_index = (select max(tile_index) from svc.tile where level = 0)`,
      `update svc.log_entry set aep_hash = ${flipLast('aep_hash')}
       where replace(proof_id::text, '-', '') = '${ids[0]!}'`,
      `update svc.checkpoint set root = ${flipLast('root')}
       where tree_size = (select max(tree_size) from svc.checkpoint)`,
    ];
    for (const flip of flips) {
      const alter = () =>
        db.sql.unsafe(`set session_replication_role = replica; ${flip};
          set session_replication_role = default`);
      await alter();
      expect((await get(path)).json).toMatchObject({ status: 500, code: 'integrity_failure' });
      await alter();
      expect((await get(path)).json).toMatchObject({ state: 'included' });
    }
  });

  it('responds with 500 when the note is of another checkpoint', async () => {
    const id = await admitOne();
    await publishCheckpoint();
    const swap = `
      set session_replication_role = replica;
      update svc.checkpoint set note = (select note from svc.checkpoint order by tree_size limit 1)
      where tree_size = (select max(tree_size) from svc.checkpoint);
      set session_replication_role = default`;
    await db.sql.unsafe(swap);
    const reply = await get(`/v1/proofs/${id}/inclusion`);
    expect(reply.json).toMatchObject({ status: 500, code: 'integrity_failure' });
  });

  it('responds with 500 when the root column differs from the note', async () => {
    const id = await admitOne();
    await publishCheckpoint(true);
    const reply = await get(`/v1/proofs/${id}/inclusion`);
    expect(reply.json).toMatchObject({ status: 500, code: 'integrity_failure' });
  });
});

describe('read operations', () => {
  it.each(['/v1/proofs/%s', '/v1/proofs/%s/inclusion', '/v1/admissions/%s'])(
    'checks of %s run in order',
    async (route) => {
      const path = route.replace('%s', await admitOne());
      const reader = await issueKey(registry, { scopes: ['export'] });
      const headers: Record<string, string> = {
        'X-Svc-Api-Key': 'wrong',
        'X-Svc-Tenant-Id': 'wrong',
        'svc-api-version': 'v2',
        Accept: 'image/png',
      };
      const walk: [number, string, () => unknown][] = [
        [401, 'unauthenticated', () => (headers['X-Svc-Api-Key'] = reader)],
        [403, 'tenant_mismatch', () => delete headers['X-Svc-Tenant-Id']],
        [403, 'tenant_header_missing', () => Object.assign(headers, headersFor(reader))],
        [403, 'scope_missing', () => (headers['X-Svc-Api-Key'] = key)],
        [400, 'unsupported_api_version', () => (headers['svc-api-version'] = 'v1')],
        [406, 'not_acceptable', () => (headers['Accept'] = '*/*')],
      ];
      for (const [status, code, mend] of walk) {
        const reply = await engine.call({ method: 'GET', path, headers });
        expect(reply.json).toMatchObject({ status, code });
        expect(reply.status).toBe(status);
        await mend();
      }
    },
  );

  it('work in a locked environment and off the allowlist', async () => {
    const path = `/v1/proofs/${await admitOne()}`;
    const locked = await startEngine(registry, { admissionsPaused: true });
    expect((await locked.call({ method: 'GET', path, headers: headersFor(key) })).status).toBe(200);
    await locked.close();
  });
});

describe('unknown path', () => {
  it.each(['/', '/v1', '/v1/proofs/', '/V1/intents/execute', '/v1/intents/execute/'])(
    '%s gets 404',
    async (path) => {
      expect((await get(path)).json).toMatchObject({ status: 404, code: 'route_not_found' });
    },
  );

  it('gets 400 when it cannot be decoded', async () => {
    expect((await get('/v1/proofs/%zz')).json).toMatchObject({
      status: 400,
      code: 'malformed_path',
    });
  });

  it.each([
    ['GET', '/v1/intents/execute', 'POST, OPTIONS'],
    ['DELETE', '/v1/proofs/x', 'GET, HEAD, OPTIONS'],
    ['POST', '/v1/proofs/x/inclusion', 'GET, HEAD, OPTIONS'],
    ['PUT', '/v1/admissions/x', 'GET, HEAD, OPTIONS'],
    ['PATCH', '/healthz', 'GET, HEAD, OPTIONS'],
  ])('is %s %s, and Allow says what is', async (method, path, allow) => {
    const reply = await engine.call({ method, path });
    expect(reply.json).toMatchObject({ status: 405, code: 'method_not_allowed' });
    expect(reply.headers.allow).toBe(allow);
    const options = await engine.call({ method: 'OPTIONS', path });
    expect([options.status, options.headers.allow]).toEqual([204, allow]);
  });
});
