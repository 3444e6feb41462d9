import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendRevocation } from '#sql/lifecycle/entries';
import { insertVerdicts } from '#sql/log/verdicts';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { issueKey, startEngine, type TestEngine } from '../../fixtures/engine.js';
import { eraseProof } from '../../fixtures/erase.js';
import { listPage, type Query } from '../../fixtures/proof-list.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

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

async function firstPage(status: string, filter: Query = {}): Promise<string[]> {
  const { proofs } = await listPage(engine, { status, limit: '1', ...filter }, key);
  return proofs.map((proof) => proof.proof_id);
}

async function revoke(proofId: string): Promise<void> {
  await appendRevocation(registry.admin, nativeSha256, {
    proofId,
    artifactKind: 'proof',
    reason: 'mistake',
    actor: 'ops',
    salt: randomBytes(32).toString('hex'),
  });
}

describe('list of proofs with a status filter', () => {
  // More than a request scans of a list without one.
  it('finds an exception below 4,100 valid proofs in the first page', async () => {
    const [revoked = ''] = await registry.admitAll([registry.item()]);
    await revoke(revoked);
    for (let admitted = 0; admitted < 4_100; admitted += 820) {
      await registry.admitAll(Array.from({ length: 820 }, () => registry.item()));
    }
    await registry.verifyAll();
    const [unverified = ''] = await registry.admitAll([registry.item()]);
    expect(await firstPage('REVOKED')).toEqual([revoked]);
    expect(await firstPage('BACKEND_LOOKUP_REQUIRED')).toEqual([unverified]);
    expect(await firstPage('EXPIRED')).toEqual([]);
  });

  it('finds an intent below newer exceptions, and has no proof twice', async () => {
    const items = ['wanted', 'other-1', 'other-2'].map((intent_id) => registry.item({ intent_id }));
    const admitted = await registry.admitAll(items);
    for (const proofId of admitted) await revoke(proofId);
    // Not verified yet, and an exception by its revocation.
    const { proofs } = await listPage(engine, { status: 'BACKEND_LOOKUP_REQUIRED' }, key);
    const listed = proofs.map((proof) => proof.proof_id);
    expect(new Set(listed).size).toBe(listed.length);
    expect(listed).toEqual(expect.arrayContaining(admitted));
    await registry.verifyAll();
    expect(await firstPage('REVOKED', { intent_id: 'wanted' })).toEqual([admitted[0]]);
  });

  it('finds a proof that was erased after its verification', async () => {
    const [erased = ''] = await registry.admitAll([registry.item({ intent_id: 'erased' })]);
    await registry.verifyAll();
    const before = await firstPage('BACKEND_LOOKUP_REQUIRED');
    expect(before).not.toContain(erased);
    await eraseProof(db, erased);
    expect(await firstPage('BACKEND_LOOKUP_REQUIRED')).toEqual([erased]);
  });

  // Last: the verifier cannot continue from the subtrees of this verdict.
  it('finds a proof that had expired when it was first verified', async () => {
    const [expired = ''] = await registry.admitAll([registry.item({ intent_id: 'expired' })]);
    const [row] = await db.sql<{ leaf: string; size: string }[]>`
      select p.leaf_index as leaf, h.tree_size as size from svc.proof p, svc.log_head h
      where p.proof_id = ${expired}`;
    const [leaf, treeSize] = [Number(row!.leaf), Number(row!.size)];
    const subtrees = treeSize.toString(2).replaceAll('0', '').length;
    await insertVerdicts(registry.verify.sql, [
      {
        prefix: { subtrees: Buffer.alloc(32 * subtrees), keysDigest: Buffer.alloc(32) },
        firstIndex: leaf,
        lastIndex: treeSize - 1,
        treeSize,
        root: Buffer.alloc(32),
        outcome: 'pass',
        expired: ['proof'],
        checks: [],
      },
    ]);
    expect(await firstPage('EXPIRED')).toEqual([expired]);
  });
});
