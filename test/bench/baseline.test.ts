import { createHash, randomBytes } from 'node:crypto';
import { expect, test as base } from 'vitest';
import { runBaselineLoop } from '#bench/baseline/baseline-loop';
import {
  createBaselineTable,
  insertDocuments,
  newBaselineKeys,
  signDocument,
} from '#bench/baseline/signed-documents';
import { requestAt } from '#bench/harness/items';
import { canonicalize, type JsonValue } from '#protocol/json';
import { nativeVerify } from '#runtime/crypto/node';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';

const test = base.extend<{ db: TestDatabase }>({
  db: async ({}, use) => {
    const db = await freshDatabase();
    await use(db);
    await db.drop();
  },
});

const source = { tenantId: 'demo', run: 'baseline' };
const { signal } = new AbortController();
const sha256 = (data: string | Buffer): Buffer => createHash('sha256').update(data).digest();

test('baseline loop > stores each request with its signed document', async ({ db }) => {
  await createBaselineTable(db.sql);
  const keys = newBaselineKeys();
  const texts = Array.from({ length: 7 }, (_, n) => JSON.stringify(requestAt(source, n)));
  const documents = texts.map((text) => signDocument(text, randomBytes(32), keys));
  await insertDocuments(db.sql, documents);
  const rows = await db.sql<Record<string, Buffer>[]>`select * from bench.baseline`;
  expect(rows).toHaveLength(texts.length);
  for (const [n, { proofId }] of documents.entries()) {
    const row = rows.find(({ proof_id }) => String(proof_id) === proofId.replaceAll('-', ''))!;
    const request = JSON.parse(texts[n]!) as Record<string, JsonValue>;
    const document = JSON.parse(row['document']!.toString()) as Record<string, JsonValue>;
    expect(row['request']!.toString()).toBe(texts[n]);
    expect(row['request_hash']).toEqual(sha256(canonicalize(request)));
    expect(row['document']!.toString()).toBe(canonicalize(document));
    expect(row['document_hash']).toEqual(sha256(row['document']!));
    expect(nativeVerify(keys.publicKey, row['document']!, row['signature']!)).toBe(true);
  }
});

test('baseline loop > commits every row that it counts, using every CPU core', async ({ db }) => {
  await createBaselineTable(db.sql);
  const registry = { ownerUrl: db.url, tenantId: source.tenantId, postgresPid: process.pid };
  const baseline = await runBaselineLoop(registry, { warmUpSeconds: 0.2, seconds: 1 }, signal);
  const [found] = await db.sql<{ rows: number; different: number }[]>`
      select count(*) as rows, count(distinct request_hash) as different from bench.baseline`;
  expect(found!.rows).toBeGreaterThanOrEqual(2_000 * baseline.processes);
  expect(found!.different).toBe(found!.rows);
  expect(baseline.rate).toBeGreaterThan(0);
  expect(baseline.loopMicros).toBeGreaterThan(0);
});
