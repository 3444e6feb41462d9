import { createHash } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect } from 'vitest';
import type { OperationSpec } from '#api/engine/operation';
import { OPERATIONS } from '#api/engine/operations';
import { SCOPES } from '#protocol/schemas/api-keys';
import { frozenRights } from '#sql/db/roles';
import { admissionEnvelope, newRunId, outcomeEnvelope } from '../../fixtures/agent.js';
import { activateApprovalSet, refund } from '../../fixtures/approval-world.js';
import type { TestDatabase } from '../../fixtures/database.js';
import { executeBody, headersFor, send, type TestEngine, without } from '../../fixtures/engine.js';
import type { TestRegistry } from '../../fixtures/registry.js';
import { unfiltered } from '../../fixtures/unfiltered.js';
import { engineTest, fillTenant, type Resources } from './setup.js';

/** Two tenants: the owner has one resource of every kind, and the stranger requests the owner's resources. */
const OWNER = 'owner';
const STRANGER = 'stranger';
const ALL_SCOPES = SCOPES.filter((scope) => scope !== 'admin');

const BOUND = { id: 'owner-agent' };
const RUN = newRunId();

type Exported = Record<string, unknown>;
/** `pending` is the id of a proof that requires an approval. */
type Ids = Resources & { pending: string };

const it = engineTest();

let db: TestDatabase;
let registry: TestRegistry;
let stranger: Record<string, string>;
let theirs: Ids;
/** An admission with an outcome, in the owner’s run {@link RUN}. */
let parent: string;
let exported: Exported;
/** The export of a genuine proof that no tenant owns any more. */
let lost: Exported;

it.beforeAll(async ({ setup }) => {
  ({ db, registry } = setup);
  const owner = await setup.tenant(OWNER, ALL_SCOPES);
  stranger = await setup.tenant(STRANGER, ALL_SCOPES);
  const body = executeBody({ tenant_id: OWNER });
  const third = String((await setup.execute(body, owner)).json['registry_proof_id']);
  const filled = await fillTenant(setup, OWNER, owner);
  const tool = 'reservations.create';
  const own = { agent_id: BOUND.id };
  const key = await setup.keyFor({ tenantId: OWNER, scopes: ['admit'], restriction: own });
  const bound = admissionEnvelope({
    tenant_id: OWNER,
    agent: BOUND,
    tool,
    run: { id: RUN, seq: 0 },
  });
  const { json } = await setup.post('/v1/agent/admissions', bound, headersFor(key, OWNER));
  parent = String(json['registry_proof_id']);
  const outcome = outcomeEnvelope(parent, { tenant_id: OWNER });
  expect((await setup.post('/v1/agent/admissions', outcome, owner)).status).toBe(200);
  await activateApprovalSet(registry);
  const envelope = admissionEnvelope({ tenant_id: OWNER, ...refund() });
  const held = await setup.post('/v1/agent/admissions', envelope, owner);
  expect(held.json).toMatchObject({ state: 'approval_required' });
  theirs = { ...filled, pending: String(held.json['proof_id']) };
  const exportOf = async (proofId: string): Promise<Exported> => {
    const reply = await setup.get(`/v1/proofs/${proofId}/export`, owner);
    expect(reply.status).toBe(200);
    return reply.json;
  };
  exported = await exportOf(theirs.second);
  lost = await exportOf(third);
  await setup.byHand(async (tx) => {
    await tx`delete from svc.log_entry where proof_id = ${third}::uuid`;
    await tx`delete from svc.intake where proof_id = ${third}::uuid`;
  });
});

const hexId = (): string => uuidv7().replaceAll('-', '');

/** Well-formed ids that no resource has. */
function unknownIds(): Ids {
  return {
    pending: hexId(),
    proof_id: hexId(),
    second: hexId(),
    package_id: `pkg_${hexId()}`,
    token_hash: createHash('sha256').update(hexId()).digest('hex'),
    batch_id: `batch_${hexId()}`,
    key_id: hexId().slice(-12),
    overlay_id: createHash('sha256').update(hexId()).digest('hex'),
    registration_hash: createHash('sha256').update(hexId()).digest('hex'),
    run: hexId(),
  };
}

/** Values of the path parameters that are not ids. */
const PLAIN: Record<string, string> = { artifact_kind: 'certificate' };

function pathOf(spec: OperationSpec, ids: Resources): string {
  const query = spec.path.includes('{run}') ? '?agent=agent-7' : '';
  const path = spec.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = PLAIN[name] ?? (ids as unknown as Record<string, string>)[name];
    if (value === undefined) throw new Error(`add an id of the owner for {${name}}`);
    return value;
  });
  return path + query;
}

/** The body of an example request, with these ids and the tenant id of the stranger. */
function bodyOf(example: unknown, ids: Resources): unknown {
  if (isDocument(example))
    return documentLike(example, ids.second === theirs.second ? exported : lost);
  if (Array.isArray(example)) return example.map((one) => bodyOf(one, ids));
  if (example === null || typeof example !== 'object') return example;
  return Object.fromEntries(
    Object.entries(example).map(([name, value]) => {
      if (name === 'tenant_id') return [name, STRANGER];
      if (name === 'proof_id' || name === 'parent_proof_id') return [name, ids.proof_id];
      if (name === 'package_id') return [name, ids.package_id];
      if (name === 'proof_ids') return [name, [ids.proof_id, ids.second]];
      return [name, bodyOf(value, ids)];
    }),
  );
}

function isDocument(example: unknown): example is Exported {
  return typeof example === 'object' && example !== null && 'aep' in example;
}

/** An export with only the members, and the schema version, of the example. */
function documentLike(example: Exported, document: Exported): Exported {
  return Object.fromEntries(
    Object.entries(example).map(([name, value]) => [
      name,
      name === 'schema_version' ? value : document[name],
    ]),
  );
}

