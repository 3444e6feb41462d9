import { generateKeyPairSync, sign, verify as nodeVerify, createPublicKey } from 'node:crypto';
import { describe, expect } from 'vitest';
import { fromHex, toBase64Url } from '#protocol/bytes';
import { pae } from '#protocol/dsse';
import { entryBytes } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { AEP_PAYLOAD_TYPE } from '#protocol/schemas/aep';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptIntake } from '#sql/admissions/intake';
import { transaction } from '#sql/db/transaction';
import { appendKeyChange } from '#sql/lifecycle/signing-keys';
import { appendEntries, lockHead } from '#sql/log/append';
import { processAdmissions } from '#workers/admit/process';
import { forge, forgeExport, type ForgersKey } from '../../fixtures/forge.js';
import { allWays, byAep, checkOf } from '../../fixtures/verify-call.js';
import { engineTest, withSetup, type Setup, verdictOn } from './setup.js';

const NO_END = { proof: null, certificate: null, passport: null, trust: null };

const it = engineTest({ scopes: ['export', 'verify'] });

function newKey() {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const raw = new Uint8Array(publicKey.export({ format: 'der', type: 'spki' }).subarray(-32));
  return {
    publicKey: raw,
    keyId: jwkThumbprint(nativeSha256, raw),
    sign: (message: Uint8Array) => sign(null, message, privateKey),
  };
}

const changeKey = (
  { registry }: Setup,
  { keyId, publicKey }: ReturnType<typeof newKey>,
  change: { change: 'activate' | 'retire' | 'compromise'; fromIndex?: number },
) =>
  appendKeyChange(registry.admin, {
    keyId,
    publicKey: toBase64Url(publicKey),
    ...change,
  });

it('proof that is not in the registry > is NOT_FOUND even when another registry signed and logged it', async ({
  setup,
}) => {
  let foreign: ProofExport | undefined;
  await withSetup({}, async (other) => {
    foreign = await other.exported(await other.admitOne());
  });
  for (const body of allWays(foreign!)) {
    const verdict = await verdictOn(setup, body);
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

describe('signing key', () => {
  it('is looked up in the log, not in the submission', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    const own = newKey();
    for (const changes of [{}, { decision: { effect: 'ADMIT' as const, reasons: ['mine'] } }]) {
      const forged = forgeExport(document, own, changes);
      for (const body of [forged, byAep(forged)]) {
        const verdict = await verdictOn(setup, body);
        expect(verdict).toMatchObject({
          status: 'INVALID',
          cause: 'key_unknown',
          key: { key_id: own.keyId, source: 'log', state: 'unknown' },
        });
        expect(checkOf(verdict, 'signature')).toBe('fail');
      }
    }
  });

  it('does not make an AEP valid that is signed but is not in the log', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne('DELETE_AUDIT_LOG'));
    const admitting = {
      decision: { effect: 'ADMIT' as const, reasons: document.aep.decision.reasons },
      valid_until: NO_END,
    };
    const stolen = forgeExport(document, setup.registry.admit.signer, admitting);
    for (const body of [stolen, byAep(stolen)]) {
      const verdict = await verdictOn(setup, body);
      expect(verdict).toMatchObject({ status: 'INVALID', cause: 'altered' });
      expect(checkOf(verdict, 'signature')).toBe('pass');
      expect(checkOf(verdict, 'aep_hash')).toBe('fail');
    }
  });

  it('makes no proof valid that it signed after its retirement', async ({ setup }) => {
    const retired = newKey();
    await changeKey(setup, retired, { change: 'activate' });
    const earlier = await signedBy(setup, retired);
    const at = await changeKey(setup, retired, { change: 'retire' });
    const document = await setup.exported(await setup.admitOne());
    const verdict = await verdictOn(setup, byAep(forge(document.aep, retired)));
    expect(verdict).toMatchObject({
      status: 'INVALID',
      cause: 'key_retired',
      key: { state: 'retired', retired_at_index: at },
    });
    expect(checkOf(verdict, 'signing_key')).toBe('fail');
    // Signatures from before the retirement remain valid.
    expect(await verdictOn(setup, await setup.exported(earlier))).toMatchObject({
      status: 'VALID',
      key: { key_id: retired.keyId, state: 'active', retired_at_index: at },
    });
  });

  it('is rejected when it is of small order, even when it is in the log', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    // A is the neutral element, so [S]B = R + [k]A holds for S = 1, R = B and any message.
    const neutral = fromHex(`01${'00'.repeat(31)}`);
    const base = fromHex(`58${'66'.repeat(31)}`);
    const forger: ForgersKey = {
      publicKey: neutral,
      sign: () => Buffer.concat([base, Buffer.from([1]), Buffer.alloc(31)]),
    };
    const forged = forge(document.aep, forger);
    const spki = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), neutral]);
    expect(
      nodeVerify(
        null,
        pae(AEP_PAYLOAD_TYPE, Buffer.from(forged.envelope.payload, 'base64')),
        createPublicKey({ key: spki, format: 'der', type: 'spki' }),
        Buffer.from(forged.envelope.signatures[0].sig, 'base64'),
      ),
    ).toBe(true);

    const outside = await verdictOn(setup, byAep(forged));
    expect(outside).toMatchObject({ cause: 'key_small_order', key: { state: 'unknown' } });

    const keyId = jwkThumbprint(nativeSha256, neutral);
    await transaction(setup.db.sql, async (tx) => {
      const size = await lockHead(tx);
      const at = Date.now();
      const body = entryBytes({
        type: 'key',
        use: 'aep',
        key_id: keyId,
        public_key: toBase64Url(neutral),
        change: 'activate',
        time: formatTime(at),
      });
      await appendEntries(tx, size, [{ kind: 'key', at, body }]);
    });
    const later = await setup.exported(await setup.admitOne());
    const verdict = await verdictOn(setup, byAep(forge(later.aep, forger)));
    expect(verdict).toMatchObject({
      status: 'INVALID',
      cause: 'key_small_order',
      key: { key_id: keyId, state: 'unknown' },
    });
    expect(checkOf(verdict, 'signature')).toBe('fail');
  });

  /** Admits an action, whose proof the worker signs with `signer`. */
  async function signedBy({ registry }: Setup, signer: ReturnType<typeof newKey>): Promise<string> {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    await processAdmissions({ ...registry.admit, signer, keyId: signer.keyId }, [item.proofId]);
    return item.proofId;
  }
});
