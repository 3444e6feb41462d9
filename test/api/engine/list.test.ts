import { describe, expect } from 'vitest';
import { formatCursor } from '#api/engine/http/paging';
import { proofViewSchema, type ListedProof } from '#protocol/schemas/proof-view';
import { randomBytes } from 'node:crypto';
import { TENANT } from '../../fixtures/registry.js';
import { listAll, listPage, listReply, type Query } from '../../fixtures/proof-list.js';
import { engineTest, replacedIn, type Setup } from './setup.js';

const it = engineTest({ scopes: ['admit', 'read'] });

let setup: Setup;
let key: string;
/** Every proof of the tenant, oldest first. */
let ids: string[];

it.beforeAll(async ({ setup: own }) => {
  setup = own;
  ({ key } = own);
  const { registry } = own;
  ids = await registry.admitAll([
    // Two equal bodies would be one admission.
    ...Array.from({ length: 7 }, (_, i) =>
      registry.item({ intent_id: `same-${i % 2}`, proof_chain_fixture_ref: `fixture-${i}` }),
    ),
    registry.item({ action: 'DELETE_AUDIT_LOG' }),
    registry.item({ action: 'GET_USER_DETAILS' }),
  ]);
});
const list = (query: Query) => listReply(setup.engine, query, key);
const page = (query: Query = {}) => listPage(setup.engine, query, key);
const all = (query: Query = {}) => listAll(setup.engine, query, key);

const idsOf = (proofs: ListedProof[]): string[] => proofs.map((proof) => proof.proof_id);
const newestFirst = (some: string[]): string[] => [...some].reverse();

/** The proofs at these indexes of `ids`, newest first as in the list. */
const at = (...places: number[]): string[] =>
  newestFirst(places.sort((a, b) => a - b).map((place) => ids[place]!));

it('GET /v1/proofs > lists proofs newest first with their decisions', async () => {
  const { proofs, next_cursor: next } = await page();
  expect(idsOf(proofs)).toEqual(newestFirst(ids));
  expect(next).toBeNull();
  expect(proofs[1]).toEqual({
    proof_id: ids[7],
    leaf_index: proofs[1]!.leaf_index,
    environment: 'sandbox',
    lane: 'execute',
    effect: 'DENY',
    action: 'DELETE_AUDIT_LOG',
    intent_id: expect.any(String) as string,
    agent: null,
    tool: null,
    run: null,
    parent_proof_id: null,
    bound: null,
    batch_id: null,
    accepted_at: expect.any(String) as string,
    verification_status: 'BACKEND_LOOKUP_REQUIRED',
    can_assert_validity: false,
  });
});

describe('filter of GET /v1/proofs', () => {
  it.for<[Query, number[]]>([
    [{ action: 'GET_USER_DETAILS' }, [8]],
    [{ lane: 'agent' }, []],
    [{ lane: 'execute', effect: 'DENY' }, [7]],
    [{ intent_id: 'same-1', limit: '2' }, [1, 3, 5]],
    [{ intent_id: 'same' }, []],
  ])('selects by %j', async ([query, places]) => {
    expect(idsOf(await all(query))).toEqual(at(...places));
  });

  it('includes the start of a time range and excludes its end', async () => {
    const [later] = await setup.registry.admitAll([setup.registry.item()]);
    const { proofs } = await page({ limit: '1' });
    expect(proofs[0]?.proof_id).toBe(later);
    const time = proofs[0]!.accepted_at;
    expect(idsOf(await all({ from: time }))).toEqual([later]);
    expect(idsOf(await all({ to: time }))).toEqual(newestFirst(ids));
    expect(await all({ from: time, to: time })).toEqual([]);
    // The database's calendar has no year 0.
    expect(await all({ to: '0000-01-01T00:00:00.000Z' })).toEqual([]);
    ids.push(later!);
  });
});

