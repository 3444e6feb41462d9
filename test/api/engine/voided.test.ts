import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { proofViewSchema } from '#protocol/schemas/proof-view';
import type { VerdictStatement } from '#protocol/schemas/verdict';
import type { ArtifactKind } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendKeyChange, appendRevocation } from '#sql/lifecycle/entries';
import { scrub } from '#workers/verify/scrub';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { headersFor, issueKey, startEngine, type TestEngine } from '../../fixtures/engine.js';
import { listAll } from '../../fixtures/proof-list.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';
import { byId, checkOf, postProof, verdictIn } from '../../fixtures/verify-call.js';

const NOTHING = 'BACKEND_LOOKUP_REQUIRED';
const FILTERS = ['VALID', 'REVOKED', 'EXPIRED', NOTHING];

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let log: TestLog;
let key: string;
/** Below the compromised range, then in it: two admissions, a denial, two with a revocation. */
let ids: Record<'before' | 'first' | 'last' | 'denied' | 'revoked' | 'trustRevoked', string>;
let validExport: ProofExport;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  log = testLog(db);
  engine = await startEngine(registry, { logVkey: log.vkey });
  key = await issueKey(registry, { scopes: ['read', 'export', 'verify'] });
  const admit = async (fixture: string, action = 'BOOK_RESERVATION') =>
    (await registry.admitAll([registry.item({ action, proof_chain_fixture_ref: fixture })]))[0]!;
  ids = {
    before: await admit('before'),
    first: await admit('first'),
    denied: await admit('denied', 'DELETE_AUDIT_LOG'),
    revoked: await admit('revoked'),
    trustRevoked: await admit('trust-revoked'),
    last: await admit('last'),
  };
  await revoke(ids.revoked, 'proof');
  await revoke(ids.trustRevoked, 'trust');
  await registry.verifyAll();
  await log.publish();
  validExport = await exported(ids.last);
  expect(await statuses()).toMatchObject({
    list: { VALID: ['last', 'trustRevoked', 'denied', 'first', 'before'], [NOTHING]: [] },
  });
  await appendKeyChange(registry.admin, nativeSha256, {
    keyId: registry.admit.keyId,
    publicKey: toBase64Url(registry.admit.signer.publicKey),
    change: 'compromise',
    fromIndex: (await view(ids.first)).leaf_index,
  });
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

const revoke = (proofId: string, artifactKind: ArtifactKind) =>
  appendRevocation(registry.admin, nativeSha256, {
    proofId,
    artifactKind,
    reason: 'withdrawn',
    actor: 'operator',
    salt: 'ab'.repeat(32),
  });

const get = (path: string) =>
  engine.call({ method: 'GET', path: `/v1/proofs/${path}`, headers: headersFor(key) });
const view = async (id: string) => proofViewSchema.parse((await get(id)).json);
const exported = async (id: string) => proofExportSchema.parse((await get(`${id}/export`)).json);
const verified = async (body: unknown) => verdictIn(await postProof(engine, body, key, TENANT));

const summary = ({ artifacts, can_assert_validity: asserts }: VerdictStatement) =>
  `${Object.values(artifacts).join(' ')} ${asserts}`;
const nameOf = (id: string) => Object.entries(ids).find(([, other]) => other === id)![0];

/** What each operation reports: the list by filter, the view and the verdict by proof. */
async function statuses() {
  const byStatus: Record<string, string[]> = {};
  for (const status of FILTERS) {
    const proofs = await listAll(engine, { status, limit: '2' }, key);
    expect(proofs.every((proof) => proof.verification_status === status)).toBe(true);
    byStatus[status] = proofs.map((proof) => nameOf(proof.proof_id));
  }
  const views: Record<string, string> = {};
  for (const proof of await listAll(engine, {}, key)) {
    const { verdict } = await view(proof.proof_id);
    expect(proof.verification_status).toBe(verdict.verification_status);
    expect(proof.can_assert_validity).toBe(verdict.can_assert_validity);
    expect((await verified(byId(proof.proof_id))).verdict).toEqual(verdict);
    views[nameOf(proof.proof_id)] = summary(verdict);
  }
  return { list: byStatus, views };
}

async function exportStatuses() {
  const found: Record<string, string> = {};
  for (const [name, id] of Object.entries(ids)) {
    const document = await exported(id);
    expect(document.verdict).toEqual((await view(id)).verdict);
    const answer = await verified(document);
    expect(answer.cause).toBe(name === 'before' ? null : 'key_compromised');
    expect(checkOf(answer, 'submitted_verdict')).toBe('pass');
    expect(checkOf(answer, 'verdict')).toBe(name === 'before' ? 'pass' : 'fail');
    found[name] = summary(document.verdict);
  }
  return found;
}

const VOIDED = `${NOTHING} ${NOTHING} ${NOTHING} ${NOTHING} false`;
const EXPECTED = {
  list: {
    VALID: ['before'],
    REVOKED: ['revoked'],
    EXPIRED: [],
    [NOTHING]: ['last', 'trustRevoked', 'denied', 'first'],
  },
  views: {
    before: 'VALID PASS VERIFIED TRUST_ESTABLISHED true',
    first: VOIDED,
    denied: VOIDED,
    revoked: 'REVOKED REVOKED REVOKED REVOKED false',
    trustRevoked: `${NOTHING} ${NOTHING} ${NOTHING} REVOKED false`,
    last: VOIDED,
  },
};

describe('proofs of a compromised key', () => {
  it('are not asserted once the log has the compromise', async () => {
    expect(await statuses()).toEqual(EXPECTED);
    // As with a revocation, an export waits for the checkpoint that covers the entry.
    for (const format of ['json', 'pdf']) {
      const reply = await get(`${ids.last}/export?format=${format}`);
      expect(reply.json).toMatchObject({ code: 'pending_checkpoint' });
    }
  });

  it('export the same before and after re-verification', async () => {
    await registry.verifyAll();
    await log.publish();
    expect(await exportStatuses()).toEqual(EXPECTED.views);
    const early = await exported(ids.last);

    while ((await scrub(registry.verify, 1000)).urgent);
    expect((await view(ids.last)).history.at(-1)).toMatchObject({ event: 'failed' });
    expect(await statuses()).toEqual(EXPECTED);
    expect(await exportStatuses()).toEqual(EXPECTED.views);
    for (const document of [validExport, early]) {
      expect(checkOf(await verified(document), 'submitted_verdict')).toBe('pass');
    }
  });
});
