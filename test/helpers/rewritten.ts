import type { TestDatabase } from './database.js';

/**
 * Rewrites the status entries about a proof behind everybody's back while `work` runs, and puts them
 * back: onto a log that is damaged nothing is appended.
 */
export async function withStatusesRewritten<T>(
  { sql }: Pick<TestDatabase, 'sql'>,
  proofId: string,
  body: string,
  work: () => Promise<T>,
): Promise<T> {
  const set = async (to: string): Promise<void> => {
    await sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx.unsafe(`update svc.log_entry e set body = ${to}
        where kind = 2 and proof_id = '${proofId}'::uuid`);
    });
  };
  await sql.unsafe(`drop table if exists public.kept;
    create table public.kept as select leaf_index, body from svc.log_entry
      where kind = 2 and proof_id = '${proofId}'::uuid`);
  await set(body);
  try {
    return await work();
  } finally {
    await set('(select k.body from public.kept k where k.leaf_index = e.leaf_index)');
    await sql.unsafe('drop table public.kept');
  }
}

/** The body of a status entry with a part of it replaced. */
export const replacedIn = (from: string, to: string): string =>
  `convert_to(replace(convert_from(body, 'UTF8'), '${from}', '${to}'), 'UTF8')`;