describe('listed status', () => {
  it('equals the current verdict', async () => {
    await setup.registry.verifyAll();
    const statusOf = async () =>
      new Map((await all()).map((proof) => [proof.proof_id, proof.verification_status]));
    expect(new Set((await statusOf()).values())).toEqual(new Set(['VALID']));
    await setup.revoke(ids[2]!, 'proof');
    await setup.revoke(ids[3]!, 'certificate');
    const expired = await leafOf(ids[4]!);
    await setup.db.sql`
      insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, expired, checks)
      values (false, ${expired}, ${expired}, ${await setup.treeSize()}, ${randomBytes(32)}, 'pass', '{proof}', '[]')`;
    const failed = await leafOf(ids[5]!);
    await setup.db.sql`
      insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
      values (false, ${failed}, ${failed}, ${await setup.treeSize()}, ${randomBytes(32)}, 'fail',
        '[{"name":"aep_hash","result":"fail"}]')`;
    const found = await statusOf();
    expect(found.get(ids[2]!)).toBe('REVOKED');
    expect(found.get(ids[3]!)).toBe('VALID');
    expect(found.get(ids[4]!)).toBe('EXPIRED');
    expect(found.get(ids[5]!)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(idsOf(await all({ status: 'REVOKED' }))).toEqual(at(2));
    expect(idsOf(await all({ status: 'EXPIRED', limit: '1' }))).toEqual(at(4));
    expect(idsOf(await all({ status: 'BACKEND_LOOKUP_REQUIRED' }))).toEqual(at(5));
    expect(idsOf(await all({ status: 'VALID', limit: '2' }))).toEqual(at(0, 1, 3, 6, 7, 8, 9));
  });

  it('is the status that GET /v1/proofs/{proof_id} reports, with a history that ends with the cause', async () => {
    const NOTHING = 'BACKEND_LOOKUP_REQUIRED';
    for (const [place, status, last] of [
      [0, 'VALID', { event: 'verified' }],
      [2, 'REVOKED', { event: 'revoked' }],
      [3, 'VALID', { event: 'revoked' }],
      [4, 'EXPIRED', { event: 'expired', artifacts: ['proof'] }],
      [5, NOTHING, { event: 'failed', checks: ['aep_hash'] }],
    ] as const) {
      const reply = await setup.get(`/v1/proofs/${ids[place]}`);
      const { verdict, history } = proofViewSchema.parse(reply.json);
      expect(verdict.verification_status).toBe(status);
      expect(verdict.can_assert_validity).toBe(status === 'VALID');
      const events = history.slice(0, 3).map(({ event }) => event);
      expect(events).toEqual(['accepted', 'appended', 'verified']);
      expect(history.at(-1)).toMatchObject(last);
    }
  });

  it('is BACKEND_LOOKUP_REQUIRED when the proof’s revocation was rewritten', async () => {
    const body = `body = ${replacedIn('"proof_id":"0', '"proof_id":"1')}`;
    const [id = ''] = await setup.registry.admitAll([setup.registry.item()]);
    ids.push(id);
    await setup.revoke(id);
    await setup.registry.verifyAll();
    await setup.whileAltered('log_entry', body, `revokes = '${id}'`, async () => {
      const [listed] = (await page({ limit: '1' })).proofs;
      const reply = await setup.get(`/v1/proofs/${id}`);
      for (const status of [listed, proofViewSchema.parse(reply.json).verdict]) {
        expect(status).toMatchObject({
          verification_status: 'BACKEND_LOOKUP_REQUIRED',
          can_assert_validity: false,
        });
      }
    });
    expect((await page({ limit: '1' })).proofs[0]?.verification_status).toBe('REVOKED');
  });
});

describe('cursor of GET /v1/proofs', () => {
  it('stays valid while proofs are appended', async () => {
    const first = await page({ limit: '4' });
    const appended = await setup.registry.admitAll([setup.registry.item(), setup.registry.item()]);
    const second = await page({ limit: '200', cursor: first.next_cursor! });
    expect([...idsOf(first.proofs), ...idsOf(second.proofs)]).toEqual(newestFirst(ids));
    ids.push(...appended);
    expect(idsOf(await all({ limit: '5' }))).toEqual(newestFirst(ids));
  });

  it('is valid with a different limit but rejected with different filters', async () => {
    const { next_cursor: cursor } = await page({ limit: '2', effect: 'ADMIT' });
    expect((await list({ limit: '1', effect: 'ADMIT', cursor: cursor! })).status).toBe(200);
    for (const other of [{}, { effect: 'DENY' }, { effect: 'ADMIT', lane: 'execute' }]) {
      const reply = await list({ ...other, cursor: cursor! });
      expect(reply.status).toBe(400);
      expect(reply.json).toMatchObject({ code: 'invalid_query' });
      expect(reply.json['detail']).toMatch(/"cursor"/);
    }
  });

  it('depends only on its position, the tenant and the filters', async () => {
    const { next_cursor: cursor, proofs } = await page({ limit: '2', effect: 'ADMIT' });
    const own = { list: 'proofs', tenantId: TENANT, filters: { effect: 'ADMIT' } };
    expect(formatCursor(own, String(proofs.at(-1)!.leaf_index))).toBe(cursor);
  });

  it('is rejected after any change of its text', async () => {
    const cursor = (await page({ limit: '2' })).next_cursor!;
    const swapped = [...cursor].map(
      (one, i) => cursor.slice(0, i) + (one === 'A' ? 'B' : 'A') + cursor.slice(i + 1),
    );
    for (const bad of [...swapped, '', 'x', cursor.slice(0, -1), `${cursor}A`, '%00']) {
      expect((await list({ cursor: bad })).status).toBe(400);
    }
  });
});

it('rare filter > returns empty pages with a cursor until the scan reaches an old match', async () => {
  const [rare] = await setup.registry.admitAll([setup.registry.item({ action: 'RARE' })]);
  // Synthetic rows between the two proofs suffice, because the list reads only columns.
  await setup.byHand(async (tx) => {
    const start = (await setup.treeSize()) + 1;
    await tx`
        insert into svc.log_entry (leaf_index, kind, proof_id, at, tenant_no, lane, is_outcome, effect, environment,
          key_id, aep_hash, proof_record_hash, engine_version, signature, action, intent_id)
        select ${start}::bigint + n, 1, gen_random_uuid(), now(), ${setup.registry.tenantNo}, 1, false, 'ADMIT',
          'sandbox', 'k', sha256(''), sha256(''), 'v', '', 'COMMON', 'i'
        from generate_series(1, 9000) n`;
  });
  const first = await page({ action: 'RARE' });
  expect(first.proofs).toEqual([]);
  expect(first.next_cursor).not.toBeNull();
  const second = await page({ action: 'RARE', cursor: first.next_cursor! });
  expect(second.proofs).toEqual([]);
  expect(idsOf(await all({ action: 'RARE' }))).toEqual([rare]);
  expect(idsOf(await all({ intent_id: 'same-0' }))).toEqual(at(0, 2, 4, 6));
  expect((await page({ intent_id: 'same-0' })).next_cursor).toBeNull();
});

async function leafOf(id: string): Promise<number> {
  const [row] = await setup.db.sql<{ leaf_index: number }[]>`
    select leaf_index from svc.log_entry where proof_id = ${id}::uuid`;
  return row!.leaf_index;
}
