import { generateKeyPairSync, sign, verify as nodeVerify, createPublicKey } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fromHex, toBase64, toBase64Url } from '#protocol/bytes';
import { pae } from '#protocol/dsse';
import { smallOrderPublicKeys } from '#protocol/ed25519';
import { keyEntryBytes } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import type { JsonValue } from '#protocol/json';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { AEP_PAYLOAD_TYPE } from '#protocol/schemas/proof-record';
import { VERIFY_CHECK_NAMES, verdictSchema, type Verdict } from '#protocol/schemas/verdict';
import { EFFECTS, STATUSES } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto';
import { createTenant, setAllowlisted, setValidity } from '#sql/administration';
import { acceptIntake } from '#sql/intake';
import { appendKeyChange, appendRevocation } from '#sql/lifecycle';
import { appendLocked, lockHead } from '#sql/log';
import { transaction } from '#sql/transaction';
import { processAdmissions } from '#workers/admit/process';
import { expire } from '#workers/verify/expire';
import { scrub } from '#workers/verify/scrub';
import { alterations } from './helpers/altered.js';
import { testLog, type TestLog } from './helpers/checkpoints.js';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import {
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
} from './helpers/engine.js';
import { forge, forgeExport, type ForgersKey } from './helpers/forge.js';
import { openRegistry, TENANT, type TestRegistry } from './helpers/registry.js';

const REQUEST = 'svc.verification.verify_request/1.0';
const NOBODYS = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
const NO_END = { proof: null, certificate: null, passport: null, trust: null };

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let log: TestLog;
let key: string;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  log = testLog(db);
  engine = await startEngine(registry, { logVkey: log.vkey });
  key = await issueKey(registry, { scopes: ['export', 'verify'] });
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

function post(body: unknown, apiKey = key, tenant = TENANT): Promise<Reply> {
  return engine.call({
    path: '/v1/proofs/verify',
    headers: headersFor(apiKey, tenant),
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

async function verdictOn(body: unknown, apiKey = key, tenant = TENANT): Promise<Verdict> {
  const reply = await post(body, apiKey, tenant);
  expect(reply.status, reply.bytes.toString()).toBe(200);
  const verdict = verdictSchema.parse(reply.json);
  expect(verdict.checks.map(({ name }) => name)).toEqual([...VERIFY_CHECK_NAMES]);
  expect(verdict.can_assert_validity).toBe(verdict.cause === null);
  return verdict;
}

function checkOf(verdict: Verdict, name: string): string | undefined {
  return verdict.checks.find((check) => check.name === name)?.result;
}

const WORDS = [STATUSES, EFFECTS, ['sandbox', 'live']];
const asJson = (document: unknown): JsonValue => document as JsonValue;

const byId = (proofId: string) => ({ schema_version: REQUEST, proof_id: proofId });
const byAep = ({ aep, envelope }: Pick<ProofExport, 'aep' | 'envelope'>) => ({
  schema_version: REQUEST,
  aep,
  envelope,
});
const allWays = (document: ProofExport) => [document, byAep(document), byId(document.proof_id)];

async function admitOne(action = 'BOOK_RESERVATION'): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item({ action })]);
  return id;
}

async function exported(id: string): Promise<ProofExport> {
  await registry.verifyAll();
  await log.publish();
  const reply = await engine.call({
    method: 'GET',
    path: `/v1/proofs/${id}/export`,
    headers: headersFor(key),
  });
  return proofExportSchema.parse(reply.json);
}

async function revoke(proofId: string, artifactKind: 'proof' | 'certificate' | 'trust') {
  await appendRevocation(registry.admin, nativeSha256, {
    proofId,
    artifactKind,
    reason: 'test',
    actor: 'test',
    salt: '11'.repeat(32),
  });
}

function newKey(): ForgersKey & { keyId: string; publicKeyText: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const raw = new Uint8Array(publicKey.export({ format: 'der', type: 'spki' }).subarray(-32));
  return {
    publicKey: raw,
    keyId: jwkThumbprint(nativeSha256, raw),
    publicKeyText: toBase64Url(raw),
    sign: (message) => sign(null, message, privateKey),
  };
}

