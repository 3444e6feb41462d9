import { createHash } from 'node:crypto';
import { pino } from 'pino';
import { describe, expect } from 'vitest';
import { formatCursor } from '#api/engine/http/paging';
import { isShareToken } from '#protocol/ids';
import { createdShareTokenSchema, shareTokenListSchema } from '#protocol/schemas/lifecycle';
import { problemSchema } from '#protocol/schemas/problem';
import { formatTime } from '#protocol/time';
import { agentItem, outcomeEnvelope } from '../../fixtures/agent.js';
import type { TestDatabase } from '../../fixtures/database.js';
import type { Reply, TestEngine } from '../../fixtures/engine.js';
import { clientOf, wholeDatabase, type Client } from '../../fixtures/lifecycle.js';
import type { TestRegistry } from '../../fixtures/registry.js';
import { engineTest } from './setup.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let client: Client;
let proofId: string;
let denied: string;
let packageId: string;
let logged = '';

const it = engineTest({
  log: pino({ level: 'trace' }, { write: (line) => void (logged += line) }),
});

it.beforeAll(async ({ setup }) => {
  ({ db, registry, engine } = setup);
  client = await clientOf(db, registry, engine);
  [proofId = '', denied = ''] = await registry.admitAll([
    registry.item(),
    registry.item({ action: 'DELETE_AUDIT_LOG' }),
  ]);
  const made = await client.post('/v1/packages', {
    schema_version: 'svc.lifecycle.package_request/1.0',
    proof_ids: [proofId],
  });
  packageId = String(made.json['package_id']);
});

const PATH = '/v1/share-tokens';
const body = (overrides: Record<string, unknown> = {}): Record<string, unknown> => ({
  schema_version: 'svc.lifecycle.share_token_request/1.0',
  artifact_kind: 'proof',
  proof_id: proofId,
  ...overrides,
});
const forPackage = (overrides: Record<string, unknown> = {}): Record<string, unknown> => ({
  schema_version: 'svc.lifecycle.share_token_request/1.0',
  artifact_kind: 'package',
  package_id: packageId,
  ...overrides,
});
const create = (document = body(), who = client): Promise<Reply> => who.post(PATH, document);
const inFuture = (): string => formatTime(Date.now() + 60_000);

function expectProblem(reply: Reply, status: number, code: string, pointer?: string): void {
  const problem = problemSchema.parse(reply.json);
  expect({ status: reply.status, code: problem.code }).toEqual({ status, code });
  if (pointer !== undefined) expect(problem.errors?.[0]?.pointer).toBe(pointer);
}

async function listed(
  who = client,
  query = '',
): Promise<ReturnType<typeof shareTokenListSchema.parse>> {
  const reply = await who.get(`${PATH}${query}`);
  expect(reply.status).toBe(200);
  return shareTokenListSchema.parse(reply.json);
}

describe('POST /v1/share-tokens', () => {
  it('shows a new token once: 201', async () => {
    const reply = await create();
    expect(reply.status).toBe(201);
    expect(reply.headers['cache-control']).toBe('no-store');
    const created = createdShareTokenSchema.parse(reply.json);
    expect(isShareToken(created.share_token)).toBe(true);
    expect(created).toMatchObject({ artifact_kind: 'proof', proof_id: proofId, expires_at: null });
    expect(created.token_hash).toBe(createHash('sha256').update(created.share_token).digest('hex'));
  });

  it.each(['proof', 'passport', 'certificate', 'trust'])(
    'creates a token for a %s',
    async (kind) => {
      const expires_at = inFuture();
      const reply = await create(body({ artifact_kind: kind, expires_at }));
      expect(reply.status).toBe(201);
      expect(reply.json).toMatchObject({ artifact_kind: kind, proof_id: proofId, expires_at });
    },
  );

  it('creates a token for a package', async () => {
    const reply = await create(forPackage());
    expect(reply.status).toBe(201);
    expect(createdShareTokenSchema.parse(reply.json)).toMatchObject({
      artifact_kind: 'package',
      package_id: packageId,
    });
  });

  it('creates random tokens', async () => {
    const tokens = await Promise.all(
      Array.from({ length: 20 }, async () => String((await create()).json['share_token'])),
    );
    expect(new Set(tokens).size).toBe(20);
    // Drawn, not counted: no position of the 43 is the same in all of them.
    for (let at = 'share_'.length; at < tokens[0]!.length; at += 1) {
      expect(new Set(tokens.map((token) => token[at])).size).toBeGreaterThan(1);
    }
  });

  it('stores the token neither in the database nor in the logs', async () => {
    const token = String((await create()).json['share_token']);
    // Also when a client sends it in place of its hash.
    expectProblem(await client.delete(`${PATH}/${token}`), 404, 'share_token_not_found');
    const encoded = token.replace('_', '%5f');
    expectProblem(await client.delete(`${PATH}/${encoded}`), 404, 'share_token_not_found');
    const secret = token.slice('share_'.length);
    const everything = await wholeDatabase(db);
    expect(everything).toContain(createHash('sha256').update(token).digest('hex'));
    for (const form of [
      secret,
      Buffer.from(token).toString('hex'),
      Buffer.from(secret, 'base64url').toString('hex'),
    ]) {
      expect(everything).not.toContain(form);
      expect(logged).not.toContain(form);
    }
    expect(logged).toContain(PATH);
  });

  it('rejects other artifacts of a denial or an outcome: 422', async () => {
    const [outcome = ''] = await registry.admitAll([
      agentItem(registry, outcomeEnvelope(proofId, { result: 'failed' })),
    ]);
    for (const id of [denied, outcome]) {
      expect((await create(body({ proof_id: id }))).status).toBe(201);
      const reply = await create(body({ proof_id: id, artifact_kind: 'trust' }));
      expectProblem(reply, 422, 'artifact_absent', '/artifact_kind');
    }
  });

  it.each([
    ['now', () => formatTime(Date.now())],
    ['at the minimum time', () => '0000-01-01T00:00:00.000Z'],
  ])('rejects an expiry %s: 422', async (_, time) => {
    const reply = await create(body({ expires_at: time() }));
    expectProblem(reply, 422, 'expiry_over', '/expires_at');
  });

  it.each([
    [
      { schema_version: 'svc.lifecycle.share_token_request/2.0' },
      'unsupported_schema_version',
      '/schema_version',
    ],
    [{ artifact_kind: 'secret' }, 'invalid_field', '/artifact_kind'],
    [{ proof_id: 'x' }, 'invalid_field', '/proof_id'],
    [{ expires_at: '2036-01-01' }, 'invalid_field', '/expires_at'],
    [{ package_id: `pkg_${'0'.repeat(32)}` }, 'unknown_field', '/package_id'],
    [{ artifact_kind: 'package' }, 'unknown_field', '/proof_id'],
    [{ token: 'share_mine' }, 'unknown_field', '/token'],
  ])('refuses %j', async (overrides, code, pointer) => {
    expectProblem(await create(body(overrides)), 400, code, pointer);
  });
});

