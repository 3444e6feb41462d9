import { generateKeyPairSync, sign, verify as nodeVerify, createPublicKey } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fromHex, toBase64, toBase64Url } from '#protocol/bytes';
import { pae } from '#protocol/dsse';
import { smallOrderPublicKeys } from '#protocol/ed25519';
import { keyEntryBytes } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { AEP_PAYLOAD_TYPE } from '#protocol/schemas/proof-record';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { acceptIntake } from '#sql/admissions/accept';
import { appendKeyChange } from '#sql/lifecycle/entries';
import { appendLocked, lockHead } from '#sql/log/log';
import { transaction } from '#sql/db/transaction';
import { processAdmissions } from '#workers/admit/process';
import { testLog, type TestLog } from '../../fixtures/checkpoints.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { headersFor, issueKey, startEngine, type TestEngine } from '../../fixtures/engine.js';
import { forge, forgeExport, type ForgersKey } from '../../fixtures/forge.js';
import { admittedProof, exportedProof } from '../../fixtures/exported.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';
import { allWays, byAep, checkOf, postProof, verdictIn } from '../../fixtures/verify-call.js';

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

const post = (body: unknown, apiKey = key, tenant = TENANT) =>
  postProof(engine, body, apiKey, tenant);
const verdictOn = async (...asked: Parameters<typeof post>) => verdictIn(await post(...asked));

const admitOne = (action?: string) => admittedProof(registry, action);

const exported = (id: string) => exportedProof({ registry, log, engine, key }, id);

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

describe('unregistered proof', () => {
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

  it('is NOT_FOUND although it is genuine elsewhere', async () => {
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

  it('gets the same response as another tenant’s proof', async () => {
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

describe('signing key', () => {
  it('is taken from the log, not from the submission', async () => {
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

  it('does not verify another signature', async () => {
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

  it('does not validate another AEP that it signed', async () => {
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

  it('verifies nothing signed after its retirement', async () => {
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

  it('voids its proofs at once when compromised', async () => {
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

  it('is rejected when it is of small order, even in the log', async () => {
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

  it('cannot be activated when of small order or not canonical', async () => {
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
