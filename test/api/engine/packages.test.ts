import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageListSchema, packageSchema } from '#protocol/schemas/lifecycle';
import { problemSchema } from '#protocol/schemas/problem';
import { agentItem, outcomeEnvelope } from '../../fixtures/agent.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { eraseProof } from '../../fixtures/erase.js';
import { startEngine, type Reply, type TestEngine } from '../../fixtures/engine.js';
import { clientOf, type Client } from '../../fixtures/lifecycle.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let client: Client;
let stranger: Client;
let proofs: string[];

const PATH = '/v1/packages';
const NOBODYS = '0190f3c8a1b27d3e8f4a5b6c7d8e9f00';

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
  client = await clientOf(db, registry, engine);
  stranger = await clientOf(db, registry, engine, { tenantId: 'stranger' });
  proofs = await registry.admitAll(Array.from({ length: 101 }, () => registry.item()));
});
afterAll(async () => {
  await engine.close();
  await db.drop();
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
    const reply = await create([proofs[0]!, denied, NOBODYS, outcome]);
    const places = ['/proof_ids/1', '/proof_ids/2', '/proof_ids/3'];
    expectProblem(reply, 422, 'package_member_unfit', places);
    const [row] = await db.sql`select from svc.package_member where proof_id = ${denied}::uuid`;
    expect(row).toBeUndefined();
  });

  it("treats another tenant's proof as unknown", async () => {
    const others = await create([proofs[0]!], stranger);
    const nobodys = await create([NOBODYS], stranger);
    expectProblem(others, 422, 'package_member_unfit', ['/proof_ids/0']);
    expect(others.json['errors']).toEqual(nobodys.json['errors']);
  });

  it('rejects a repeated proof', async () => {
    const reply = await create([proofs[0]!, proofs[1]!, proofs[0]!]);
    expectProblem(reply, 400, 'invalid_field', ['/proof_ids/2']);
  });

  it.each([
    [{ schema_version: 'svc.lifecycle.package_request/2.0' }, 'unsupported_schema_version'],
    [{ proof_ids: ['x'] }, 'invalid_field'],
    [{ proof_ids: 'x' }, 'invalid_field'],
    [{ package_id: `pkg_${NOBODYS}` }, 'unknown_field'],
  ])('refuses %j', async (overrides, code) => {
    expectProblem(await create([proofs[0]!], client, overrides), 400, code);
  });

  it('needs the scope', async () => {
    const reader = await clientOf(db, registry, engine, { scopes: ['read'] });
    expectProblem(await create([proofs[0]!], reader), 403, 'scope_missing');
    expect((await reader.get(PATH)).status).toBe(200);
  });
});

describe('GET /v1/packages/{package_id}', () => {
  it('revalidates with an ETag: 304', async () => {
    const { location = '' } = (await create([proofs[5]!])).headers;
    const { etag = '' } = (await client.get(location)).headers;
    const again = await client.get(location, { 'If-None-Match': etag });
    expect({ status: again.status, length: again.bytes.length }).toEqual({
      status: 304,
      length: 0,
    });
  });

  it('responds with 404 for other tenants’ packages', async () => {
    const { location = '' } = (await create([proofs[6]!])).headers;
    for (const path of [location, `${PATH}/pkg_${NOBODYS}`, `${PATH}/x`, `${PATH}/%00`]) {
      expectProblem(await stranger.get(path), 404, 'package_not_found');
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
