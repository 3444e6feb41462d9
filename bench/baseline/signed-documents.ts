import serialize from 'canonicalize';
import { hash, randomBytes, randomUUID } from 'node:crypto';
import sodium from 'sodium-native';
import { arrayOf, bytesOf } from '#sql/db/columns';
import type { Db } from '#sql/db/transaction';

/** Uses a schema of its own, so that statistics and sizes of the registry's tables do not change. */
export async function createBaselineTable(owner: Db): Promise<void> {
  await dropBaselineTable(owner);
  await owner`create schema bench`;
  await owner`
    create table bench.baseline (
      proof_id      uuid primary key,
      request       bytea not null,
      request_hash  bytea not null,
      document      bytea not null,
      document_hash bytea not null,
      signature     bytea not null
    )`;
}

export async function dropBaselineTable(owner: Db): Promise<void> {
  await owner`drop schema if exists bench cascade`;
}

/**
 * Inserts all rows in one statement and transaction. Sends each column of bytes as one value, which the
 * database splits, because this costs the driver least.
 */
export async function insertDocuments(sql: Db, rows: readonly SignedDocument[]): Promise<void> {
  const requests = bytesOf(rows.map(({ request }) => request));
  const documents = bytesOf(rows.map(({ document }) => document));
  const each = (bytes: (row: SignedDocument) => Buffer): Buffer => Buffer.concat(rows.map(bytes));
  await sql`
    insert into bench.baseline
      (proof_id, request, request_hash, document, document_hash, signature)
    select proof_id,
      substring(${requests.bytes}::bytea from request_start for request_length),
      substring(${each(({ requestHash }) => requestHash)}::bytea from (n::int - 1) * 32 + 1 for 32),
      substring(${documents.bytes}::bytea from document_start for document_length),
      substring(${each(({ documentHash }) => documentHash)}::bytea from (n::int - 1) * 32 + 1 for 32),
      substring(${each(({ signature }) => signature)}::bytea from (n::int - 1) * 64 + 1 for 64)
    from unnest(${arrayOf(rows.map(({ proofId }) => proofId))}::uuid[],
      ${requests.starts}::int[], ${requests.lengths}::int[],
      ${documents.starts}::int[], ${documents.lengths}::int[])
      with ordinality as given(proof_id, request_start, request_length, document_start,
        document_length, n)`;
}

export type SignedDocument = ReturnType<typeof signDocument>;
export type BaselineKeys = ReturnType<typeof newBaselineKeys>;

export function newBaselineKeys() {
  const [publicKey, secretKey] = [Buffer.alloc(32), Buffer.alloc(64)];
  sodium.crypto_sign_seed_keypair(publicKey, secretKey, randomBytes(32));
  return { publicKey, secretKey, keyId: publicKey.toString('base64url') };
}

/**
 * Parses, canonicalizes, hashes, signs and verifies an item with only `JSON.parse`, npm's
 * canonicalize, and libsodium as in the service: no policy, schema or lookup.
 */
export function signDocument(text: string, salt: Buffer, keys: BaselineKeys) {
  const request = JSON.parse(text) as Record<string, unknown>;
  const requestHash = sha256(canonical(request));
  const proofId = randomUUID();
  const document = Buffer.from(canonical(documentOf(request, proofId, requestHash, salt, keys)));
  const signature = Buffer.allocUnsafe(64);
  sodium.crypto_sign_detached(signature, document, keys.secretKey);
  if (!sodium.crypto_sign_verify_detached(signature, document, keys.publicKey)) {
    throw new Error('invalid signature');
  }
  return {
    proofId,
    request: Buffer.from(text),
    requestHash,
    /** The signed bytes: the canonical form of a document like an AEP. */
    document,
    documentHash: sha256(document),
    signature,
  };
}

/** Placeholder for the policy's hashes, because the loop evaluates no policy. */
const FIXED_HASH = '0'.repeat(64);

/** A document with as many members and bytes as an AEP. */
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
    policy: { digest: FIXED_HASH, input_hash: FIXED_HASH, engine: 'none', engine_version: '0.0.0' },
    evidence: { fixture_ref: null, fixture_hash: null },
    valid_until: { proof: null, certificate: null, passport: null, trust: null },
    accepted_at: new Date().toISOString(),
    salt: salt.toString('hex'),
    key_id: keyId,
  };
}

const canonical = (value: object): string => serialize(value) ?? '';

function sha256(data: string | Buffer): Buffer {
  return Buffer.from(hash('sha256', data, 'binary'), 'binary');
}
