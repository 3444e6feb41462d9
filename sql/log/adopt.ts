import { valueOf } from '../db/columns.js';
import type { Db, Transaction } from '../db/transaction.js';
import { publishing, readHeartbeats } from '../ops/queries.js';
import { AdministrationError } from '../tenants/audit.js';

// Adoption appends published leaves that a restored database lacks. Only the role svc_erase may call the SQL
// functions for adoption.

/**
 * Takes the append lock and the publisher's lease until the transaction ends, and returns the size of
 * the log.
 *
 * @throws AdministrationError when a publisher runs, or the database has another log
 */
export const beginAdoption = (tx: Transaction, origin: string): Promise<number> =>
  valueOf<number>(tx`select svc.begin_adoption(${origin})`).catch(rethrow);

/** Turns the errors by which a database function rejects an adoption or a retirement into an AdministrationError. */
function rethrow(error: unknown): never {
  const { code, message } = error as { code?: unknown; message: string };
  if (code !== '55000' && code !== '55006' && code !== 'P0002') throw error;
  throw new AdministrationError(message, { cause: error });
}

/**
 * Appends published entries, which the caller has verified, as the leaves from `first` on. All belong
 * to one level-0 tile.
 *
 * @throws AdministrationError when an entry other than a proof has a time ahead of the database's clock
 */
export async function adoptEntries(
  tx: Transaction,
  first: number,
  entries: readonly Uint8Array[],
): Promise<void> {
  const hex = entries.map((entry) => `\\x${Buffer.from(entry).toString('hex')}`);
  await tx`select svc.adopt_entries(${first}, ${hex}::text[]::bytea[])`.catch(rethrow);
}

/** Records the adoption, and closes pending admissions and revocations that leaves from `first` on decide. */
export async function finishAdoption(tx: Transaction, first: number): Promise<void> {
  await tx`select svc.finish_adoption(${first})`;
}

/** The publisher's stop reasons that prove the loss of published leaves. */
const LEAVES_LOST: readonly (string | null)[] = ['database_behind', 'log_forked'];

/**
 * Retires the log of this database; its leaves continue in another log.
 *
 * @returns the size of its last checkpoint in the database
 * @throws AdministrationError also when no publisher has recorded that published leaves were lost
 */
export async function endLog(tx: Db, origin: string, reason: string): Promise<number> {
  const signed = await valueOf<number>(tx`select svc.end_log(${origin}, ${reason})`).catch(rethrow);
  // No publisher is active now, because svc.end_log took the publisher's lock.
  if (LEAVES_LOST.includes(publishing(await readHeartbeats(tx)).refused)) return signed;
  throw new AdministrationError(
    'no publisher has reported a loss of published leaves since the last snapshot. ' +
      'Start a publisher with the published snapshot in SNAPSHOT_DIR, or with TRUSTED_CHECKPOINT: if published leaves are missing, the publisher records this and stops',
  );
}