describe('POST /v1/proofs/verify', () => {
  it.each(['BOOK_RESERVATION', 'DELETE_AUDIT_LOG'])(
    'finds a proof of %s valid, however it is sent in',
    async (action) => {
      const document = await exported(await admitOne(action));
      for (const body of allWays(document)) {
        const verdict = await verdictOn(body);
        expect(verdict).toMatchObject({
          proof_id: document.proof_id,
          status: 'VALID',
          can_assert_validity: true,
          cause: null,
          key: {
            key_id: document.aep.key_id,
            source: 'log',
            state: 'active',
            activated_at_index: 0,
          },
          verdict: document.verdict,
        });
        expect(verdict.checks.filter(({ result }) => result === 'fail')).toEqual([]);
      }
      const whole = await verdictOn(document);
      expect(new Set(whole.checks.map(({ result }) => result))).toEqual(new Set(['pass']));
    },
  );

  it('notices any one change in an export', async () => {
    const id = await admitOne();
    await admitOne('DELETE_AUDIT_LOG');
    await revoke(id, 'certificate');
    const document = await exported(id);
    expect((await verdictOn(document)).status).toBe('VALID');
    expect(document.inclusion.path.length).toBeGreaterThan(1);
    let noticed = 0;
    let judged = 0;
    for (const { what, document: altered } of alterations(asJson(document), WORDS)) {
      const reply = await post(altered);
      noticed += 1;
      if (reply.status === 400) {
        expect(reply.json['code'], what).toMatch(/_field|_schema_version|malformed_request/);
        continue;
      }
      expect(reply.status, `${what}: ${reply.bytes.toString()}`).toBe(200);
      const verdict = verdictSchema.parse(reply.json);
      expect(verdict.can_assert_validity, what).toBe(false);
      expect(verdict.cause, what).not.toBeNull();
      judged += 1;
    }
    expect(noticed).toBeGreaterThan(400);
    expect(judged).toBeGreaterThan(140);
  });

  it('notices any one change in an AEP or its envelope', async () => {
    const body = byAep(await exported(await admitOne()));
    expect((await verdictOn(body)).status).toBe('VALID');
    for (const { what, document: altered } of alterations(asJson(body), WORDS)) {
      const reply = await post(altered);
      expect([200, 400], what).toContain(reply.status);
      if (reply.status === 200) expect(reply.json['can_assert_validity'], what).toBe(false);
    }
  });

  it('does not take the word of an older export for what is revoked since', async () => {
    const before = await exported(await admitOne());
    await revoke(before.proof_id, 'proof');
    for (const body of allWays(before)) {
      const verdict = await verdictOn(body);
      expect(verdict).toMatchObject({
        status: 'REVOKED',
        cause: 'revoked',
        verdict: { verification_status: 'REVOKED', artifacts: { trust: 'REVOKED' } },
      });
      expect(checkOf(verdict, 'submitted_verdict')).not.toBe('fail');
      expect(checkOf(verdict, 'not_revoked')).toBe('fail');
    }
    // What the registry said before the revocation it cannot have said under a log that has it.
    const after = await exported(before.proof_id);
    const lied = { ...after, verdict: { ...before.verdict, log_size: after.verdict.log_size } };
    const verdict = await verdictOn(lied);
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'altered' });
    expect(checkOf(verdict, 'submitted_verdict')).toBe('fail');
  });

  it('accepts no statement that leaves out a revocation which its verdict has seen', async () => {
    const id = await admitOne();
    await revoke(id, 'trust');
    const document = await exported(id);
    expect(document.verdict.artifacts.trust).toBe('REVOKED');
    const verdict = await verdictOn({
      ...document,
      verdict: {
        ...document.verdict,
        artifacts: { ...document.verdict.artifacts, trust: 'TRUST_ESTABLISHED' },
      },
    });
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'altered' });
  });

  it('says when the validity is over', async () => {
    await setValidity(registry.admin, TENANT, { ...NO_END, proof: 3600 });
    const document = await exported(await admitOne());
    await setValidity(registry.admin, TENANT, NO_END);
    expect((await verdictOn(document)).status).toBe('VALID');
    await db.sql`update svc.expiry set expires_at = now()`;
    await expire(registry.verify, 100);
    for (const body of allWays(document)) {
      const verdict = await verdictOn(body);
      expect(verdict).toMatchObject({ status: 'EXPIRED', cause: 'expired' });
      expect(checkOf(verdict, 'not_expired')).toBe('fail');
    }
    expect((await verdictOn(await exported(document.proof_id))).status).toBe('EXPIRED');
  });

  it('says when nobody has verified it yet', async () => {
    const verdict = await verdictOn(byId(await admitOne()));
    expect(verdict).toMatchObject({
      status: 'INVALID',
      cause: 'not_verified_yet',
      verdict: { verification_status: 'BACKEND_LOOKUP_REQUIRED', verified_at: null },
    });
    expect(checkOf(verdict, 'inclusion')).toBe('not_applicable');
    expect(checkOf(verdict, 'verdict')).toBe('not_applicable');
    expect(checkOf(verdict, 'signature')).toBe('pass');
  });

  it('says when the verification system found it wrong', async () => {
    const document = await exported(await admitOne());
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.proof set effect = 'DENY'
        where replace(proof_id::text, '-', '') = ${document.proof_id}`;
    });
    await scrub(registry.verify, 10_000);
    const verdict = await verdictOn(byId(document.proof_id));
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
    expect(verdict.checks.find(({ name }) => name === 'verdict')?.detail).toMatch(
      'published_columns',
    );
  });

  it('checks stored bytes itself, whatever the last verdict on them was', async () => {
    const document = await exported(await admitOne());
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.intake set request = '{}'
        where replace(proof_id::text, '-', '') = ${document.proof_id}`;
    });
    const verdict = await verdictOn(document);
    expect(verdict).toMatchObject({ status: 'INVALID', cause: 'failed_verification' });
    expect(checkOf(verdict, 'request_hash')).toBe('fail');
    expect(checkOf(verdict, 'verdict')).toBe('pass');
  });
});

