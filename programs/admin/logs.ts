import { equalBytes } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import type { LogEntry } from '#protocol/schemas/log-entry';
import { rootFromTiles } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { type Pool, transaction } from '#sql/db/transaction';
import { eraseAdopted, holdKeys } from '#sql/erasure/erase';
import { adoptEntries, beginAdoption, endLog, finishAdoption } from '#sql/log/adopt';
import { readTile, treeSize } from '#sql/log/log';
import { AdministrationError } from '#sql/tenants/audit';
import {
  confirmOption,
  requireConfirmed,
  words,
  type AddCommand,
  type Admin,
  Outcome,
} from './command.js';
import { commonLeaves, entriesFrom, type PublishedLog, withPublishedLog } from './published-log.js';

const VKEY = [
  '--vkey <LOG_VKEY>',
  "the log's vkey, or several separated by commas: the only trusted input",
] as const;

export function addLogCommands(add: AddCommand): void {
  add(
    'log lost <snapshot>',
    'List published leaves that the database lacks, after a restore or failover; exit code 1 if any',
    '/srv/public --vkey log.example.org/2026+0a1b2c3d+AR…',
    async ({ database, printList }, place: string, { vkey }: { vkey: string }) => {
      const sql = await database();
      const lost = await withPublishedLog(place, vkey, async ({ origin, tree }) => {
        const { size } = tree.head;
        const inDatabase = await treeSize(sql);
        const common = await commonLeaves(sql, tree, Math.min(inDatabase, size));
        const only_in_database = inDatabase - common;
        const document = { origin, published: size, common, only_in_database };
        return printList(document, 'lost', lostLeaves(tree, common));
      });
      return new Outcome(null, { failed: lost > 0 });
    },
  ).requiredOption(...VKEY);
  add(
    'log adopt <snapshot>',
    'Append the published leaves that the database lost, without their payloads, from a snapshot directory, URL or bucket; the log continues',
    '/srv/public --vkey log.example.org/2026+0a1b2c3d+AR… --reason "db1 lost on 2026-11-22" --confirm log.example.org/2026',
    (admin, place: string, options: AdoptOptions) =>
      withPublishedLog(place, options.vkey, (log) => adopt(admin, log, options)),
  )
    .requiredOption(...VKEY)
    .requiredOption(
      '--reason <words>',
      'what was lost, and when; kept permanently, so name no person',
    )
    .requiredOption(...confirmOption('LOG_ORIGIN'));
  add(
    'log end <LOG_ORIGIN>',
    'Retire the log of this database permanently, after a publisher recorded the loss of published leaves; the remaining leaves continue under another LOG_ORIGIN',
    'log.example.org/2026 --reason "17 leaves lost with db1 on 2026-11-22" --confirm log.example.org/2026',
    async ({ act }, origin: string, options: { reason: string; confirm: string }) => {
      requireConfirmed(options.confirm, origin);
      const reason = words(options.reason, 'the reason', 512);
      const signed = await act((tx) => endLog(tx, origin, reason));
      return { origin, ended: true, last_checkpoint_known: signed };
    },
  )
    .requiredOption('--reason <words>', 'what was lost, and when; recorded in the audit')
    .requiredOption(...confirmOption('LOG_ORIGIN'));
}

async function* lostLeaves(tree: PublishedLog['tree'], from: number) {
  for await (const { first, entries } of entriesFrom(tree, from)) {
    yield* entries.map((bytes, place) => lostLeaf(first + place, bytes));
  }
}

function lostLeaf(leafIndex: number, bytes: Uint8Array) {
  const { type, time, ...entry } = requireEntry(leafIndex, bytes);
  return 'proof_id' in entry
    ? { leaf_index: leafIndex, type, proof_id: entry.proof_id, time }
    : { leaf_index: leafIndex, type, time };
}

function requireEntry(leafIndex: number, bytes: Uint8Array): LogEntry {
  const entry = readEntry(bytes);
  if (entry === null) throw new OperatorError(`the published leaf ${leafIndex} is not a log entry`);
  return entry;
}

interface AdoptOptions {
  vkey: string;
  reason: string;
  confirm: string;
}

/**
 * Appends the published leaves that the database lacks. Uses one transaction, so that a killed command
 * appends nothing. Verifies every file first, and again when it reads the file a second time.
 */
async function adopt(
  { act, actor, database, say }: Admin,
  { origin, tree }: PublishedLog,
  { confirm, reason }: AdoptOptions,
) {
  requireConfirmed(confirm, origin);
  const order = { actor, reasonRef: words(reason, 'the reason', 128) };
  const sql = await database();
  const size = await transaction(sql, (tx) => beginAdoption(tx, origin));
  await requireSameLeaves(sql, tree, size);
  let published = 0;
  for await (const { first, entries } of entriesFrom(tree, size)) {
    entries.forEach((bytes, place) => requireEntry(first + place, bytes));
    published += entries.length;
  }
  const document = { origin, from: size, adopted: published, proofs: 0 };
  if (published === 0) return document;
  say(`${published} published leaves are verified; appending them\n`);
  const proofs = await act(async (tx) => {
    await holdKeys(tx);
    if ((await beginAdoption(tx, origin)) !== size) {
      throw new AdministrationError('the log has grown meanwhile: stop every other program first');
    }
    for await (const { first, entries } of entriesFrom(tree, size)) {
      await adoptEntries(tx, first, entries);
    }
    await finishAdoption(tx, size);
    return eraseAdopted(tx, size, order);
  });
  // COMMIT POINT: now the log extends the published log again. Until now, nothing was changed.
  return { ...document, proofs };
}

/** Requires that the stored log, with `size` leaves, or the published log is a prefix of the other log. */
async function requireSameLeaves(
  sql: Pool,
  tree: PublishedLog['tree'],
  size: number,
): Promise<void> {
  const shared = Math.min(size, tree.head.size);
  if (shared === 0) return;
  const stored = await rootFromTiles(
    nativeSha256,
    shared,
    async (level, index) => (await readTile(sql, level, index)) ?? new Uint8Array(),
  );
  if (equalBytes(stored, await tree.rootAt(shared))) return;
  const common = await commonLeaves(sql, tree, shared);
  throw new AdministrationError(
    `leaf ${common} of the database is not the published leaf ${common}, so nothing was appended: programs that ran on the restored database appended their own leaves. Restore the database again with every program stopped, or retire the log with "log end"`,
  );
}
