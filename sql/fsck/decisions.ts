import type { Db } from '../db/transaction.js';

/** Which of the input hashes (hex) are stored. */
export async function knownInputs(sql: Db, hashes: readonly string[]): Promise<Set<string>> {
  const rows = await sql<{ hash: string }[]>`
    select asked.hash from unnest(${[...hashes]}::text[]) as asked(hash)
    join svc.policy_input i on i.input_hash = decode(asked.hash, 'hex')`;
  return new Set(rows.map(({ hash }) => hash));
}

/** Policy inputs after `after` (hex), and whether the content of each matches its hash. */
export function inputsFrom(
  sql: Db,
  after: string,
  limit: number,
): Promise<{ hash: string; isRight: boolean }[]> {
  return sql<{ hash: string; isRight: boolean }[]>`
    select encode(input_hash, 'hex') as hash, sha256(input) = input_hash as "isRight"
    from svc.policy_input where input_hash > ${Buffer.from(after, 'hex')}
    order by input_hash limit ${limit}`;
}

interface DecidingText {
  table: 'policy_set' | 'fixture';
  name: string;
  isRight: boolean;
}

/** Policy sets and fixtures, and whether each matches its hash. */
export function decidingTexts(sql: Db): Promise<DecidingText[]> {
  return sql<DecidingText[]>`
    select 'policy_set' as table, 'digest=' || encode(digest, 'hex') as name,
      sha256(convert_to(manifest, 'UTF8')) = digest as "isRight" from svc.policy_set
    union all
    select 'fixture', 'fixture_ref=' || fixture_ref, sha256(content) = fixture_hash from svc.fixture`;
}