describe('a proof that is not here', () => {
  let elsewhere: TestDatabase;
  let foreign: ProofExport;

  beforeAll(async () => {
    elsewhere = await freshDatabase();
    const other = await openRegistry(elsewhere);
    const otherLog = testLog(elsewhere, 'elsewhere.example/log');
    const otherEngine = await startEngine(other, { logVkey: otherLog.vkey });
    const [id = ''] = await other.admitAll([other.item()]);
    await other.verifyAll();
    await otherLog.publish();
    const reply = await otherEngine.call({
      method: 'GET',
      path: `/v1/proofs/${id}/export`,
      headers: headersFor(await issueKey(other, { scopes: ['export'] })),
    });
    foreign = proofExportSchema.parse(reply.json);
    await otherEngine.close();
  });
  afterAll(() => elsewhere.drop());

  it('is not found, though it is genuine elsewhere', async () => {
    for (const body of allWays(foreign)) {
      const verdict = await verdictOn(body);
      expect(verdict).toMatchObject({
        status: 'NOT_FOUND',
        cause: 'not_in_registry',
        verdict: null,
      });
      expect(checkOf(verdict, 'registered')).toBe('fail');
      if ('proof_id' in body && !('inclusion' in body)) expect(verdict.key).toBeNull();
      else expect(verdict.key).toMatchObject({ state: 'unknown', activated_at_index: null });
    }
  });

  it('is answered alike whether another tenant has it or nobody', async () => {
    const mine = await exported(await admitOne());
    await createTenant(registry.admin, { tenantId: 'rival', environment: 'sandbox' });
    await setAllowlisted(registry.admin, 'rival', true);
    const rival = await issueKey(registry, { tenantId: 'rival', scopes: ['verify'] });
    const neverId = mine.proof_id.slice(0, -1) + (mine.proof_id.endsWith('0') ? '1' : '0');
    // As genuine as can be: signed by the service's own key, and in no log.
    const never = forgeExport(mine, registry.admit.signer, {
      proof_id: neverId,
      execution_id: `exec_${neverId}`,
    });
    const [theirs, nobodys] = [allWays(mine), allWays(never)];
    for (const [i, body] of theirs.entries()) {
      const one = await verdictOn(body, rival, 'rival');
      const other = await verdictOn(nobodys[i], rival, 'rival');
      expect(one).toMatchObject({ status: 'NOT_FOUND', cause: 'not_in_registry' });
      expect({ ...one, proof_id: '' }).toEqual({ ...other, proof_id: '' });
      expect(checkOf(one, 'signature')).toBe('not_applicable');
    }
  });
});

