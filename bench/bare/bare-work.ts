import { hash, randomUUID, sign, verify, type KeyObject } from 'node:crypto';
import serialize from 'canonicalize';

/** What the bare loop makes of an item: what has to be stored of it, and no more. */
export interface BareProof {
  proofId: string;
  request: Buffer;
  requestHash: Buffer;
  /** The canonical bytes of a document like an AEP: what is signed. */
  document: Buffer;
  documentHash: Buffer;
  signature: Buffer;
}

export interface BareKeys {
  privateKey: KeyObject;
  publicKey: KeyObject;
  keyId: string;
}

/** `signedProof`, and the verification of its signature. */
export function bareProof(text: string, salt: Buffer, keys: BareKeys): BareProof {
  const proof = signedProof(text, salt, keys);
  const { document, signature } = proof;
  if (!verify(null, document, keys.publicKey, signature)) throw new Error('a signature is wrong');
  return proof;
}

/**
 * Parse, canonicalize, hash and sign, with nothing around it: JSON.parse, npm's canonicalize and
 * OpenSSL. It decides nothing, checks no field and asks nobody.
 */
export function signedProof(text: string, salt: Buffer, keys: BareKeys): BareProof {
  const request = JSON.parse(text) as Record<string, unknown>;
  const requestHash = sha256(canonical(request));
  const proofId = randomUUID();
  const document = Buffer.from(canonical(documentOf(request, proofId, requestHash, salt, keys)));
  return {
    proofId,
    request: Buffer.from(text),
    requestHash,
    document,
    documentHash: sha256(document),
    signature: sign(null, document, keys.privateKey),
  };
}

/** As many members, and as long, as an AEP has. */
function documentOf(
  request: Record<string, unknown>,
  proofId: string,
  requestHash: Buffer,
  salt: Buffer,
  { keyId }: BareKeys,
): object {
  const id = proofId.replaceAll('-', '');
  const { action, agent, arguments_hash, intent_id, tool } = request;
  return {
    schema_version: 'bench.bare/1.0',
    execution_id: `exec_${id}`,
    proof_id: id,
    environment: 'sandbox',
    tenant_id: request['tenant_id'],
    subject:
      agent === undefined
        ? { kind: 'execute', action, intent_id }
        : { kind: 'admission', action, agent, arguments_hash, tool },
    request_hash: requestHash.toString('hex'),
    decision: { effect: 'ADMIT', reasons: ['permit-allowlisted-sandbox'] },
    policy: {
      digest: FIXED_HASH,
      input_hash: FIXED_HASH,
      engine: 'none',
      engine_version: '0.0.0',
    },
    evidence: { fixture_ref: null, fixture_hash: null },
    valid_until: { proof: null, certificate: null, passport: null, trust: null },
    accepted_at: new Date().toISOString(),
    salt: salt.toString('hex'),
    key_id: keyId,
  };
}

/** In place of the policy's hashes: nothing is decided here. */
const FIXED_HASH = '0'.repeat(64);

function canonical(value: object): string {
  const text = serialize(value);
  if (text === undefined) throw new Error('a request has no canonical form');
  return text;
}

function sha256(data: string | Buffer): Buffer {
  return Buffer.from(hash('sha256', data, 'binary'), 'binary');
}
