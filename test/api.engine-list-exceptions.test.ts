import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nativeSha256 } from '#runtime/crypto';
import { appendRevocation } from '#sql/lifecycle';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import { issueKey, startEngine, type TestEngine } from './helpers/engine.js';
import { listPage } from './helpers/proof-list.js';
import { openRegistry, type TestRegistry } from './helpers/registry.js';

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

async function firstPage(status: string): Promise<string[]> {
  const { proofs } = await listPage(engine, { status, limit: '1' }, key);
  return proofs.map((proof) => proof.proof_id);
}

describe('list of proofs with a status filter', () => {
  // More than a request scans of a list without one.
  it('has in its first page what lies below 4,100 valid proofs', async () => {
    const [revoked = ''] = await registry.admitAll([registry.item()]);
    await appendRevocation(registry.admin, nativeSha256, {
      proofId: revoked,
      artifactKind: 'proof',
      reason: 'mistake',
      actor: 'ops',
      salt: randomBytes(32).toString('hex'),
    });
    for (let admitted = 0; admitted < 4_100; admitted += 820) {
      await registry.admitAll(Array.from({ length: 820 }, () => registry.item()));
    }
    await registry.verifyAll();
    const [unverified = ''] = await registry.admitAll([registry.item()]);
    expect(await firstPage('REVOKED')).toEqual([revoked]);
    expect(await firstPage('BACKEND_LOOKUP_REQUIRED')).toEqual([unverified]);
    expect(await firstPage('EXPIRED')).toEqual([]);
  });
});
