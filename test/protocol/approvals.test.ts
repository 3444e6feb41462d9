import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { expect, it } from 'vitest';
import {
  approvalToSign,
  registrationToSign,
  verifyApproval,
  verifyRegistration,
  type ApprovalEvidence,
  isActiveApprover,
  secondDecisionFault,
} from '#protocol/approvals';
import { fromBase64Url, toBase64Url, utf8 } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import { fromDer, isOnP256, p256Verify } from '#protocol/p256';
import {
  type Approval,
  approvalSchema,
  type ApproverKey,
  type ApproverSignature,
  type Registration,
  registrationSchema,
} from '#protocol/schemas/approvals';
import {
  nativeSha256 as sha256,
  nativeVerify,
  nativeVerifyP256,
  nativeCrypto,
} from '#runtime/crypto/node';
import type { Aep } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import { newApprover } from '../fixtures/approvals.js';
import { admitted, denied } from '../fixtures/worked-log.js';
import log from '../../protocol/vectors/full-log.json' with { type: 'json' };

const crypto = { sha256, verify: nativeVerify, verifyP256: p256Verify };
const registrations = log.registrations.map((one) => registrationSchema.parse(one));
const approvals = log.approvals.map(({ envelope }) => approvalSchema.parse(envelope));

it('registrations and approvals of the Python implementation verify', () => {
  expect(registrations.map((one) => verifyRegistration(crypto, one))).toEqual([true, true]);
  approvals.forEach((approval, i) => {
    expect(documentHash(sha256, approval)).toBe(log.approvals[i]!.approval_hash);
    expect(verifyApproval(crypto, approval, registrations[i]!)).toBe(true);
  });
});

interface Assertion {
  clientData: Record<string, unknown>;
  authenticatorData: Buffer;
}

/** An approver with a passkey, whose assertions `alter` changes before they are signed. */
function passkey(kind: 'ec' | 'ed25519', alter: (assertion: Assertion) => void = () => undefined) {
  const { privateKey, publicKey } =
    kind === 'ec'
      ? generateKeyPairSync('ec', { namedCurve: 'P-256' })
      : generateKeyPairSync('ed25519');
  const signed = (message: Uint8Array): ApproverSignature => {
    const assertion: Assertion = {
      clientData: {
        type: 'webauthn.get',
        challenge: toBase64Url(sha256(message)),
        origin: 'https://approve.example',
        crossOrigin: false,
      },
      authenticatorData: Buffer.concat([
        sha256(utf8('approve.example')),
        Buffer.from('0500000000', 'hex'),
      ]),
    };
    alter(assertion);
    const clientData = utf8(JSON.stringify(assertion.clientData));
    const covered = Buffer.concat([assertion.authenticatorData, sha256(clientData)]);
    return {
      type: 'webauthn',
      authenticator_data: toBase64Url(assertion.authenticatorData),
      client_data_json: toBase64Url(clientData),
      sig: toBase64Url(signatureOf(privateKey, covered)),
    };
  };
  return { signed, key: publicKey.export({ format: 'jwk' }) as ApproverKey };
}

const signatureOf = (key: KeyObject, message: Uint8Array): Buffer =>
  sign(key.asymmetricKeyType === 'ec' ? 'sha256' : null, message, key);

interface Signer {
  key: ApproverKey;
  signed: (message: Uint8Array) => ApproverSignature;
}

function signedWith(
  { signed, key }: Signer,
  others: Partial<Approval['statement']> = {},
): [Approval, Registration] {
  const unsigned = { ...registrations[0]!, public_key: key } as Partial<Registration>;
  delete unsigned.signature;
  const registration = registrationSchema.parse({
    ...unsigned,
    signature: signed(registrationToSign(unsigned as Registration)),
  });
  const statement = {
    ...approvals[0]!.statement,
    registration_hash: documentHash(sha256, registration),
    ...others,
  };
  const signature = signed(approvalToSign(statement));
  return [approvalSchema.parse({ ...approvals[0], statement, signature }), registration];
}

it.each(['ec', 'ed25519'] as const)('an approval by a passkey verifies: %s', (kind) => {
  const [approval, registration] = signedWith(passkey(kind));
  expect(verifyRegistration(crypto, registration)).toBe(true);
  expect(verifyApproval(crypto, approval, registration)).toBe(true);
});

const ASSERTIONS: Record<string, (assertion: Assertion) => void> = {
  'no origin': ({ clientData }) => delete clientData['origin'],
  'short authenticator data': (assertion) =>
    (assertion.authenticatorData = assertion.authenticatorData.subarray(0, 36)),
};

it.each(Object.entries(ASSERTIONS))('a signed assertion with %s does not verify', (_, alter) => {
  const [approval, registration] = signedWith(passkey('ec', alter));
  expect(verifyRegistration(crypto, registration)).toBe(false);
  expect(verifyApproval(crypto, approval, registration)).toBe(false);
});

