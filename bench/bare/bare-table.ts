import type { Db } from '#sql/db/transaction';
import type { BareProof } from './bare-work.js';

/** A plain table of its own, beside the registry and in none of its statistics. */
export async function createBareTable(owner: Db): Promise<void> {
  await dropBareTable(owner);
  await owner`create schema bench`;
  await owner`
    create table bench.bare (
      proof_id      uuid primary key,
      request       bytea not null,
      request_hash  bytea not null,
      document      bytea not null,
      document_hash bytea not null,
      signature     bytea not null
    )`;
}

export async function dropBareTable(owner: Db): Promise<void> {
  await owner`drop schema if exists bench cascade`;
}

/**
 * Inserts them in one statement, which is one transaction. What is long goes as one value that the
 * database cuts up: of the inserts that the driver has, this takes both of them the least time.
 */
export async function insertBareProofs(sql: Db, proofs: readonly BareProof[]): Promise<void> {
  const requests = packed(proofs.map(({ request }) => request));
  const documents = packed(proofs.map(({ document }) => document));
  const each = (bytes: (proof: BareProof) => Buffer): Buffer => Buffer.concat(proofs.map(bytes));
  await sql`
    insert into bench.bare (proof_id, request, request_hash, document, document_hash, signature)
    select proof_id,
      substring(${requests.bytes}::bytea from request_start for request_length),
      substring(${each(({ requestHash }) => requestHash)}::bytea from (n::int - 1) * 32 + 1 for 32),
      substring(${documents.bytes}::bytea from document_start for document_length),
      substring(${each(({ documentHash }) => documentHash)}::bytea from (n::int - 1) * 32 + 1 for 32),
      substring(${each(({ signature }) => signature)}::bytea from (n::int - 1) * 64 + 1 for 64)
    from unnest(${arrayOf(proofs.map(({ proofId }) => proofId))}::uuid[],
      ${requests.starts}::int[], ${requests.lengths}::int[],
      ${documents.starts}::int[], ${documents.lengths}::int[])
      with ordinality as given(proof_id, request_start, request_length, document_start,
        document_length, n)`;
}

export const arrayOf = (values: readonly (string | number)[]): string => `{${values.join(',')}}`;

/** One after the other; starts count from 1. */
export function packed(values: readonly Buffer[]): {
  bytes: Buffer;
  starts: string;
  lengths: string;
} {
  let next = 1;
  const starts = values.map(({ length }) => (next += length) - length);
  const lengths = arrayOf(values.map(({ length }) => length));
  return { bytes: Buffer.concat(values), starts: arrayOf(starts), lengths };
}
