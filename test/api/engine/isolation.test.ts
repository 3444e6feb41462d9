import { createHash } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect } from 'vitest';
import type { OperationSpec } from '#api/engine/operation';
import { OPERATIONS } from '#api/engine/operations';
import type { Pool } from '#sql/db/transaction';
import { TENANT_TABLES } from '#sql/db/tenant-scope';
import type { TestDatabase } from '../../fixtures/database.js';
import {
  executeBody,
  startEngine,
  type Reply,
  type TestEngine,
  without,
  workBatches,
} from '../../fixtures/engine.js';
import type { TestRegistry } from '../../fixtures/registry.js';
import { unfiltered } from '../../fixtures/unfiltered.js';
import { engineTest } from './setup.js';

/** Two tenants: the owner has one resource of every kind, the stranger requests them. */
const OWNER = 'owner';
const STRANGER = 'stranger';
const ALL_SCOPES = ['admit', 'read', 'export', 'verify', 'lifecycle'];

/**
 * Ids of one of everything, by the names that paths and bodies have for them; `second` is another
 * proof, for what takes several.
 */
type Ids = Record<'proof_id' | 'second' | 'package_id' | 'token_hash' | 'batch_id', string>;

type Exported = Record<string, unknown>;

const it = engineTest();

let db: TestDatabase;
let registry: TestRegistry;
let stranger: Record<string, string>;
let theirs: Ids;
let exported: Exported;
/** A proof that was as genuine, and that no tenant has any more. */
let lost: Exported;

it.beforeAll(async ({ setup }) => {
  ({ db, registry } = setup);
  const owner = await setup.tenant(OWNER, ALL_SCOPES);
  stranger = await setup.tenant(STRANGER, ALL_SCOPES);
  const make = async (path: string, body: object): Promise<Reply['json']> => {
    const reply = await setup.post(path, { ...body }, owner);
    expect(reply.status).toBeLessThan(300);
    return reply.json;
  };
  const admit = async () =>
    String(
      (await make('/v1/intents/execute', executeBody({ tenant_id: OWNER })))['registry_proof_id'],
    );
  const [first, second, third] = [await admit(), await admit(), await admit()];
  const made = await make('/v1/packages', {
    schema_version: 'svc.lifecycle.package_request/1.0',
    proof_ids: [first, second],
  });
  const shared = await make('/v1/share-tokens', {
    schema_version: 'svc.lifecycle.share_token_request/1.0',
    artifact_kind: 'proof',
    proof_id: first,
  });
  await make(`/v1/proofs/${first}/revocations`, {
    schema_version: 'svc.lifecycle.revocation_request/1.0',
    artifact_kind: 'certificate',
    reason: 'a mistake',
    actor: 'ops',
  });
  const items = [executeBody({ tenant_id: OWNER })];
  const batch = (await setup.post('/v1/batches', items, owner)).json;
  await workBatches(registry);
  await setup.publish();
  theirs = {
    proof_id: first,
    second,
    package_id: String(made['package_id']),
    token_hash: String(shared['token_hash']),
    batch_id: String(batch['batch_id']),
  };
  const exportOf = async (proofId: string): Promise<Exported> => {
    const reply = await setup.get(`/v1/proofs/${proofId}/export`, owner);
    expect(reply.status).toBe(200);
    return reply.json;
  };
  exported = await exportOf(second);
  lost = await exportOf(third);
  await setup.byHand(async (tx) => {
    await tx`delete from svc.proof where proof_id = ${third}::uuid`;
    await tx`delete from svc.intake where proof_id = ${third}::uuid`;
  });
});

const hexId = (): string => uuidv7().replaceAll('-', '');

/** Well-formed ids of no resource. */
function unknownIds(): Ids {
  return {
    proof_id: hexId(),
    second: hexId(),
    package_id: `pkg_${hexId()}`,
    token_hash: createHash('sha256').update(hexId()).digest('hex'),
    batch_id: `batch_${hexId()}`,
  };
}

/** Path parameters that are not ids. */
const PLAIN: Record<string, string> = { artifact_kind: 'certificate' };

function pathOf(spec: OperationSpec, ids: Ids): string {
  return spec.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = PLAIN[name] ?? (ids as unknown as Record<string, string>)[name];
    if (value === undefined) throw new Error(`add an id of the owner for {${name}}`);
    return value;
  });
}

