import { describe, expect, it } from 'vitest';
import {
  AEP_PAYLOAD_TYPE,
  aepBytes,
  buildProofRecord,
  requestTypeOf,
  proofRecordHash,
} from '#protocol/aep';
import { utf8 } from '#protocol/bytes';
import { pae } from '#protocol/dsse';
import { proofEntryBytes } from '#protocol/entries';
import { keyStateAt } from '#protocol/key-state';
import { inclusionPath } from '#protocol/merkle';
import type { Aep } from '#protocol/schemas/aep';
import { CHECK_NAMES } from '#protocol/schemas/verdict';
import { allPassed, verifyProof, type CheckName, type ProofEvidence } from '#protocol/verify';
import { nativeVerify } from '#runtime/crypto/node';
import { sha256 } from '../fixtures/leaves.js';
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

const crypto = { sha256, verify: nativeVerify };

function evidenceOf(proof: WorkedProof): ProofEvidence {
  return {
    proof_id: proof.proofId,
    request: proof.request,
    aep: proof.aepBytes,
    signature: proof.signature,
    entry: proof.entry,
    leafIndex: proof.leafIndex,
    key: keyStateAt(keyEntries, aepKey.keyId, proof.leafIndex, leaves.length),
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

/** The evidence of a changed AEP, signed with the key and logged. */
function resigned(aep: Aep, key = aepKey): Partial<ProofEvidence> {
  const bytes = aepBytes(aep);
  const signature = key.sign(pae(AEP_PAYLOAD_TYPE, bytes));
  const record = buildProofRecord(sha256, {
    proof_id: admitted.proofId,
    aep: bytes,
    signature,
    key_id: aep.key_id,
    request_hash: aep.request_hash,
    effect: aep.decision.effect,
    lane: requestTypeOf(aep.subject),
  });
  const entry = proofEntryBytes({
    proof_id: admitted.proofId,
    aep_hash: record.aep_hash,
    proof_record_hash: proofRecordHash(sha256, record),
    time: admitted.aep.accepted_at,
  });
  return { aep: bytes, signature, entry };
}

function turned(bytes: Uint8Array, bit: number): Uint8Array {
  const copy = Uint8Array.from(bytes);
  copy[bit >> 3]! ^= 1 << (bit & 7);
  return copy;
}

describe('verifyProof', () => {
  it('passes for admissions and denials, with either kind of inclusion', () => {
    expect(failed({})).toEqual([]);
    expect(failed(evidenceOf(denied))).toEqual([]);
    expect(failed({ inclusion: { leafHashInTree: leaves[1]! } })).toEqual([]);
  });

  it('passes without an erased request, with not_applicable for its hash', () => {
    const checks = verifyProof(crypto, { ...genuine, request: null });
    expect(allPassed(checks)).toBe(true);
    expect(checks[0]).toMatchObject({ name: 'request_hash', result: 'not_applicable' });
  });

  it('depends on the content of the request, not its spelling', () => {
    const compact = utf8(JSON.stringify(JSON.parse(Buffer.from(admitted.request).toString())));
    expect(failed({ request: compact })).toEqual([]);
    const other = utf8(Buffer.from(admitted.request).toString().replace('step-3', 'step-4'));
    expect(failed({ request: other })).toEqual(['request_hash']);
    expect(failed({ request: utf8('not json') })).toEqual(['request_hash']);
  });

  it('fails for the AEP with any bit flipped', () => {
    for (let bit = 0; bit < admitted.aepBytes.length * 8; bit += 5) {
      const names = failed({ aep: turned(admitted.aepBytes, bit) });
      expect(names).toEqual(expect.arrayContaining(['aep_hash', 'signature', 'proof_record_hash']));
    }
  });

  it('fails for the signature with any bit flipped', () => {
    for (let bit = 0; bit < 512; bit += 7) {
      expect(failed({ signature: turned(admitted.signature, bit) })).toEqual([
        'signature',
        'proof_record_hash',
      ]);
    }
    expect(failed({ signature: new Uint8Array(0) })).toEqual(['signature', 'proof_record_hash']);
  });

  it('fails for the log entry with any bit flipped', () => {
    for (let bit = 0; bit < admitted.entry.length * 8; bit += 3) {
      expect(failed({ entry: turned(admitted.entry, bit) })).toContain('inclusion');
    }
  });

  it('fails for an entry of another proof or another type', () => {
    expect(failed({ entry: denied.entry })).toEqual([
      'aep_hash',
      'proof_record_hash',
      'log_entry',
      'inclusion',
    ]);
    expect(failed({ entry: utf8('{}') })).toContain('log_entry');
  });

  it('fails for another leaf in the tree, and for a wrong path, size or root', () => {
    const inclusion = genuine.inclusion as { size: number; path: Uint8Array[]; root: Uint8Array };
    for (const change of [
      { leafHashInTree: leaves[2]! },
      { ...inclusion, root: turned(root, 0) },
      { ...inclusion, size: 4 },
      { ...inclusion, path: inclusion.path.slice(1) },
      { ...inclusion, path: inclusion.path.with(0, turned(inclusion.path[0]!, 9)) },
    ]) {
      expect(failed({ inclusion: change })).toEqual(['inclusion']);
    }
    expect(failed({ leafIndex: 2 })).toEqual(['inclusion']);
  });

  it.each(['retired', 'compromised', 'unknown'] as const)(
    'fails under a key that is %s',
    (state) => {
      expect(failed({ key: { publicKey: aepKey.publicKey, state } })).toEqual(['signing_key']);
    },
  );

  it('fails when the log does not know the key that the artifact names', () => {
    expect(failed({ key: null })).toEqual(['signing_key', 'signature']);
    expect(failed({ key: { publicKey: null, state: 'active' } })).toEqual([
      'signing_key',
      'signature',
    ]);
  });

  it('fails for a forger with another key, because the key comes from the log', () => {
    const forger = testKey(2);
    const forged = resigned({ ...admitted.aep, key_id: forger.keyId }, forger);
    expect(failed(forged)).toEqual(['signing_key', 'signature', 'inclusion']);
    // An AEP that names the real key fails too.
    expect(failed(resigned(admitted.aep, forger))).toEqual(['signature', 'inclusion']);
    // Another active key of the log fails too.
    expect(failed({ key: { publicKey: forger.publicKey, state: 'active' } })).toEqual([
      'signing_key',
      'signature',
    ]);
  });

  it('fails for a signed and logged AEP of another proof or time', () => {
    const elsewhere = { leafHashInTree: new Uint8Array(32) };
    const other = resigned({
      ...admitted.aep,
      proof_id: denied.proofId,
      execution_id: `exec_${denied.proofId}`,
    });
    expect(failed({ ...other, inclusion: elsewhere })).toEqual(['aep_identity', 'inclusion']);
    const later = resigned({ ...admitted.aep, accepted_at: '2026-11-20T17:29:00.124Z' });
    expect(failed({ ...later, inclusion: elsewhere })).toEqual(['aep_identity', 'inclusion']);
    const otherRequest = resigned({ ...admitted.aep, request_hash: denied.aep.request_hash });
    expect(failed({ ...otherRequest, inclusion: elsewhere })).toEqual([
      'request_hash',
      'inclusion',
    ]);
    expect(failed({ proof_id: denied.proofId })).toEqual([
      'aep_identity',
      'proof_record_hash',
      'log_entry',
    ]);
  });

  it('fails for a signed AEP that is not in canonical form', () => {
    const bytes = utf8(JSON.stringify(admitted.aep));
    const names = failed({ aep: bytes, signature: aepKey.sign(pae(AEP_PAYLOAD_TYPE, bytes)) });
    expect(names).toEqual(['aep_canonical', 'aep_hash', 'proof_record_hash']);
  });

  it('fails for a signed canonical AEP outside its schema', () => {
    const bytes = utf8('{"schema_version":"svc.aep/1.0"}');
    const names = failed({ aep: bytes, signature: aepKey.sign(pae(AEP_PAYLOAD_TYPE, bytes)) });
    expect(names).toEqual([
      'request_hash',
      'aep_schema',
      'aep_identity',
      'aep_hash',
      'signing_key',
      'proof_record_hash',
    ]);
  });

  it('accepts only a signature over the pre-authentication encoding', () => {
    const signature = aepKey.sign(admitted.aepBytes);
    expect(failed({ signature })).toContain('signature');
  });
});
