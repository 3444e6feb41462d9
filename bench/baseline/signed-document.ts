import { hash, randomUUID, sign, verify, type KeyObject } from 'node:crypto';
import serialize from 'canonicalize';

/** What has to be stored of an item, and nothing else. */
export interface SignedDocument {
  proofId: string;
  request: Buffer;
  requestHash: Buffer;
  /** Canonical bytes of a document like an AEP: the signed bytes. */
  document: Buffer;
  documentHash: Buffer;
  signature: Buffer;
}

export interface BaselineKeys {
  privateKey: KeyObject;
  publicKey: KeyObject;
  keyId: string;
}

/**
 * Parses, canonicalizes, hashes, signs and verifies with `JSON.parse`, npm's canonicalize and OpenSSL
 * only: no policy, no schema, no lookup.
 */
export function signDocument(text: string, salt: Buffer, keys: BaselineKeys): SignedDocument {
  const request = JSON.parse(text) as Record<string, unknown>;
  const requestHash = sha256(canonical(request));
  const proofId = randomUUID();
  const document = Buffer.from(canonical(documentOf(request, proofId, requestHash, salt, keys)));
  const signature = sign(null, document, keys.privateKey);
  if (!verify(null, document, keys.publicKey, signature)) throw new Error('invalid signature');
  return {
    proofId,
    request: Buffer.from(text),
    requestHash,
    document,
    documentHash: sha256(document),
    signature,
  };
}

/** Stands for the policy's hashes: nothing is decided here. */
const FIXED_HASH = '0'.repeat(64);

/** As many members as an AEP, of the same length. */
function documentOf(
  request: Record<string, unknown>,
  proofId: string,
  requestHash: Buffer,
  salt: Buffer,
  { keyId }: BaselineKeys,
): object {
  const id = proofId.replaceAll('-', '');
  const { action, agent, arguments_hash, intent_id, tool } = request;
  return {
    schema_version: 'bench.base/1.0',
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

function canonical(value: object): string {
  const text = serialize(value);
  if (text === undefined) throw new Error('a value without a canonical form');
  return text;
}

function sha256(data: string | Buffer): Buffer {
  return Buffer.from(hash('sha256', data, 'binary'), 'binary');
}
