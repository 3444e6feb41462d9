import { createHash, createPublicKey, verify } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

function load<T>(name: string): T {
  const file = new URL(`../../protocol/vectors/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')) as T;
}

describe('worked vectors, checked without project code', () => {
  const sha256 = (...parts: (string | Buffer)[]) => {
    const hash = createHash('sha256');
    for (const part of parts) hash.update(part);
    return hash.digest();
  };
  interface Named {
    name: string;
    canonical: string;
    sha256: string;
  }
  const keys = load<{ aep: { public_key: string; thumbprint_input: string; key_id: string } }>(
    'keys',
  );
  const aeps = load<(Named & { aep: Record<string, unknown> })[]>('aep');
  const requests = load<(Named & { request_hash: string; received: string })[]>('request');
  const envelopes = load<
    {
      signed_bytes: string;
      envelope: { payload: string; signatures: { keyid: string; sig: string }[] };
    }[]
  >('envelope');
  const records = load<(Named & { proof_record_hash: string })[]>('proof-record');
  const receipts = load<{ hashed: string; response_hash: string; body: string }[]>('receipt');
  const agents = load<
    {
      received: string;
      canonical: string;
      request_hash: string;
      aep: { canonical: string; aep_hash: string };
      receipt: { hashed: string; response_hash: string; body: string };
    }[]
  >('agent-admission');
  const entries =
    load<{ entry: Record<string, unknown>; canonical: string; leaf_hash: string }[]>('log-entry');
  const merkle = load<{ leaf_hashes: string[]; roots: string[] }>('merkle');
  const note = load<{ vkey: string; note: string; text: string; root: string }>('checkpoint');

  it('of an agent have the stated hashes and are consistent', () => {
    const [admission, outcome] = agents.map((vector) => {
      const { canonical, request_hash, received, aep, receipt } = vector;
      expect(sha256(canonical).toString('hex')).toBe(request_hash);
      expect(JSON.parse(canonical)).toEqual(JSON.parse(received));
      expect(sha256(aep.canonical).toString('hex')).toBe(aep.aep_hash);
      expect(sha256(receipt.hashed).toString('hex')).toBe(receipt.response_hash);
      const said = JSON.parse(aep.canonical) as Record<string, unknown>;
      const body = JSON.parse(receipt.body) as Record<string, unknown>;
      const { response_hash: hash, ...unhashed } = body;
      expect(hash).toBe(receipt.response_hash);
      expect(JSON.parse(receipt.hashed)).toEqual(unhashed);
      expect(body).toMatchObject({
        request_hash,
        registry_proof_id: said.proof_id,
        receipt_id: `svc-agent-admission-${request_hash.slice(0, 16)}`,
      });
      expect(said.request_hash).toBe(request_hash);
      return said;
    });
    expect(admission!.subject).toMatchObject({
      kind: 'admission',
      arguments_hash: sha256('{"seats":2,"when":"2026-12-24"}').toString('hex'),
    });
    expect(outcome!.subject).toMatchObject({
      kind: 'outcome',
      parent_proof_id: admission!.proof_id,
      result_hash: sha256('{"reservation":"R-1"}').toString('hex'),
    });
  });

  it('have the stated hashes', () => {
    expect(sha256(keys.aep.thumbprint_input).toString('base64url')).toBe(keys.aep.key_id);
    aeps.forEach((vector, i) => {
      expect(sha256(vector.canonical).toString('hex')).toBe(vector.sha256);
      expect(JSON.parse(vector.canonical)).toEqual(vector.aep);
      expect(Buffer.from(envelopes[i]!.envelope.payload, 'base64').toString()).toBe(
        vector.canonical,
      );
      expect(vector.aep.request_hash).toBe(requests[i]!.request_hash);
      expect(sha256(requests[i]!.canonical).toString('hex')).toBe(requests[i]!.request_hash);
      expect(JSON.parse(requests[i]!.canonical)).toEqual(JSON.parse(requests[i]!.received));

      const record = JSON.parse(records[i]!.canonical) as Record<string, unknown>;
      expect(sha256(records[i]!.canonical).toString('hex')).toBe(records[i]!.proof_record_hash);
      expect(record).toMatchObject({ aep_hash: vector.sha256, envelope: envelopes[i]!.envelope });
      expect(record.response_hash).toBe(receipts[i]!.response_hash);
      expect(sha256(receipts[i]!.hashed).toString('hex')).toBe(receipts[i]!.response_hash);
      expect(entries[i + 1]!.entry).toMatchObject({
        aep_hash: vector.sha256,
        proof_record_hash: records[i]!.proof_record_hash,
      });
    });
  });

  it('of a revocation and a share token have the stated hashes', () => {
    const { revocation_reason: reason, share_token: share } = load<{
      revocation_reason: { document: unknown; canonical: string; reason_hash: string };
      share_token: { token: string; token_hash: string };
    }>('lifecycle');
    expect(sha256(reason.canonical).toString('hex')).toBe(reason.reason_hash);
    expect(JSON.parse(reason.canonical)).toEqual(reason.document);
    expect(sha256(share.token).toString('hex')).toBe(share.token_hash);
  });

  it('have valid signatures', () => {
    const key = createPublicKey({
      key: { kty: 'OKP', crv: 'Ed25519', x: keys.aep.public_key },
      format: 'jwk',
    });
    for (const { signed_bytes, envelope } of envelopes) {
      const [signature] = envelope.signatures;
      expect(signature!.keyid).toBe(keys.aep.key_id);
      expect(
        verify(null, Buffer.from(signed_bytes), key, Buffer.from(signature!.sig, 'base64')),
      ).toBe(true);
    }
  });

  it('form the stated tree and checkpoint', () => {
    const level = entries.map(({ canonical, leaf_hash }) => {
      const hash = sha256(Buffer.of(0), canonical);
      expect(hash.toString('hex')).toBe(leaf_hash);
      return hash;
    });
    expect(level.map((hash) => hash.toString('hex'))).toEqual(merkle.leaf_hashes);
    const node = (left: Buffer, right: Buffer) => sha256(Buffer.of(1), left, right);
    const [a, b, c, d, e] = level as [Buffer, Buffer, Buffer, Buffer, Buffer];
    const root = node(node(node(a, b), node(c, d)), e);
    expect(merkle.roots.at(-1)).toBe(root.toString('hex'));
    expect(note.root).toBe(root.toString('base64'));
    expect(note.text).toBe(`log.example/svc\n5\n${note.root}\n`);

    const [name, id, encoded] = /^([^+]+)\+([^+]+)\+(.*)$/.exec(note.vkey)!.slice(1) as [
      string,
      string,
      string,
    ];
    const typed = Buffer.from(encoded, 'base64');
    expect(sha256(`${name}\n`, typed).subarray(0, 4).toString('hex')).toBe(id);
    const signature = Buffer.from(note.note.trimEnd().split(' ').at(-1)!, 'base64');
    const x = typed.subarray(1).toString('base64url');
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
    expect(signature.subarray(0, 4).toString('hex')).toBe(id);
    expect(verify(null, Buffer.from(note.text), key, signature.subarray(4))).toBe(true);
  });
});
