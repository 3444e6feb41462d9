import { describe, expect, it } from 'vitest';
import { AEP_PAYLOAD_TYPE, aepBytes, buildProofRecord, proofRecordHash } from '#protocol/aep';
import { utf8 } from '#protocol/bytes';
import { commitmentsOf, type Disclosure } from '#protocol/commitments';
import { pae } from '#protocol/dsse';
import { entryBytes, parseEntry, proofEntryBytes, repeatedIn } from '#protocol/entries';
import { KeyStates } from '#protocol/state/log-keys';
import { leafHash } from '#protocol/merkle';
import type { Aep } from '#protocol/schemas/aep';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { CHECK_NAMES } from '#protocol/schemas/verdict';
import { allPassed, verifyProof, type CheckName, type ProofEvidence } from '#protocol/verify';
import { nativeCrypto } from '#runtime/crypto/node';
import { hashHex } from '#protocol/hash';
import { sha256, withFlippedBit } from '../fixtures/leaves.js';
import {
  admitted,
  aepKey,
  denied,
  keyEntries,
  leaves,
  root,
  testKey,
  type WorkedProof,
} from '../fixtures/worked-log.js';
import { inclusionPath } from '../fixtures/tree.js';

const crypto = { ...nativeCrypto, sha256 };
const states = new KeyStates({ ...crypto, origins: [] }, keyEntries);

function evidenceOf(proof: WorkedProof): ProofEvidence {
  return {
    proof_id: proof.proofId,
    request: proof.request,
    seed: proof.seed,
    aep: proof.aepBytes,
    signature: proof.signature,
    entry: proof.entry,
    leafIndex: proof.leafIndex,
    key: states.at(aepKey.keyId, proof.leafIndex),
    approval: null,
    inclusion: { size: leaves.length, path: inclusionPath(sha256, leaves, proof.leafIndex), root },
  };
}

const genuine = evidenceOf(admitted);

function failed(change: Partial<ProofEvidence>): CheckName[] {
  const checks = verifyProof(crypto, { ...genuine, ...change });
  expect(checks.map((check) => check.name)).toEqual([...CHECK_NAMES]);
  const names = checks.filter((check) => check.result === 'fail').map((check) => check.name);
  expect(allPassed(checks)).toBe(names.length === 0);
  for (const check of checks) {
    expect(check.detail === undefined).toBe(check.result === 'pass');
  }
  return names;
}

/** The evidence of a changed AEP: a signature of the key, and the log entry of the AEP. */
function resigned(aep: Aep, key = aepKey): Partial<ProofEvidence> {
  const bytes = aepBytes(aep);
  const signature = key.sign(pae(AEP_PAYLOAD_TYPE, bytes));
  const record = buildProofRecord(sha256, {
    proof_id: admitted.proofId,
    aep: bytes,
    signature,
    key_id: aep.key_id,
  });
  const entry = proofEntryBytes({
    proof_id: admitted.proofId,
    aep_hash: record.aep_hash,
    proof_record_hash: proofRecordHash(sha256, record),
    ...repeatedIn(aep),
    time: admitted.aep.accepted_at,
  });
  return { aep: bytes, signature, entry };
}