describe('the signing key', () => {
  it('is the one in the log, whatever the submission brings along', async () => {
    const document = await exported(await admitOne());
    const own = newKey();
    for (const changes of [{}, { decision: { effect: 'ADMIT' as const, reasons: ['mine'] } }]) {
      const forged = forgeExport(document, own, changes);
      for (const body of [forged, byAep(forged)]) {
        const verdict = await verdictOn(body);
        expect(verdict).toMatchObject({
          status: 'INVALID',
          cause: 'key_unknown',
          key: { key_id: own.keyId, source: 'log', state: 'unknown' },
        });
        expect(checkOf(verdict, 'signature')).toBe('fail');
      }
    }
  });

  it('does not verify what it did not sign', async () => {
    const document = await exported(await admitOne());
    const sig = Buffer.from(document.envelope.signatures[0].sig, 'base64');
    sig[3]! ^= 1;
    const signature = { keyid: document.aep.key_id, sig: toBase64(sig) };
    const envelope = { ...document.envelope, signatures: [signature] as [typeof signature] };
    for (const body of [byAep({ ...document, envelope }), { ...document, envelope }]) {
      const verdict = await verdictOn(body);
      expect(verdict).toMatchObject({ status: 'INVALID', cause: 'bad_signature' });
      expect(checkOf(verdict, 'signature')).toBe('fail');
    }
  });

  it('does not make what it signed later the proof that was logged', async () => {
    const document = await exported(await admitOne('DELETE_AUDIT_LOG'));
    const admitting = {
      decision: { effect: 'ADMIT' as const, reasons: document.aep.decision.reasons },
      valid_until: NO_END,
    };
    const stolen = forgeExport(document, registry.admit.signer, admitting);
    for (const body of [stolen, byAep(stolen)]) {
      const verdict = await verdictOn(body);
      expect(verdict).toMatchObject({ status: 'INVALID', cause: 'altered' });
      expect(checkOf(verdict, 'signature')).toBe('pass');
      expect(checkOf(verdict, 'aep_hash')).toBe('fail');
    }
  });

  it('counts for nothing once it is retired', async () => {
    const retired = newKey();
    const change = { keyId: retired.keyId, publicKey: retired.publicKeyText };
    await appendKeyChange(registry.admin, nativeSha256, { ...change, change: 'activate' });
    const earlier = await signedBy(retired);
    const at = await appendKeyChange(registry.admin, nativeSha256, { ...change, change: 'retire' });
    const document = await exported(await admitOne());
    const verdict = await verdictOn(byAep(forge(document.aep, retired)));
    expect(verdict).toMatchObject({
      status: 'INVALID',
      cause: 'key_retired',
      key: { state: 'retired', retired_at_index: at },
    });
    expect(checkOf(verdict, 'signing_key')).toBe('fail');
    // What it signed while it was active stays what it is.
    expect(await verdictOn(await exported(earlier))).toMatchObject({
      status: 'VALID',
      key: { key_id: retired.keyId, state: 'active', retired_at_index: at },
    });
  });

  it('takes its proofs with it when it is compromised, at once', async () => {
    const lost = newKey();
    const change = { keyId: lost.keyId, publicKey: lost.publicKeyText };
    await appendKeyChange(registry.admin, nativeSha256, { ...change, change: 'activate' });
    const kept = await exported(await signedBy(lost));
    const document = await exported(await signedBy(lost));
    expect((await verdictOn(document)).status).toBe('VALID');
    const from = document.inclusion.leaf_index;
    await appendKeyChange(registry.admin, nativeSha256, {
      ...change,
      change: 'compromise',
      fromIndex: from,
    });
    for (const body of allWays(document)) {
      expect(await verdictOn(body)).toMatchObject({
        status: 'INVALID',
        cause: 'key_compromised',
        key: { state: 'compromised', compromised_from_index: from },
      });
    }
    expect((await verdictOn(kept)).status).toBe('VALID');
  });

  it('is never one of small order, were it in the log', async () => {
    const document = await exported(await admitOne());
    // A is the neutral element, so [S]B = R + [k]A holds for S = 1, R = B and any message.
    const neutral = fromHex(`01${'00'.repeat(31)}`);
    const base = fromHex(`58${'66'.repeat(31)}`);
    const anybody: ForgersKey = {
      publicKey: neutral,
      sign: () => Buffer.concat([base, Buffer.from([1]), Buffer.alloc(31)]),
    };
    const forged = forge(document.aep, anybody);
    const spki = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), neutral]);
    expect(
      nodeVerify(
        null,
        pae(AEP_PAYLOAD_TYPE, Buffer.from(forged.envelope.payload, 'base64')),
        createPublicKey({ key: spki, format: 'der', type: 'spki' }),
        Buffer.from(forged.envelope.signatures[0].sig, 'base64'),
      ),
    ).toBe(true);

    const outside = await verdictOn(byAep(forged));
    expect(outside).toMatchObject({ cause: 'key_small_order', key: { state: 'unknown' } });

    const keyId = jwkThumbprint(nativeSha256, neutral);
    await transaction(db.sql, async (tx) => {
      const size = await lockHead(tx);
      const at = Date.now();
      const body = keyEntryBytes({
        key_id: keyId,
        public_key: toBase64Url(neutral),
        change: 'activate',
        time: formatTime(at),
      });
      await appendLocked(tx, nativeSha256, size, [{ kind: 'key', at, body }]);
    });
    const later = await exported(await admitOne());
    const verdict = await verdictOn(byAep(forge(later.aep, anybody)));
    expect(verdict).toMatchObject({
      status: 'INVALID',
      cause: 'key_small_order',
      key: { key_id: keyId, state: 'active' },
    });
    expect(checkOf(verdict, 'signature')).toBe('fail');
  });

  it('cannot be activated when it is of small order or not canonical', async () => {
    expect(smallOrderPublicKeys()).toHaveLength(14);
    for (const publicKey of smallOrderPublicKeys()) {
      await expect(
        appendKeyChange(registry.admin, nativeSha256, {
          keyId: jwkThumbprint(nativeSha256, publicKey),
          publicKey: toBase64Url(publicKey),
          change: 'activate',
        }),
      ).rejects.toThrow(/small order/);
    }
  });

  /** A proof that the worker signs under another key. */
  async function signedBy(signer: ReturnType<typeof newKey>): Promise<string> {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    await processAdmissions({ ...registry.admit, signer, keyId: signer.keyId }, [item.proofId]);
    return item.proofId;
  }
});

