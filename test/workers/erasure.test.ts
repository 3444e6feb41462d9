import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { revocationReasonBytes } from '#protocol/entries';
import { idsOf } from '#protocol/ids';
import type { ArtifactKind } from '#protocol/status';
import type { Publisher } from '#publisher/publisher';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Pool, Transaction } from '#sql/db/transaction';
import { insertRevocationRequest, revocationState } from '#sql/lifecycle/revocations';
import { commitRevocations } from '#workers/lifecycle/revocations';
import { scrub } from '#workers/verify/scrub';
import { scanExpiries } from '#workers/verify/expiries';
import { adminOn, type AdminLine } from '../fixtures/admin.js';
import { holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { eraseProof } from '../fixtures/erase.js';
import { EventfulRegistry } from '../fixtures/eventful-registry.js';
import { valuesHolding } from '../fixtures/marks.js';
import { callAt, type Reply } from '../fixtures/public-call.js';
import { TENANT } from '../fixtures/registry.js';
import { SqlSnapshot } from '../fixtures/sql-publisher.js';
import { useDatabase } from '../fixtures/use-registry.js';

/**
 * Erasures, from the command to the verdict and the published status, and requests that run
 * concurrently with an erasure.
 */

const MARK = 'PAY_MARKWORTH';
const NAME = 'Maria-Markworth';

const db = useDatabase('file');
let world: EventfulRegistry;
const snapshot = new SqlSnapshot(db);
let publisher: Publisher;
let admin: AdminLine;

beforeAll(async () => {
  world = await EventfulRegistry.open(db);
  publisher = snapshot.publisher();
  admin = adminOn(db, { url: db.urlFor('svc_erase') });
});
afterAll(() => snapshot.close());

async function publish(): Promise<void> {
  await scanExpiries(world.registry.verify, 100);
  await world.registry.reportAll();
  expect((await publisher.runCycle()).outcome).toBe('published');
}

async function lastVerdict(proofId: string): Promise<{ outcome: string; checks: object[] }> {
  const [row] = await db.sql<{ outcome: string; checks: object[] }[]>`
    select outcome, checks from svc.verdict
    where first_index = (select leaf_index from svc.log_entry where proof_id = ${proofId}::uuid)
      and not frontier order by verdict_id desc limit 1`;
  return row ?? { outcome: 'none', checks: [] };
}

/** All routes that lead to an artifact of the proof. */
function routesOf(proofId: string, packageId: string, token: string): string[] {
  const ids = { ...idsOf(proofId) } as Record<string, string>;
  return [
    `proof/${proofId}`,
    `certificate/${ids['certificate_id']!}`,
    `passport/${ids['passport_id']!}`,
    `trust/${ids['trust_id']!}`,
    `trust-asset/${ids['trust_asset_id']!}`,
    `share/${token}`,
  ]
    .map((path) => `/api/public/verify/${path}`)
    .concat(
      `/api/public/verify?identifier=${proofId}`,
      `/api/public/verify?identifier=${packageId}`,
    );
}

/** Queries a public API server that serves the published snapshot. */
async function getAll(paths: string[]): Promise<Reply[]> {
  const server = await snapshot.serve(snapshot.publicServer());
  const replies: Reply[] = [];
  for (const path of paths) replies.push(await callAt(server, path));
  return replies;
}

/** The status on each route, followed by `!` if the route asserts validity. */
async function statusesAt(paths: string[]): Promise<string[]> {
  return (await getAll(paths)).map(({ status, body, text }, i) => {
    expect(status, `${paths[i]!}: ${text}`).toBe(200);
    const { verification } = body as {
      verification: { verification_status: string; can_assert_validity: boolean };
    };
    return verification.verification_status + (verification.can_assert_validity ? '!' : '');
  });
}

describe('erased proof', () => {
  it('is asserted valid on no route and raises no alert', async () => {
    const [id = '', revoked = ''] = await world.admit(2, {});
    const packageId = await world.bundle([id]);
    await world.share({ artifactKind: 'trust', proofId: id });
    await world.registry.revoke(revoked, 'proof');
    await world.registry.verifyAll();
    await publish();
    const routes = routesOf(id, packageId, world.tokens[0]!);
    const before = await statusesAt(routes);
    expect(before.every((status) => status.endsWith('!'))).toBe(true);

    await eraseProof(db, id);
    await eraseProof(db, revoked);
    await publish();
    expect(await statusesAt(routes)).toEqual(routes.map(() => 'BACKEND_LOOKUP_REQUIRED'));
    expect(await statusesAt([`/api/public/verify/proof/${revoked}`])).toEqual(['REVOKED']);
    expect(await lastVerdict(id)).toMatchObject({ outcome: 'erased' });

    // The scrubber verifies both log entries again and changes no verdict.
    expect((await scrub(world.registry.verify, 1_000)).changed).toBe(0);
    const history = await historyOf(id);
    expect(history.map(({ event }) => event)).toEqual([
      'accepted',
      'appended',
      'verified',
      'erased',
    ]);
  });

  it('gets its verdict at once when erased before its first verification', async () => {
    const { registry } = world;
    const [id = ''] = await registry.admitAll([registry.item()]);
    await eraseProof(db, id);
    await registry.verifyAll();
    const { outcome, checks } = await lastVerdict(id);
    expect({ outcome, checks }).toMatchObject({
      outcome: 'erased',
      checks: [
        { name: 'aep_hash', result: 'not_applicable' },
        { name: 'log_entry' },
        { name: 'inclusion' },
      ],
    });
    await publish();
    expect(await statusesAt([`/api/public/verify/proof/${id}`])).toEqual([
      'BACKEND_LOOKUP_REQUIRED',
    ]);
  });

  it('fails with an error log when its log entry is damaged', async () => {
    const [id = ''] = await world.admit(1);
    await eraseProof(db, id);
    await scanExpiries(world.registry.verify, 100);
    const flip = `update svc.log_entry set aep_hash = set_byte(aep_hash, 3, get_byte(aep_hash, 3) # 1)
      where proof_id = '${id}' and kind = 1`;
    await world.tamper(flip);
    await scrub(world.registry.verify, 1_000);
    expect((await lastVerdict(id)).outcome).toBe('fail');
    await world.tamper(flip);
    await scrub(world.registry.verify, 1_000);
    expect((await lastVerdict(id)).outcome).toBe('erased');
  });

  it.each([
    ['without a record', 'delete from svc.erasure where proof_id = $id'],
    ['only partly', `update svc.log_entry set signature = '\\x00' where proof_id = $id`],
  ])('fails when its payload was erased %s', async (_what, statement) => {
    const [id = ''] = await world.admit(1);
    await eraseProof(db, id);
    await scanExpiries(world.registry.verify, 100);
    expect((await lastVerdict(id)).outcome).toBe('erased');
    await world.tamper(statement.replace('$id', `'${id}'`));
    await scrub(world.registry.verify, 1_000);
    expect((await lastVerdict(id)).outcome).toBe('fail');
  });

  it('leaves no payload in the published snapshot', async () => {
    const { registry } = world;
    const [id = ''] = await registry.admitAll([registry.item({ action: MARK, intent_id: MARK })]);
    await registry.verifyAll();
    await publish();
    await eraseProof(db, id);
    await publish();
    for (const file of readdirSync(snapshot.directory, { recursive: true, withFileTypes: true })) {
      if (!file.isFile()) continue;
      expect(readFileSync(join(file.parentPath, file.name)).includes(MARK)).toBe(false);
    }
  });
});

async function historyOf(proofId: string): Promise<{ event: string }[]> {
  const certificate = `cert_${proofId}`;
  const [reply] = await getAll([`/api/public/certificate/${certificate}/history`]);
  return (reply!.body as { events: { event: string }[] }).events;
}

/** Requests a revocation whose reason contains NAME. */
async function request(proofId: string, artifactKind: ArtifactKind): Promise<string> {
  const requestId = uuidv7().replaceAll('-', '');
  const salt = randomBytes(32).toString('hex');
  const document = revocationReasonBytes({
    proof_id: proofId,
    artifact_kind: artifactKind,
    reason: `${NAME} asked`,
    actor: 'auditor',
    salt,
  });
  const reasonHash = nativeSha256(document);
  const { registry, keyNo } = world;
  const item = { requestId, keyNo, proofId, artifactKind, document, reasonHash };
  expect(await insertRevocationRequest(registry.engine, registry.tenantNo, item)).toMatchObject({
    outcome: 'stored',
  });
  return requestId;
}

const line = ['erase', 'tenant', TENANT, '--reason', 'CASE-1', '--confirm', TENANT];

const commit = (id: string): Promise<void> => commitRevocations(world.registry.admit, [id]);
const stateOf = (proofId: string, kind: ArtifactKind) =>
  revocationState(world.registry.engine, world.registry.tenantNo, proofId, kind);

describe('pending revocation', () => {
  it('keeps its reason and is appended when other reasons of its proof are erased', async () => {
    const [id = ''] = await world.admit(1);
    await commit(await request(id, 'certificate'));
    await eraseProof(db, id);
    await commit(await request(id, 'passport'));
    const waits = await request(id, 'trust');

    // One revocation was pending, so the command has to run again.
    expect(await admin(...line)).toMatchObject({ code: 1, json: { unsettled: 1 } });
    await commit(waits);
    expect(await stateOf(id, 'trust')).toMatchObject({ state: 'revoked' });
    expect(await admin(...line)).toMatchObject({ code: 0, json: { unsettled: 0 } });
    expect(await valuesHolding(db.sql, [NAME])).toEqual([]);
  });

  it('keeps its reason when it was requested while the erasure ran', async () => {
    const [id = ''] = await world.admit(1);
    const held = `select from svc.log_entry where proof_id = '${id}' for no key update`;
    const release = await holdLock(db.sql, held);
    const erasing = eraseProof(db, id);
    await untilWaiting(db.sql);
    const waits = await request(id, 'proof');
    await release();
    expect(await erasing).toMatchObject([{ isNew: true }]);
    await commit(waits);
    expect(await stateOf(id, 'proof')).toMatchObject({ state: 'revoked' });
  });
});

it('revocation reason that arrives during or after the erasure of its proof > is erased by the next erasure of its tenant, although a worker appended the revocation in between', async () => {
  const [id = ''] = await world.admit(1);
  await commit(await request(id, 'certificate'));
  const waits = await request(id, 'passport');
  await commit(await request(id, 'trust'));
  const held = 'select from svc.revocation_reason where document is not null for no key update';
  const release = await holdLock(db.sql, held);
  await commit(waits);
  const erasing = eraseProof(db, id);
  await untilWaiting(db.sql);
  await commit(await request(id, 'proof'));
  await release();
  expect(await erasing).toMatchObject([{ isNew: true }]);
  expect(await admin(...line)).toMatchObject({ code: 0, json: { unsettled: 0 } });
  expect(await valuesHolding(db.sql, [NAME])).toEqual([]);
});

it.each([
  ['passed before', false],
  ['failed before and was repaired', true],
])(
  'leaf that is erased after a scrubber read it > gets no pass verdict when it %s',
  async (_, isRepaired) => {
    const [id = ''] = await world.admit(1);
    const { verify } = world.registry;
    const flip = `update svc.intake set seed = set_byte(seed, 5, get_byte(seed, 5) # 1)
    where proof_id = '${id}'`;
    const outcome = async () => (await lastVerdict(id)).outcome;
    if (isRepaired) {
      await world.tamper(flip);
      await scrub(verify, 1_000);
      expect(await outcome()).toBe('fail');
      await world.tamper(flip);
    }
    let isRead = false;
    const readFirst = (tx: Transaction): Transaction =>
      new Proxy(tx, {
        apply: (target, self, given: [TemplateStringsArray]) => {
          const query = Reflect.apply(target, self, given) as Promise<unknown>;
          if (isRead || !given[0].join('').includes('num_nonnulls(i.request')) return query;
          isRead = true;
          return query.then(async (rows) => {
            await eraseProof(db, id);
            await scanExpiries(verify, 100);
            return rows;
          });
        },
      });
    const reserve = async (): Promise<Transaction> => readFirst(await verify.sql.reserve());
    await scrub({ ...verify, sql: { reserve } as Pool }, 1_000);
    expect(isRead).toBe(true);
    expect(await outcome()).toBe(isRepaired ? 'fail' : 'erased');
    await scrub(verify, 1_000);
    expect(await outcome()).toBe('erased');
  },
);
