import { createHash, generateKeyPairSync, randomBytes, verify } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { runBare } from '#bench/bare/bare';
import { createBareTable, dropBareTable, insertBareProofs } from '#bench/bare/bare-table';
import { bareProof } from '#bench/bare/bare-work';
import { requestAt } from '#bench/service/items';
import { canonicalize } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';

let db: TestDatabase;
beforeAll(async () => {
  db = await freshDatabase();
});
beforeEach(() => createBareTable(db.sql));
afterAll(() => db.drop());

const source = { tenantId: 'demo', run: 'bare' };
const sha256 = (data: string | Buffer): Buffer => createHash('sha256').update(data).digest();

interface BareRow {
  proof_id: string;
  request: Buffer;
  request_hash: Buffer;
  document: Buffer;
  document_hash: Buffer;
  signature: Buffer;
}

describe('the bare loop', () => {
  it('stores what was sent, and a signed document about it', async () => {
    const keys = { ...generateKeyPairSync('ed25519'), keyId: 'key' };
    const texts = Array.from({ length: 7 }, (_, n) => JSON.stringify(requestAt(source, n)));
    const proofs = texts.map((text) => bareProof(text, randomBytes(32), keys));
    await insertBareProofs(db.sql, proofs);
    const rows = await db.sql<BareRow[]>`select * from bench.bare`;
    expect(rows).toHaveLength(texts.length);
    for (const [n, { proofId }] of proofs.entries()) {
      const row = rows.find(({ proof_id }) => proof_id === proofId)!;
      const request = JSON.parse(texts[n]!) as Record<string, JsonValue>;
      const document = JSON.parse(row.document.toString()) as Record<string, JsonValue>;
      expect(row.request.toString()).toBe(texts[n]);
      expect(row.request_hash).toEqual(sha256(canonicalize(request)));
      expect(row.document.toString()).toBe(canonicalize(document));
      expect(row.document_hash).toEqual(sha256(row.document));
      expect(verify(null, row.document, keys.publicKey, row.signature)).toBe(true);
      expect(document).toMatchObject({
        request_hash: row.request_hash.toString('hex'),
        subject: { action: request['action'] },
      });
    }
  });

  it('runs on every core, and every row that it counts is committed', async () => {
    const registry = { ownerUrl: db.url, tenantId: source.tenantId, postgresPid: process.pid };
    const times = { warmUpSeconds: 0.2, seconds: 1 };
    const { signal } = new AbortController();
    const bare = await runBare(registry, times, signal);
    const [found] = await db.sql<{ rows: number; different: number }[]>`
      select count(*) as rows, count(distinct request_hash) as different from bench.bare`;
    expect(found!.rows).toBeGreaterThanOrEqual(2_000 * bare.processes);
    expect(found!.different).toBe(found!.rows);
    expect(bare.rate).toBeGreaterThan(0);
    expect(bare.loopMicros).toBeGreaterThan(0);
  }, 60_000);

  it('says so when a process of it fails', async () => {
    await dropBareTable(db.sql);
    const registry = { ownerUrl: db.url, tenantId: source.tenantId, postgresPid: process.pid };
    const times = { warmUpSeconds: 0, seconds: 0.1 };
    const { signal } = new AbortController();
    await expect(runBare(registry, times, signal)).rejects.toThrow(/the bare loop failed: .*bench/);
  }, 60_000);
});
