import { arrayOf, packed } from '../bare/bare-table.js';
import type { BareProof } from '../bare/bare-work.js';
import type { Db } from '#sql/db/transaction';

/** What was accepted. Whoever sends it twice is told by its id. */
export interface Accepted {
  seq: number;
  id: string;
  request: Buffer;
}

/** What was signed, under the place in line that it was accepted at. */
export type Signed = BareProof & { seq: number };

/** What the stages after the first one read back. */
export interface StoredProof {
  seq: number;
  proof_id: string;
  request_hash: Buffer;
  document: Buffer;
  document_hash: Buffer;
  signature: Buffer;
}

/** Two tables and a mark: the least that three processes can hand on what is committed by. */
export async function createPipelineTables(owner: Db): Promise<void> {
  await dropPipelineTables(owner);
  await owner`create schema bench_pipeline`;
  await owner`
    create table bench_pipeline.intake (
      seq     bigint primary key,
      id      uuid not null unique,
      request bytea not null
    )`;
  await owner`
    create table bench_pipeline.proof (
      seq           bigint primary key,
      proof_id      uuid not null,
      request_hash  bytea not null,
      document      bytea not null,
      document_hash bytea not null,
      signature     bytea not null
    )`;
  await owner`create table bench_pipeline.verified (seq bigint not null)`;
  await owner`insert into bench_pipeline.verified values (0)`;
}

export async function dropPipelineTables(owner: Db): Promise<void> {
  await owner`drop schema if exists bench_pipeline cascade`;
}

export async function insertAccepted(sql: Db, accepted: readonly Accepted[]): Promise<void> {
  const requests = packed(accepted.map(({ request }) => request));
  await sql`
    insert into bench_pipeline.intake (seq, id, request)
    select seq, id, substring(${requests.bytes}::bytea from request_start for request_length)
    from unnest(${arrayOf(accepted.map(({ seq }) => seq))}::bigint[],
      ${arrayOf(accepted.map(({ id }) => id))}::uuid[],
      ${requests.starts}::int[], ${requests.lengths}::int[])
      as given(seq, id, request_start, request_length)`;
}

export function acceptedAfter(
  sql: Db,
  seq: number,
  most: number,
): Promise<{ seq: number; request: Buffer }[]> {
  return sql<{ seq: number; request: Buffer }[]>`
    select seq, request from bench_pipeline.intake where seq > ${seq} order by seq limit ${most}`;
}

export async function insertSigned(sql: Db, signed: readonly Signed[]): Promise<void> {
  const documents = packed(signed.map(({ document }) => document));
  const each = (bytes: (proof: Signed) => Buffer): Buffer => Buffer.concat(signed.map(bytes));
  await sql`
    insert into bench_pipeline.proof (seq, proof_id, request_hash, document, document_hash, signature)
    select seq, proof_id,
      substring(${each(({ requestHash }) => requestHash)}::bytea from (n::int - 1) * 32 + 1 for 32),
      substring(${documents.bytes}::bytea from document_start for document_length),
      substring(${each(({ documentHash }) => documentHash)}::bytea from (n::int - 1) * 32 + 1 for 32),
      substring(${each(({ signature }) => signature)}::bytea from (n::int - 1) * 64 + 1 for 64)
    from unnest(${arrayOf(signed.map(({ seq }) => seq))}::bigint[],
      ${arrayOf(signed.map(({ proofId }) => proofId))}::uuid[],
      ${documents.starts}::int[], ${documents.lengths}::int[])
      with ordinality as given(seq, proof_id, document_start, document_length, n)`;
}

export function signedAfter(
  sql: Db,
  seq: number,
  upTo: number,
  most: number,
): Promise<StoredProof[]> {
  return sql<StoredProof[]>`
    select seq, proof_id, request_hash, document, document_hash, signature
    from bench_pipeline.proof where seq > ${seq} and seq <= ${upTo} order by seq limit ${most}`;
}
