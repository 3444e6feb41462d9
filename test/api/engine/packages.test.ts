import { describe, expect } from 'vitest';
import { packageListSchema, packageSchema } from '#protocol/schemas/lifecycle';
import { problemSchema } from '#protocol/schemas/problem';
import { agentItem, outcomeEnvelope } from '../../fixtures/agent.js';
import type { TestDatabase } from '../../fixtures/database.js';
import { eraseProof } from '../../fixtures/erase.js';
import type { Reply, TestEngine } from '../../fixtures/engine.js';
import { clientOf, type Client } from '../../fixtures/lifecycle.js';
import type { TestRegistry } from '../../fixtures/registry.js';
import { engineTest } from './setup.js';

const it = engineTest();

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let client: Client;
let stranger: Client;
let proofs: string[];

const PATH = '/v1/packages';
const ABSENT_ID = '0190f3c8a1b27d3e8f4a5b6c7d8e9f00';

it.beforeAll(async ({ setup }) => {
  ({ db, registry, engine } = setup);
  client = await clientOf(db, registry, engine);
  stranger = await clientOf(db, registry, engine, { tenantId: 'stranger' });
  proofs = await registry.admitAll(Array.from({ length: 101 }, () => registry.item()));
});

const create = (proofIds: unknown, who = client, overrides = {}): Promise<Reply> =>
  who.post(PATH, {
    schema_version: 'svc.lifecycle.package_request/1.0',
    proof_ids: proofIds,
    ...overrides,
  });

function expectProblem(reply: Reply, status: number, code: string, pointers?: string[]): void {
  const problem = problemSchema.parse(reply.json);
  expect({ status: reply.status, code: problem.code }).toEqual({ status, code });
  if (pointers !== undefined) {
    expect(problem.errors?.map(({ pointer }) => pointer)).toEqual(pointers);
  }
}

describe('POST /v1/packages', () => {
  it('creates a package in the given order: 201', async () => {
    const ids = [proofs[2]!, proofs[0]!, proofs[1]!];
    const reply = await create(ids);
    expect(reply.status).toBe(201);
    const made = packageSchema.parse(reply.json);
    expect(made.proof_ids).toEqual(ids);
    expect(reply.headers.location).toBe(`${PATH}/${made.package_id}`);
    const read = await client.get(reply.headers.location!);
    expect(read.status).toBe(200);
    expect(read.json).toEqual(made);
  });

  it('returns the same package for the same order: 200', async () => {
    const ids = [proofs[3]!, proofs[4]!];
    const replies = await Promise.all([1, 2, 3, 4].map(() => create(ids)));
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 200, 200, 201]);
    expect(new Set(replies.map(({ bytes }) => bytes.toString())).size).toBe(1);
    const repeat = replies.find(({ status }) => status === 200);
    expect(repeat?.headers['idempotent-replayed']).toBe('true');
    expect((await create([...ids].reverse())).status).toBe(201);
  });

  it('keeps a package whose member is erased, but rejects the member in new ones', async () => {
    const own = await registry.admitAll([registry.item(), registry.item()]);
    const made = await create(own);
    expect(made.status).toBe(201);
    await eraseProof(db, own[1]!);
    const again = await create(own);
    expect(again.status).toBe(200);
    expect(again.bytes).toEqual(made.bytes);
    const reply = await create([proofs[0]!, own[1]!]);
    expectProblem(reply, 422, 'package_member_unfit', ['/proof_ids/1']);
    expect(JSON.stringify(reply.json)).toContain('has been erased');
  });

  it('accepts at most 100 proofs', async () => {
    expect((await create(proofs.slice(0, 100))).status).toBe(201);
    expectProblem(await create(proofs), 400, 'invalid_field', ['/proof_ids']);
    expectProblem(await create([]), 400, 'invalid_field', ['/proof_ids']);
  });

  it('rejects members that are not the tenant’s admissions: 422 with pointers', async () => {
    const [denied = ''] = await registry.admitAll([registry.item({ action: 'DELETE_AUDIT_LOG' })]);
    const [outcome = ''] = await registry.admitAll([
      agentItem(registry, outcomeEnvelope(proofs[0]!)),
    ]);
    const reply = await create([proofs[0]!, denied, ABSENT_ID, outcome]);
    const places = ['/proof_ids/1', '/proof_ids/2', '/proof_ids/3'];
    expectProblem(reply, 422, 'package_member_unfit', places);
    const [row] = await db.sql`select from svc.package_member where proof_id = ${denied}::uuid`;
    expect(row).toBeUndefined();
  });

  it('rejects a repeated proof', async () => {
    const reply = await create([proofs[0]!, proofs[1]!, proofs[0]!]);
    expectProblem(reply, 400, 'invalid_field', ['/proof_ids/2']);
  });

  it.for([
    [{ schema_version: 'svc.lifecycle.package_request/2.0' }, 'unsupported_schema_version'],
    [{ proof_ids: ['x'] }, 'invalid_field'],
    [{ proof_ids: 'x' }, 'invalid_field'],
    [{ package_id: `pkg_${ABSENT_ID}` }, 'unknown_field'],
  ] as const)('rejects %j', async ([overrides, code]) => {
    expectProblem(await create([proofs[0]!], client, overrides), 400, code);
  });
});

describe('GET /v1/packages/{package_id}', () => {
  it('responds with 404 for malformed ids', async () => {
    for (const path of [`${PATH}/x`, `${PATH}/%00`]) {
      expectProblem(await client.get(path), 404, 'package_not_found');
    }
  });
});

describe('GET /v1/packages', () => {
  it('lists only own packages in pages, newest first', async () => {
    expect((await stranger.get(PATH)).json).toMatchObject({ packages: [], next_cursor: null });
    const all = packageListSchema.parse((await client.get(`${PATH}?limit=200`)).json);
    expect(all.packages.length).toBeGreaterThan(3);
    expect(all.next_cursor).toBeNull();
    const seen: unknown[] = [];
    let next: string | null = `${PATH}?limit=1`;
    while (next !== null) {
      const page: ReturnType<typeof packageListSchema.parse> = packageListSchema.parse(
        (await client.get(next)).json,
      );
      expect(page.packages).toHaveLength(1);
      seen.push(...page.packages);
      next = page.next_cursor === null ? null : `${PATH}?limit=1&cursor=${page.next_cursor}`;
    }
    expect(seen).toEqual(all.packages);
    const times = all.packages.map(({ created_at }) => created_at);
    expect(times).toEqual([...times].sort().reverse());
  });

  it('rejects a cursor of another list: 400', async () => {
    const [proofId = ''] = await registry.admitAll([registry.item()]);
    const token = (): Promise<Reply> =>
      client.post('/v1/share-tokens', {
        schema_version: 'svc.lifecycle.share_token_request/1.0',
        artifact_kind: 'proof',
        proof_id: proofId,
      });
    await token();
    await token();
    const cursor = String((await client.get('/v1/share-tokens?limit=1')).json['next_cursor']);
    expectProblem(await client.get(`${PATH}?cursor=${cursor}`), 400, 'invalid_query');
  });
});