/** A body of the stranger's that names these ids, wherever a body of this shape names any. */
function bodyOf(example: unknown, ids: Ids): unknown {
  if (isDocument(example)) return documentLike(example, ids === theirs ? exported : lost);
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

/** This export with only the members of the example. */
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

/** Every route with an id in its path, once for each body it takes, and every other body with one. */
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
  ids: Ids,
): Promise<{ status: number; said: string }> {
  const reply = await engine.call({
    method: spec.method.toUpperCase(),
    path: pathOf(spec, ids),
    headers: stranger,
    ...(example !== undefined && { body: JSON.stringify(bodyOf(example, ids)) }),
  });
  let said = JSON.stringify(without(reply.json, 'request_id'));
  for (const id of [...Object.values(ids), exported['proof_id'], lost['proof_id']]) {
    said = said.replaceAll(String(id), '<id>');
  }
  return { status: reply.status, said };
}

async function withEngine<T>(sql: Pool, work: (engine: TestEngine) => Promise<T>): Promise<T> {
  const engine = await startEngine(registry, { sql });
  try {
    return await work(engine);
  } finally {
    await engine.close();
  }
}

async function withoutRowLevelSecurity<T>(work: () => Promise<T>): Promise<T> {
  const alter = async (what: string): Promise<void> => {
    for (const table of TENANT_TABLES) {
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

/** A stranger's request for an existing resource gets the response for an unknown one. */
async function expectAbsent(engine: TestEngine, asked: Case): Promise<void> {
  const about = await ask(engine, asked, theirs);
  const unknown = await ask(engine, asked, unknownIds());
  expect(about).toEqual(unknown);
  if (asked.spec.path.includes('{')) expect(about.status).toBe(404);
}

/** The lists that show the stranger a resource of the owner. */
async function tellingLists(engine: TestEngine): Promise<string[]> {
  const telling: string[] = [];
  for (const { path } of lists) {
    const reply = await engine.call({ method: 'GET', path, headers: stranger });
    expect(reply.status).toBe(200);
    const text = reply.bytes.toString();
    if (Object.values(theirs).some((id) => text.includes(id))) telling.push(path);
  }
  return telling;
}

async function expectListsWithout(engine: TestEngine): Promise<void> {
  expect(await tellingLists(engine)).toEqual([]);
}

describe('tenant isolation matrix', () => {
  it('covers every route with an id of a tenant’s resource', () => {
    const routes = new Set(cases.map(({ spec }) => spec.id));
    for (const { spec } of OPERATIONS) {
      if (/proof_id|package_id|token_hash|batch_id/.test(spec.path))
        expect(routes).toContain(spec.id);
    }
    expect(lists.map(({ id }) => id)).toContain('listProofs');
    expect(cases.length).toBeGreaterThan(12);
  });
});

describe('another tenant’s resource', () => {
  it.for(cases)('$name is absent', async (asked) => {
    await withEngine(registry.engine, (engine) => expectAbsent(engine, asked));
  });

  it('is in no list', () => withEngine(registry.engine, expectListsWithout));
});

describe('another tenant’s resource, with only row-level security,', () => {
  it.for(cases)('$name is absent', async (asked) => {
    await withEngine(unfiltered(registry.engine), (engine) => expectAbsent(engine, asked));
  });

  it('is in no list', () => withEngine(unfiltered(registry.engine), expectListsWithout));
});

describe('another tenant’s resource, with only the queries’ conditions,', () => {
  it('is absent', async () => {
    await withoutRowLevelSecurity(() =>
      withEngine(registry.engine, async (engine) => {
        for (const asked of cases) await expectAbsent(engine, asked);
        await expectListsWithout(engine);
      }),
    );
  });
});

// Control: without both guards the stranger sees everything, so the tests above can fail.
describe('another tenant’s resource, without either guard,', () => {
  it('is visible on every route', async () => {
    const silent: string[] = [];
    await withoutRowLevelSecurity(() =>
      withEngine(unfiltered(registry.engine), async (engine) => {
        for (const asked of cases) {
          const about = await ask(engine, asked, theirs);
          const unknown = await ask(engine, asked, unknownIds());
          if (JSON.stringify(about) === JSON.stringify(unknown)) silent.push(asked.name);
        }
        expect(await tellingLists(engine)).toEqual(lists.map(({ path }) => path));
      }),
    );
    expect(silent).toEqual([]);
  });
});
