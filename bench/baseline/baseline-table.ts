import type { Db } from '#sql/db/transaction';
import type { SignedDocument } from './signed-document.js';

/** A schema beside the registry's, so that its statistics and sizes do not change. */
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
 * Inserts in one statement, which is one transaction. Long columns travel as one value that the
 * database cuts up, the cheapest insert that the driver has.
 */
export async function insertDocuments(sql: Db, rows: readonly SignedDocument[]): Promise<void> {
  const requests = packed(rows.map(({ request }) => request));
  const documents = packed(rows.map(({ document }) => document));
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

const arrayOf = (values: readonly (string | number)[]): string => `{${values.join(',')}}`;

/** Concatenated values; starts count from 1. */
function packed(values: readonly Buffer[]): { bytes: Buffer; starts: string; lengths: string } {
  let next = 1;
  const starts = values.map(({ length }) => (next += length) - length);
  const lengths = arrayOf(values.map(({ length }) => length));
  return { bytes: Buffer.concat(values), starts: arrayOf(starts), lengths };
}