interface Case {
  name: string;
  spec: OperationSpec;
  example: unknown;
}

const namesIds = (example: unknown): boolean =>
  isDocument(example) ||
  JSON.stringify(bodyOf(example, unknownIds())) !== JSON.stringify(bodyOf(example, unknownIds()));

/** Each request with an id in its path or body, once for each example of its body. */
const cases: Case[] = OPERATIONS.flatMap(({ spec }) => {
  const inPath = spec.path.replaceAll('{artifact_kind}', '').includes('{');
  const examples = Object.entries(spec.body?.examples ?? {});
  const title = `${spec.method.toUpperCase()} ${spec.path}`;
  if (examples.length === 0) return inPath ? [{ name: title, spec, example: undefined }] : [];
  return examples
    .filter(([, example]) => inPath || namesIds(example))
    .map(([name, example]) => ({ name: `${title} (${name})`, spec, example }));
});

const lists = OPERATIONS.map(({ spec }) => spec).filter(
  (spec) => spec.method === 'get' && spec.scopes.length > 0 && !spec.path.includes('{'),
);

async function ask(
  engine: TestEngine,
  { spec, example }: Case,
  all: Ids,
): Promise<{ status: number; said: string; headers: object }> {
  const isApproval = spec.path.startsWith('/v1/approvals');
  const ids = isApproval ? { ...all, proof_id: all.pending } : all;
  // Does not validate the response: without tenant conditions, a query may return any rows.
  const reply = await send(engine.url, {
    method: spec.method.toUpperCase(),
    path: pathOf(spec, ids),
    headers: stranger,
    ...(example !== undefined && { body: JSON.stringify(bodyOf(example, ids)) }),
  });
  let said = JSON.stringify(without(reply.json, 'request_id'));
  for (const id of [...Object.values(ids), exported['proof_id'], lost['proof_id']]) {
    said = said.replaceAll(String(id), '<id>');
  }
  return {
    status: reply.status,
    said,
    headers: without(reply.headers, 'date', 'ratelimit', 'x-request-id'),
  };
}

async function withoutRowLevelSecurity<T>(work: () => Promise<T>): Promise<T> {
  const alter = async (what: string): Promise<void> => {
    for (const table of (await frozenRights()).tenantTables) {
      await db.sql.unsafe(`alter table svc.${table} ${what} row level security`);
    }
  };
  await alter('disable');
  try {
    return await work();
  } finally {
    await alter('enable');
  }
}

/** Expects the same response for another tenant's resource as for an unknown resource. */
async function expectAbsent(engine: TestEngine, asked: Case): Promise<void> {
  const about = await ask(engine, asked, theirs);
  const unknown = await ask(engine, asked, unknownIds());
  expect([asked.name, about]).toEqual([asked.name, unknown]);
  if (asked.spec.path.includes('{')) expect(about.status).toBe(404);
}

/** The filters, with values of the owner's proofs, that select proofs in the stranger's list. */
async function revealingFilters(engine: TestEngine): Promise<string[]> {
  const revealing: string[] = [];
  for (const filter of filters()) {
    const path = `/v1/proofs?${filter}`;
    const reply = await send(engine.url, { method: 'GET', path, headers: stranger });
    expect([filter, reply.status]).toEqual([filter, 200]);
    if ((reply.json['proofs'] as object[]).length > 0) revealing.push(filter);
  }
  return revealing;
}

const filters = (): string[] => [
  `agent=${BOUND.id}`,
  'tool=reservations.create',
  `run=${RUN}&agent=${BOUND.id}`,
  `parent=${parent}`,
  `batch=${theirs.batch_id}`,
  'bound=true',
];

/** The lists in which the stranger sees a resource of the owner. */
async function revealingLists(engine: TestEngine): Promise<string[]> {
  const revealing: string[] = [];
  for (const { path } of lists) {
    const reply = await send(engine.url, { method: 'GET', path, headers: stranger });
    expect(reply.status).toBe(200);
    const text = reply.bytes.toString();
    if (Object.values(theirs).some((id) => text.includes(id))) revealing.push(path);
  }
  return revealing;
}

async function expectAllAbsent(engine: TestEngine): Promise<void> {
  expect(cases.length).toBeGreaterThan(12);
  for (const asked of cases) await expectAbsent(engine, asked);
  expect(await revealingLists(engine)).toEqual([]);
  expect(await revealingFilters(engine)).toEqual([]);
}

describe('another tenant’s resource', () => {
  it('is absent on every route and in every list', ({ setup }) => expectAllAbsent(setup.engine));

  it('stays absent when the queries lack their tenant conditions', ({ setup }) =>
    setup.withEngine({ sql: unfiltered(registry.engine) }, expectAllAbsent));

  it('stays absent without row-level security', ({ setup }) =>
    withoutRowLevelSecurity(() => expectAllAbsent(setup.engine)));

  // This test shows that the tests above can fail.
  it('is visible on every route and in every list when both protections are missing', async ({
    setup,
  }) => {
    const silent: string[] = [];
    await withoutRowLevelSecurity(() =>
      setup.withEngine({ sql: unfiltered(registry.engine) }, async (engine) => {
        for (const asked of cases) {
          const about = await ask(engine, asked, theirs);
          const unknown = await ask(engine, asked, unknownIds());
          if (asked.spec.id === 'readApprovalRequest') expect(about.status).toBe(200);
          if (JSON.stringify(about) === JSON.stringify(unknown)) silent.push(asked.name);
        }
        expect(await revealingLists(engine)).toEqual(lists.map(({ path }) => path));
        expect(await revealingFilters(engine)).toEqual(filters());
      }),
    );
    expect(silent).toEqual([]);
  });
});