describe('what is no submission', () => {
  it.each([
    ['nothing', { schema_version: REQUEST }, 'invalid_field'],
    ['an AEP alone', { schema_version: REQUEST, aep: {} }, 'missing_field'],
    ['an id that is none', { schema_version: REQUEST, proof_id: 'x' }, 'invalid_field'],
    ['another version', { schema_version: `${REQUEST}1` }, 'unsupported_schema_version'],
    ['a key of its own', { schema_version: REQUEST, proof_id: 'x', keys: [] }, 'unknown_field'],
  ])('is refused: %s', async (_, body, code) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(reply.json['code']).toBe(code);
  });

  it('is refused when an id comes with an AEP', async () => {
    const document = await exported(await admitOne());
    const reply = await post({ ...byAep(document), proof_id: document.proof_id });
    expect(reply.status).toBe(400);
  });

  it('may be as long as an export can get, and no longer', async () => {
    const body = JSON.stringify(byId(NOBODYS));
    const most = await post(body + ' '.repeat(256 * 1024 - body.length));
    expect(most.status).toBe(200);
    const more = await post(body + ' '.repeat(256 * 1024 - body.length + 1));
    expect(more.status).toBe(413);
    expect(more.json['code']).toBe('body_too_large');
  });

  it('needs the scope', async () => {
    const reader = await issueKey(registry, { scopes: ['admit', 'read', 'export'] });
    const reply = await post(byId(NOBODYS), reader);
    expect(reply.status).toBe(403);
    expect(reply.json['code']).toBe('scope_missing');
  });
});