describe('verifyProof', () => {
  it('passes for admissions and denials, with either form of inclusion proof', () => {
    expect(failed({})).toEqual([]);
    expect(failed(evidenceOf(denied))).toEqual([]);
    expect(failed({ inclusion: { leafHashInTree: leaves[1]! } })).toEqual([]);
  });

  it('passes when the request is erased, and reports not_applicable for the request hash', () => {
    const checks = verifyProof(crypto, { ...genuine, request: null });
    expect(allPassed(checks)).toBe(true);
    expect(checks[0]).toMatchObject({ name: 'request_hash', result: 'not_applicable' });
  });

  it('fails when any bit of the AEP, the signature or the log entry is flipped', () => {
    for (let bit = 0; bit < admitted.aepBytes.length * 8; bit += 5) {
      const names = failed({ aep: withFlippedBit(admitted.aepBytes, bit) });
      expect(names).toEqual(expect.arrayContaining(['aep_hash', 'signature', 'proof_record_hash']));
    }
    for (let bit = 0; bit < 512; bit += 7) {
      const names = failed({ signature: withFlippedBit(admitted.signature, bit) });
      expect(names).toEqual(['signature', 'proof_record_hash']);
    }
    for (let bit = 0; bit < admitted.entry.length * 8; bit += 3) {
      expect(failed({ entry: withFlippedBit(admitted.entry, bit) })).toContain('inclusion');
    }
  });

  const text = Buffer.from(admitted.request).toString();
  const inclusion = genuine.inclusion as { size: number; path: Uint8Array[]; root: Uint8Array };
  const key = (
    state: 'active' | 'retired' | 'compromised' | 'unknown',
    publicKey?: Uint8Array,
  ) => ({
    key: { publicKey: publicKey ?? aepKey.publicKey, state },
  });
  const signedBytes = (aep: Uint8Array) => ({
    aep,
    signature: aepKey.sign(pae(AEP_PAYLOAD_TYPE, aep)),
  });
  const forger = testKey(2);
  const { proofId: otherId } = denied;
  const unlogged = { inclusion: { leafHashInTree: new Uint8Array(32) } };

  it.each<[title: string, change: Partial<ProofEvidence>, expected: string]>([
    ['another spelling of the request', { request: utf8(JSON.stringify(JSON.parse(text))) }, ''],
    ['another request', { request: utf8(text.replace('step-3', 'step-4')) }, 'request_hash'],
    ['a request that is not JSON', { request: utf8('not json') }, 'request_hash'],
    ['an empty signature', { signature: new Uint8Array(0) }, 'signature proof_record_hash'],
    [
      'a signature of the payload without its encoding',
      { signature: aepKey.sign(admitted.aepBytes) },
      'signature proof_record_hash',
    ],
    [
      'an entry without a type',
      { entry: utf8('{}') },
      'aep_identity aep_hash proof_record_hash log_entry inclusion',
    ],
    ['another proof id', { proof_id: otherId }, 'aep_identity proof_record_hash log_entry'],
    ['another leaf in the tree', { inclusion: { leafHashInTree: leaves[2]! } }, 'inclusion'],
    [
      'a truncated path',
      { inclusion: { ...inclusion, path: inclusion.path.slice(1) } },
      'inclusion',
    ],
    ['another leaf index', { leafIndex: 2 }, 'inclusion'],
    ['a retired key', key('retired'), 'signing_key'],
    ['a compromised key', key('compromised'), 'signing_key'],
    ['no key in the log', { key: null }, 'signing_key signature'],
    [
      'no public key in the log',
      { key: { publicKey: null, state: 'active' } },
      'signing_key signature',
    ],
    [
      'the signature of a forger under their own key',
      resigned({ ...admitted.aep, key_id: forger.keyId }, forger),
      'signing_key signature inclusion',
    ],
    [
      'a signed AEP of another proof, whose entry is not in the tree',
      {
        ...resigned({ ...admitted.aep, proof_id: otherId, execution_id: `exec_${otherId}` }),
        ...unlogged,
      },
      'aep_identity inclusion',
    ],
    [
      'a signed AEP of another time, whose entry is not in the tree',
      { ...resigned({ ...admitted.aep, accepted_at: '2026-11-20T17:29:00.124Z' }), ...unlogged },
      'aep_identity inclusion',
    ],
    [
      'a signed AEP of another request, whose entry is not in the tree',
      {
        ...resigned({ ...admitted.aep, request_commitment: denied.aep.request_commitment }),
        ...unlogged,
      },
      'request_hash inclusion',
    ],
    [
      'a signed AEP with the hash of another spelling of the request, whose entry is not in the tree',
      {
        ...resigned({
          ...admitted.aep,
          ...commitmentsOf(sha256, [
            admitted.disclosures[0]!.with(2, hashHex(sha256, utf8(` ${text}`))) as Disclosure,
          ]),
        }),
        ...unlogged,
        request: utf8(` ${text}`),
      },
      'request_hash inclusion',
    ],
    [
      'a signed AEP that is not canonical',
      signedBytes(utf8(JSON.stringify(admitted.aep))),
      'aep_canonical aep_hash proof_record_hash',
    ],
    [
      'a signed AEP outside its schema',
      signedBytes(utf8('{"schema_version":"svc.aep/1.1"}')),
      'request_hash aep_schema aep_identity aep_hash signing_key proof_record_hash approval',
    ],
  ])('reports exactly the checks that fail with %s', (_, change, expected) => {
    expect(failed(change).join(' ')).toBe(expected);
  });

  it.each<Partial<ReturnType<typeof repeatedIn>>>([
    { effect: 'DENY', valid_until: { proof: null } },
    { environment: 'live' },
    { key_id: forger.keyId },
    { valid_until: { ...admitted.aep.valid_until, proof: '2026-11-21T00:00:00.000Z' } },
  ])('fails when the log entry contradicts the AEP by stating %j', (stated) => {
    const logged = parseEntry(admitted.entry) as ProofEntry;
    const entry = entryBytes({ ...logged, ...stated });
    const inTree = { inclusion: { leafHashInTree: leafHash(sha256, entry) } };
    expect(failed({ entry, ...inTree })).toEqual(['log_entry']);
  });
});