it('an approval or registration whose form differs from the form that the registration states is rejected', () => {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const plain: Signer = {
    key: publicKey.export({ format: 'jwk' }) as ApproverKey,
    signed: (message) => ({ type: 'ed25519', sig: toBase64Url(sign(null, message, privateKey)) }),
  };
  const [approval, registration] = signedWith(plain);
  expect(verifyRegistration(crypto, registration)).toBe(false);
  expect(verifyApproval(crypto, approval, registration)).toBe(false);
  const unbound = { ...registrations[0]!, webauthn: null };
  expect(verifyRegistration(crypto, unbound)).toBe(false);
  expect(registrationSchema.safeParse(unbound).success).toBe(false);
});

it('a key that is not on the curve, and a signature that is not in DER, are rejected', () => {
  const { public_key, signature } = registrations[0]! as Registration & {
    public_key: { kty: 'EC' };
  };
  const [x, y] = [fromBase64Url(public_key.x), fromBase64Url(public_key.y)];
  expect(isOnP256({ x, y })).toBe(true);
  // The check must not rely on the signature verifier, which may accept a point that is not on the curve.
  const [, passkeyed] = signedWith({
    ...passkey('ec'),
    key: { ...public_key, x: public_key.y, y: public_key.x },
  });
  expect(verifyRegistration({ ...crypto, verifyP256: () => true }, passkeyed)).toBe(false);
  expect(isOnP256({ x: y, y: x })).toBe(false);
  const der = fromBase64Url(signature.sig);
  expect(fromDer(der)).toHaveLength(64);
  const long = Uint8Array.from([...der, 0]);
  const longer = Uint8Array.from([0x30, der[1]! + 1, ...der.subarray(2), 0]);
  // An integer with a needless leading zero byte, and a negative integer.
  const padded = Uint8Array.of(0x30, 7, 2, 2, 0, 1, 2, 1, 1);
  const negative = Uint8Array.of(0x30, 6, 2, 1, 0x81, 2, 1, 1);
  for (const one of [long, longer, padded, negative, der.subarray(0, -1), new Uint8Array()]) {
    expect(fromDer(one)).toBeNull();
  }
});

const N = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
const bytesOf = (value: bigint) => Buffer.from(value.toString(16).padStart(64, '0'), 'hex');
const numberIn = (bytes: Uint8Array) => BigInt(`0x${Buffer.from(bytes).toString('hex')}`);

it('p256Verify agrees with OpenSSL', () => {
  for (let round = 0; round < 12; round++) {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const jwk = publicKey.export({ format: 'jwk' }) as { x: string; y: string };
    const key = { x: fromBase64Url(jwk.x), y: fromBase64Url(jwk.y) };
    const message = utf8(`message ${round}`);
    const good = sign('sha256', message, { key: privateKey, dsaEncoding: 'ieee-p1363' });
    const [r, s] = [numberIn(good.subarray(0, 32)), numberIn(good.subarray(32))];
    const odd: [bigint, bigint][] = [
      [r, N - s],
      [r, (s + 1n) % N],
      [s, r],
      [0n, s],
      [r, 0n],
      [N, s],
      [r, N],
      [numberIn(sha256(message)) % N, 1n],
      [1n, 1n],
    ];
    for (const signature of [good, ...odd.map((pair) => Buffer.concat(pair.map(bytesOf)))]) {
      const expected = nativeVerifyP256(key, message, signature);
      expect(p256Verify(key, message, signature)).toBe(expected);
      expect(expected).toBe(signature === good || numberIn(signature.subarray(32)) === N - s);
    }
    expect(p256Verify(key, utf8('other'), good)).toBe(false);
    expect(p256Verify(key, message, good.subarray(1))).toBe(false);
    expect(p256Verify({ x: key.y, y: key.x }, message, good)).toBe(false);
  }
});

const TENANT = admitted.aep.tenant_id;
const approver = newApprover(TENANT);
const pending = {
  proofId: denied.proofId,
  tenantId: TENANT,
  effect: 'REQUIRE_APPROVAL' as const,
  aepHash: denied.record.aep_hash,
  reasons: ['hold'],
  leafIndex: 2,
};
const about = { proof_id: pending.proofId, aep_hash: pending.aepHash };
const LATER = '2026-11-20T17:30:00.000Z';
const LEAF = 3;

