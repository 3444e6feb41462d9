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
