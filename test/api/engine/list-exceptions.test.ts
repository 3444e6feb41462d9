import { describe, expect } from 'vitest';
import { insertVerdicts } from '#sql/log/verdicts';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { eraseProof } from '../../fixtures/erase.js';
import { listPage, type Query } from '../../fixtures/proof-list.js';
import { engineTest, type Setup } from './setup.js';

const it = engineTest();

const idsOf = async ({ engine, key }: Setup, query: Query): Promise<string[]> =>
  (await listPage(engine, query, key)).proofs.map((proof) => proof.proof_id);

const firstPage = (setup: Setup, status: string, filter: Query = {}) =>
  idsOf(setup, { status, limit: '1', ...filter });

it('list of proofs > shows an erased proof without agent, tool and restriction', async ({
  setup,
}) => {
  const { db, engine, key } = setup;
  const { json } = await setup.post('/v1/agent/admissions', admissionEnvelope());
  const erased = String(json['registry_proof_id']);
  const newest = async (query: Query = {}) =>
    (await listPage(engine, { limit: '1', ...query }, key)).proofs[0];
  const about = { proof_id: erased, agent: 'agent-7', bound: false };
  expect(await newest({ bound: 'false' })).toMatchObject(about);
  await eraseProof(db, erased);
  expect(await newest()).toMatchObject({ ...about, agent: null, tool: null, bound: null });
  expect(await newest({ bound: 'false' })).toBeUndefined();
});

describe('list of proofs with a status filter', () => {
  // 4,100 proofs are more than one request scans without a status filter.
  it('lists on the first page a proof that is not valid, although 4,100 valid proofs are newer', async ({
    setup,
  }) => {
    const [revoked = ''] = await setup.registry.admitAll([setup.registry.item()]);
    await setup.revoke(revoked);
    for (let admitted = 0; admitted < 4_100; admitted += 820) {
      await setup.registry.admitAll(Array.from({ length: 820 }, () => setup.registry.item()));
    }
    await setup.registry.verifyAll();
    const [unverified = ''] = await setup.registry.admitAll([setup.registry.item()]);
    expect(await firstPage(setup, 'REVOKED')).toEqual([revoked]);
    expect(await firstPage(setup, 'BACKEND_LOOKUP_REQUIRED')).toEqual([unverified]);
    expect(await firstPage(setup, 'EXPIRED')).toEqual([]);
  });

  it('finds a proof that was erased after its verification', async ({ setup }) => {
    const [erased = ''] = await setup.registry.admitAll([
      setup.registry.item({ intent_id: 'erased' }),
    ]);
    await setup.registry.verifyAll();
    const before = await firstPage(setup, 'BACKEND_LOOKUP_REQUIRED');
    expect(before).not.toContain(erased);
    await eraseProof(setup.db, erased);
    expect(await firstPage(setup, 'BACKEND_LOOKUP_REQUIRED')).toEqual([erased]);
  });

  // Must run last: this test inserts a verdict with invented subtrees, after which the verifier cannot continue.
  it('finds a proof that had expired when it was first verified', async ({ setup }) => {
    const [expired = ''] = await setup.registry.admitAll([
      setup.registry.item({ intent_id: 'expired' }),
    ]);
    const [row] = await setup.db.sql<{ leaf: string; size: string }[]>`
      select p.leaf_index as leaf, h.tree_size as size from svc.log_entry p, svc.log_head h
      where p.proof_id = ${expired}`;
    const [leaf, treeSize] = [Number(row!.leaf), Number(row!.size)];
    const subtrees = treeSize.toString(2).replaceAll('0', '').length;
    await insertVerdicts(setup.registry.verify.sql, [
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
    expect(await firstPage(setup, 'EXPIRED')).toEqual([expired]);
  });
});