/** A second decision as a worker could have signed it. */
function second({ by = approver, statement = {}, aep = {} } = {}) {
  const envelope = by.approve(about, { expires_at: LATER, ...statement });
  const stored = { envelope, registration: by.registration, reasons: pending.reasons };
  const evidence: ApprovalEvidence = {
    stored,
    pending,
    isActive: true,
    isSame: true,
    isOnly: true,
  };
  const approval = {
    pending_proof_id: pending.proofId,
    approval_hash: documentHash(nativeCrypto.sha256, envelope),
    registration_hash: documentHash(nativeCrypto.sha256, by.registration),
  };
  const signed: Aep = {
    ...admitted.aep,
    evidence: { ...admitted.aep.evidence, approval },
    ...aep,
  };
  return { signed, evidence };
}

const faultOf = (
  { signed, evidence }: ReturnType<typeof second>,
  changes: Partial<ApprovalEvidence> = {},
) => secondDecisionFault(nativeCrypto, signed, LEAF, { ...evidence, ...changes });

const DENIED = { effect: 'DENY' as const, reasons: ['hold'] };
const REJECT = { decision: 'reject' } as const;

it('secondDecisionFault accepts second decisions that an approval or a rejection caused', () => {
  expect(faultOf(second())).toBeNull();
  expect(faultOf(second({ statement: REJECT, aep: { decision: DENIED } }))).toBeNull();
  // Once the pending payload is erased, request and reasons cannot be compared.
  const erased = { pending: { ...pending, reasons: null }, isSame: null };
  expect(faultOf(second(), erased)).toBeNull();
});

it.each<[boolean, ...(readonly [at: number, 'activate' | 'retire'])[]]>([
  [false],
  [true, [2, 'activate']],
  [false, [LEAF, 'activate']],
  [false, [1, 'activate'], [2, 'retire']],
  [true, [1, 'activate'], [LEAF, 'retire']],
])('isActiveApprover returns %s after these changes: %j', (active, ...changes) => {
  const entries = changes.map(([leafIndex, change]) => ({
    leafIndex,
    entry: approverEntry(change),
  }));
  expect(isActiveApprover(entries, approver.registrationHash, LEAF)).toBe(active);
});

const approverEntry = (change: 'activate' | 'retire') => ({
  schema_version: SCHEMA.logEntry,
  type: 'key' as const,
  use: 'approver' as const,
  registration_hash: approver.registrationHash,
  change,
  time: LATER,
});

const alteredKey = newApprover(TENANT);
alteredKey.registration.salt = '0'.repeat(64);
const alteredHash = documentHash(nativeCrypto.sha256, alteredKey.registration);
const otherSignature = second();
otherSignature.evidence.stored.envelope.signature = newApprover(TENANT).approve(about).signature;
otherSignature.signed.evidence.approval!.approval_hash = documentHash(
  nativeCrypto.sha256,
  otherSignature.evidence.stored.envelope,
);

const otherRegistration = second();
otherRegistration.signed.evidence.approval!.registration_hash = '0'.repeat(64);

it.each<[fault: string, ReturnType<typeof second>, changes?: Partial<ApprovalEvidence>]>([
  ['another approval or registration', { ...second(), signed: second().signed }],
  [
    'another approval or registration',
    { ...second(), signed: second({ by: newApprover() }).signed },
  ],
  ['another approval or registration', otherRegistration],
  ['named pending proof before', second(), { pending: null }],
  ['named pending proof before', second(), { pending: { ...pending, leafIndex: LEAF } }],
  ['named pending proof before', second(), { pending: { ...pending, proofId: admitted.proofId } }],
  ['requires no approval', second(), { pending: { ...pending, effect: 'DENY' } }],
  ['another proof or AEP', second({ statement: { aep_hash: '0'.repeat(64) } })],
  ['another proof or AEP', second({ statement: { proof_id: admitted.proofId } })],
  ['of another tenant', second({ aep: { tenant_id: 'globex' } })],
  ['names another tenant', second({ statement: { tenant_id: 'globex' } })],
  ['has expired', second({ statement: { expires_at: admitted.aep.accepted_at } })],
  ['is not active', second(), { isActive: false }],
  ['does not verify', second({ by: newApprover('globex'), statement: { tenant_id: TENANT } })],
  ['does not verify', second({ statement: { registration_hash: '0'.repeat(64) } })],
  ['does not verify', second({ by: alteredKey, statement: { registration_hash: alteredHash } })],
  ['does not verify', otherSignature],
  ['reasons differ', second(), { pending: { ...pending, reasons: ['other'] } }],
  ['request differs', second(), { isSame: false }],
  ['a second decision about the same', second(), { isOnly: false }],
  ['rejection differs', second({ statement: REJECT })],
  [
    'rejection differs',
    second({ statement: REJECT, aep: { decision: { ...DENIED, effect: 'ADMIT' } } }),
  ],
  [
    'rejection differs',
    second({ statement: REJECT, aep: { decision: { ...DENIED, reasons: ['other'] } } }),
  ],
])('secondDecisionFault rejects a second decision with the fault "%s"', (fault, made, changes) => {
  expect(faultOf(made, changes)).toContain(fault);
});