describe('GET /v1/share-tokens', () => {
  it('lists hashes in pages, newest first, and no tokens', async () => {
    const own = await clientOf(db, registry, engine, { tenantId: 'lister' });
    const [other = ''] = await registry.admitAll([registry.item()]);
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.proof set tenant_no =
        (select tenant_no from svc.tenant where tenant_id = 'lister') where proof_id = ${other}::uuid`;
    });
    const hashes: string[] = [];
    for (let n = 0; n < 7; n += 1) {
      hashes.unshift(String((await create(body({ proof_id: other }), own)).json['token_hash']));
    }
    // Of one millisecond: the order must still be one, and no page may skip or repeat.
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.share_token set created_at = '2026-11-20T12:00:00.000Z'
        where token_hash in (select token_hash from svc.share_token where tenant_no =
          (select tenant_no from svc.tenant where tenant_id = 'lister') limit 4)`;
    });
    const seen: string[] = [];
    let cursor: string | null = '';
    for (let pages = 0; cursor !== null; pages += 1) {
      expect(pages).toBeLessThan(5);
      const page: ReturnType<typeof shareTokenListSchema.parse> = await listed(
        own,
        `?limit=2${cursor === '' ? '' : `&cursor=${cursor}`}`,
      );
      seen.push(...page.share_tokens.map(({ token_hash }) => token_hash));
      cursor = page.next_cursor;
    }
    expect(seen).toHaveLength(7);
    expect([...seen].sort()).toEqual([...hashes].sort());
    const all = await listed(own);
    expect(all.next_cursor).toBeNull();
    expect(all.share_tokens.map(({ token_hash }) => token_hash)).toEqual(seen);
    const times = all.share_tokens.map(({ created_at }) => created_at);
    expect(times).toEqual([...times].sort().reverse());
    expect(JSON.stringify(all)).not.toContain('share_"');
    expect(JSON.stringify(all)).not.toMatch(/share_[A-Za-z0-9_-]{43}/);
  });

  it.each([
    '?limit=0',
    '?limit=201',
    '?limit=ten',
    '?limit=1&limit=2',
    '?cursor=',
    '?cursor=bm9uc2Vuc2U',
    '?cursor=%00',
    '?page=2',
  ])('refuses %s: 400', async (query) => {
    expectProblem(await client.get(`${PATH}${query}`), 400, 'invalid_query');
  });

  it.for(['253402300800000:' + '0'.repeat(64), '1:x', '1'])(
    'rejects a forged cursor to %s: 400',
    async (position, { setup }) => {
      const { tenantNo } = setup.registry;
      const cursor = formatCursor({ list: 'share_tokens', tenantNo, filters: {} }, position);
      expectProblem(await client.get(`${PATH}?cursor=${cursor}`), 400, 'invalid_query');
    },
  );
});

describe('DELETE /v1/share-tokens/{token_hash}', () => {
  it('revokes permanently and repeatably: 204', async () => {
    const hash = String((await create()).json['token_hash']);
    const find = async () =>
      (await listed()).share_tokens.find(({ token_hash }) => token_hash === hash);
    expect((await find())?.revoked_at).toBeNull();
    const reply = await client.delete(`${PATH}/${hash}`);
    expect({ status: reply.status, length: reply.bytes.length }).toEqual({
      status: 204,
      length: 0,
    });
    const revokedAt = (await find())?.revoked_at;
    expect(revokedAt).not.toBeNull();
    const replies = await Promise.all([1, 2, 3].map(() => client.delete(`${PATH}/${hash}`)));
    expect(replies.map(({ status }) => status)).toEqual([204, 204, 204]);
    expect((await find())?.revoked_at).toBe(revokedAt);
    const undo = db.sql`delete from svc.share_revocation`;
    await expect(undo).rejects.toThrow(/append-only/);
    await expect(db.sql`update svc.share_token set expires_at = null`).rejects.toThrow(
      /append-only/,
    );
  });
});
