import { describe, expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { proofViewSchema } from '#protocol/schemas/proof-view';
import type { VerdictStatement } from '#protocol/schemas/verdict';
import { appendKeyChange } from '#sql/lifecycle/signing-keys';
import { scrub } from '#workers/verify/scrub';
import { listAll } from '../../fixtures/proof-list.js';
import { byId, checkOf } from '../../fixtures/verify-call.js';
import { engineTest, verdictOn, type Setup } from './setup.js';

const NOTHING = 'BACKEND_LOOKUP_REQUIRED';
const FILTERS = ['VALID', 'REVOKED', 'EXPIRED', NOTHING];

const it = engineTest({ scopes: ['read', 'export', 'verify'] });

let setup: Setup;
/** The ids of a proof before the compromised range, and of two admissions, a denial and two revoked proofs in the range. */
let ids: Record<'before' | 'first' | 'last' | 'denied' | 'revoked' | 'trustRevoked', string>;
let validExport: ProofExport;
let compromisedFrom: number;

it.beforeAll(async ({ setup: own }) => {
  setup = own;
  const { registry } = setup;
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
  await setup.revoke(ids.revoked, 'proof');
  await setup.revoke(ids.trustRevoked, 'trust');
  await setup.publish();
  validExport = await exported(ids.last);
  expect(await statuses()).toMatchObject({
    list: { VALID: ['last', 'trustRevoked', 'denied', 'first', 'before'], [NOTHING]: [] },
  });
  compromisedFrom = (await view(ids.first)).leaf_index;
  await appendKeyChange(registry.admin, {
    keyId: registry.admit.keyId,
    publicKey: toBase64Url(registry.admit.signer.publicKey),
    change: 'compromise',
    fromIndex: compromisedFrom,
  });
});
const get = (path: string) => setup.get(`/v1/proofs/${path}`);
const view = async (id: string) => proofViewSchema.parse((await get(id)).json);
const exported = async (id: string) => proofExportSchema.parse((await get(`${id}/export`)).json);
const verified = (body: object) => verdictOn(setup, body);

const summary = ({ artifacts, can_assert_validity: asserts }: VerdictStatement) =>
  `${Object.values(artifacts).join(' ')} ${asserts}`;
const nameOf = (id: string) => Object.entries(ids).find(([, other]) => other === id)![0];

/** The statuses that the list (by filter), the proof view and the verify operation report. */
async function statuses() {
  const byStatus: Record<string, string[]> = {};
  for (const status of FILTERS) {
    const proofs = await listAll(setup.engine, { status, limit: '2' }, setup.key);
    expect(proofs.every((proof) => proof.verification_status === status)).toBe(true);
    byStatus[status] = proofs.map((proof) => nameOf(proof.proof_id));
  }
  const views: Record<string, string> = {};
  for (const proof of await listAll(setup.engine, {}, setup.key)) {
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
    const state = name === 'before' ? 'active' : 'compromised';
    expect(answer.key).toMatchObject({ state, compromised_from_index: compromisedFrom });
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
  it('are not asserted valid once the log contains the compromise', async () => {
    expect(await statuses()).toEqual(EXPECTED);
    // An export waits for the checkpoint that covers the compromise, as it does for a revocation.
    for (const format of ['json', 'pdf']) {
      const reply = await get(`${ids.last}/export?format=${format}`);
      expect(reply.json).toMatchObject({ code: 'pending_checkpoint' });
    }
  });

  it('have the same export before and after re-verification', async () => {
    await setup.publish();
    expect(await exportStatuses()).toEqual(EXPECTED.views);
    const early = await exported(ids.last);

    while ((await scrub(setup.registry.verify, 1000)).urgent);
    expect((await view(ids.last)).history.at(-1)).toMatchObject({ event: 'failed' });
    expect(await statuses()).toEqual(EXPECTED);
    expect(await exportStatuses()).toEqual(EXPECTED.views);
    for (const document of [validExport, early]) {
      expect(checkOf(await verified(document), 'submitted_verdict')).toBe('pass');
    }
  });
});
