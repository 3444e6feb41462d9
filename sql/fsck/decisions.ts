import type { Db } from '../db/transaction.js';

/** Which of the input hashes (hex) are stored. */
export async function knownInputs(sql: Db, hashes: readonly string[]): Promise<Set<string>> {
  const rows = await sql<{ hash: string }[]>`
    select asked.hash from unnest(${[...hashes]}::text[]) as asked(hash)
    join svc.policy_input i on i.input_hash = decode(asked.hash, 'hex')`;
  return new Set(rows.map((row) => row.hash));
}

/** Policy inputs after `after` (hex) whose content does not match their hash. */
export async function inputsFrom(
  sql: Db,
  after: string,
  limit: number,
): Promise<{ hash: string; isRight: boolean }[]> {
  const rows = await sql<{ hash: string; is_right: boolean }[]>`
    select encode(input_hash, 'hex') as hash, sha256(input) = input_hash as is_right
    from svc.policy_input where input_hash > ${Buffer.from(after, 'hex')}
    order by input_hash limit ${limit}`;
  return rows.map((row) => ({ hash: row.hash, isRight: row.is_right }));
}

/** Policy sets and fixtures, and whether each matches its hash. */
export async function decidingTexts(
  sql: Db,
): Promise<{ table: 'policy_set' | 'fixture'; name: string; isRight: boolean }[]> {
  const rows = await sql<{ table: 'policy_set' | 'fixture'; name: string; is_right: boolean }[]>`
    select 'policy_set' as table, 'digest=' || encode(digest, 'hex') as name,
      sha256(convert_to(manifest, 'UTF8')) = digest as is_right from svc.policy_set
    union all
    select 'fixture', 'fixture_ref=' || fixture_ref, sha256(content) = fixture_hash from svc.fixture`;
  return rows.map((row) => ({ table: row.table, name: row.name, isRight: row.is_right }));
}
