import { type RunPlace, readApprovals } from '../admissions/references.js';
import type { VerdictInHistory } from '#protocol/history';
import type { Budgets } from '#protocol/policy-input';
import { type Tile, TILE_WIDTH } from '#protocol/tiles';
import { arrayOf, firstRow, inMs, valuesOf, type WithDates } from '../db/columns.js';
import { pipeline, type Pool, readSnapshot, type Db } from '../db/transaction.js';
import { type LeafEvidence, leafOf, type ProofRow } from '../log/leaf-checks.js';
import { entryColumns, PROOF, type EntryRow, type StoredCheckpoint } from '../log/log.js';
import type { Expiry } from '../log/verdicts.js';
import { otherAepColumns, rebuildAep, type AepRow } from '../proofs/rebuild-aep.js';

export interface StoredVerdict extends VerdictInHistory {
  firstIndex: number;
  lastIndex: number;
  root: Buffer;
  /** For a range verdict: the verifier's compact range, 32 bytes per subtree. */
  subtrees: Buffer | null;
  /** For a range verdict: the hash chain over the key entries of the prefix. */
  keysDigest: Buffer | null;
}

/** The registry's rows for a range of leaves, from one snapshot. */
export interface Chunk {
  leaves: StoredLeaf[];
  /** The tiles of these leaves, and the tile above them. */
  tiles: Tile[];
  /** Overlapping range verdicts and the verdicts on single leaves, in order of precedence. */
  verdicts: StoredVerdict[];
  expiries: Expiry[];
  /** Checkpoints of sizes in (from, to]. */
  checkpoints: StoredCheckpoint[];
  /** The last expiry scan of the verifier, in epoch milliseconds. */
  verifierCheckedAt: number | null;
  /** The verifier may still have to verify leaves below this index again, such as after a key compromise. */
  urgentUntil: number;
  /** The size of the verified prefix. */
  verified: number;
}

/** @param from a multiple of 256 */
export function readChunk(sql: Pool, from: number, to: number): Promise<Chunk> {
  return readSnapshot(sql, async (tx) => {
    const [leaves, tiles, verdicts, expiries, checkpoints, [state]] = await pipeline(
      readLeaves(tx, from, to),
      tx<Tile[]>`
        select level, tile_index as index, hashes from svc.tile
        where level = 0 and tile_index >= ${from / TILE_WIDTH}
            and tile_index < ${Math.ceil(to / TILE_WIDTH)}
          or level = 1 and tile_index >= ${Math.floor(from / TILE_WIDTH ** 2)}
            and tile_index <= ${Math.floor((to - 1) / TILE_WIDTH ** 2)}
        order by level, tile_index`,
      tx<WithDates<StoredVerdict, 'verifiedAt'>[]>`
        select verdict_id as "verdictId", frontier, first_index as "firstIndex",
          last_index as "lastIndex", tree_size as "treeSize", root, subtrees,
          keys_digest as "keysDigest", outcome, expired, verified_at as "verifiedAt",
          jsonb_path_query_array(checks, '$[*] ? (@.result == "fail").name') as "failedChecks"
        from (
          select * from svc.verdict where frontier and last_index >= ${from}
            and last_index < coalesce((select min(last_index) + 1 from svc.verdict
              where frontier and last_index >= ${to} - 1), ${to})
          union all
          select * from svc.verdict
          where not frontier and first_index >= ${from} and first_index < ${to}) as v
        order by tree_size, verdict_id`,
      tx<WithDates<Expiry, 'expiresAt'>[]>`
        select leaf_index as "leafIndex", artifact_kind as kind, expires_at as "expiresAt"
        from svc.expiry where leaf_index >= ${from} and leaf_index < ${to}`,
      tx<StoredCheckpoint[]>`
        select tree_size as "treeSize", root, note from svc.checkpoint
        where tree_size > ${from} and tree_size <= ${to} order by tree_size`,
      tx<{ verifierCheckedAt: Date | null; urgentUntil: number; verified: number }[]>`
        select (select done_at from svc.upkeep) as "verifierCheckedAt", urgent_until as "urgentUntil",
          coalesce((select max(last_index) + 1 from svc.verdict where frontier), 0) as verified
        from svc.scrub`,
    );
    return {
      leaves,
      tiles,
      verdicts: verdicts.map(inMs),
      expiries: expiries.map(inMs),
      checkpoints,
      verifierCheckedAt: state?.verifierCheckedAt?.getTime() ?? null,
      urgentUntil: state?.urgentUntil ?? 0,
      verified: state?.verified ?? 0,
    };
  });
}

/** A leaf with all of its rows: stored bytes, and columns that repeat them. */
export interface StoredLeaf extends Omit<LeafEvidence, 'proof'> {
  /** Epoch milliseconds. */
  at: number;
  /** The row of the proof; null for any other leaf. */
  proof: StoredProofRow | null;
  isErased: boolean;
  /** Whether the verifier has not yet recorded the erasure. */
  isErasureDue: boolean;
  isRevoked: boolean;
  /** Whether svc.status_exception has the leaf. */
  isException: boolean;
}

interface StoredProofRow extends Omit<ProofRow, 'isErased'> {
  tenantNo: number | null;
  budgets: Budgets | null;
  /** The hash of the request in the intake row, in hex. */
  requestHash: string;
  hasIntake: boolean;
  /** The columns of the intake row that differ from the log entry. */
  differing: string[];
  /** The place in a run, from the intake row; null when the request is in no run. */
  run: RunPlace | null;
  /** The payload columns, null where erased. */
  payload: Record<string, unknown>;
}

type Row = EntryRow &
  AepRow &
  Omit<StoredProofRow, 'requestHash' | 'rebuilt' | 'payload' | 'approval' | 'run'> &
  (RunPlace | { runKey: null }) &
  Pick<StoredLeaf, 'isErased' | 'isErasureDue' | 'isRevoked' | 'isException'>;

/** The leaves with indexes in [from, to), in order; missing leaves are absent. */
async function readLeaves(sql: Db, from: number, to: number): Promise<StoredLeaf[]> {
  const rows = await sql<Row[]>`
    select ${otherAepColumns(sql)}, ${entryColumns(sql)}, e.lane, e.is_outcome as "isOutcome", e.action,
      e.tenant_no as "tenantNo",
      e.intent_id as "intentId", e.parent, i.proof_id is not null as "hasIntake",
      array_remove(array[case when i.accepted_at <> e.at then 'accepted_at' end,
        case when i.environment <> e.environment then 'environment' end,
        case when i.tenant_no <> e.tenant_no then 'tenant_no' end,
        case when i.lane <> e.lane then 'lane' end,
        -- Rows with "approves" are exempt from deduplication, so each of them must have an approval.
        case when (i.approves is null) <> (i.approval is null) then 'approves' end], null) as differing,
      encode(i.run_key, 'hex') as "runKey", i.run_seq as seq, i.run_closes as closes,
      x.proof_id is not null as "isErased", d.leaf_index is not null as "isErasureDue",
      (select true from svc.log_entry s where s.kind = 2 and s.revokes = e.proof_id limit 1)
        is not null as "isRevoked",
      (select true from svc.status_exception s where s.tenant_no = e.tenant_no
        and s.leaf_index = e.leaf_index limit 1) is not null as "isException"
    from svc.log_entry e
    left join svc.intake i on i.proof_id = e.proof_id
    left join svc.tenant t on t.tenant_no = e.tenant_no
    left join svc.erasure x on x.proof_id = e.proof_id
    left join svc.erasure_due d on d.leaf_index = e.leaf_index
    where e.leaf_index >= ${from} and e.leaf_index < ${to}
    order by e.leaf_index`;
  const approvals = await readApprovals(sql, rows);
  return rows.map((row) => ({
    ...leafOf(row),
    at: row.at.getTime(),
    isErased: row.isErased,
    isErasureDue: row.isErasureDue,
    isRevoked: row.isRevoked,
    isException: row.isException,
    proof:
      row.kind === PROOF
        ? {
            ...row,
            run: row.runKey === null ? null : row,
            requestHash: row.requestHash?.toString('hex') ?? '',
            rebuilt: rebuildAep(row),
            approval: approvals.get(row.proofId) ?? null,
            payload: {
              request: row.request,
              request_hash: row.requestHash,
              seed: row.seed,
              approval: row.approval,
              signature: row.signature,
              reasons: row.reasons,
              budgets: row.budgets,
              action: row.action,
              intent_id: row.intentId,
              parent: row.parent,
            },
          }
        : null,
  }));
}

/** The log head and the rows that contradict it, from one snapshot. */
export interface HeadRows {
  /** The size of the head, or of the leaves if the row of the head is missing. */
  size: number;
  isMissing: boolean;
  /** Log rows at or beyond the size of the head. */
  entriesBeyond: number[];
  tilesBeyond: { level: number; index: number; hashes: number }[];
  lastCheckpoint: number;
  lastVerdict: number;
}

export async function readHead(sql: Db): Promise<HeadRows> {
  const [head] = await sql<[Omit<HeadRows, 'entriesBeyond' | 'tilesBeyond'>]>`
    select coalesce(tree_size, (select max(leaf_index) + 1 from svc.log_entry), 0) as size,
      tree_size is null as "isMissing",
      coalesce((select max(tree_size) from svc.checkpoint), 0) as "lastCheckpoint",
      coalesce((select max(last_index) + 1 from svc.verdict where frontier), 0) as "lastVerdict"
    from (select) as always left join svc.log_head on true`;
  const entriesBeyond = await valuesOf<number>(sql`
    select leaf_index from svc.log_entry where leaf_index >= ${head.size}
    order by leaf_index limit 100`);
  const tilesBeyond = await sql<HeadRows['tilesBeyond']>`
    select level, tile_index as index, length(hashes) / 32 as hashes from svc.tile
    where (tile_index * 256 + length(hashes) / 32) * (256::numeric ^ level) > ${head.size}
    order by level, tile_index limit 100`;
  return { ...head, entriesBeyond, tilesBeyond };
}

/**
 * The sizes among `sizes` without a stored checkpoint of this log. A restored database has adopted the leaves that it
 * lost, but not their checkpoints: sizes from its last checkpoint up to the end of the adoption are omitted.
 */
export const missingCheckpoints = (sql: Db, origin: string, sizes: readonly number[]) =>
  valuesOf<number>(sql`
    select size from unnest(${arrayOf(sizes)}::bigint[]) as size
    where not exists (select from svc.checkpoint where tree_size = size)
      and not exists (select from svc.ended_checkpoint e where e.origin = ${origin} and tree_size = size)
      and not exists (select from svc.adoption a where size <= a.to_index and not exists (
        select from svc.checkpoint where tree_size between size and a.from_index))`);

/** The largest checkpoint and its age by the database clock, in milliseconds. */
export const latestCheckpointTime = (sql: Db) =>
  firstRow(sql<{ size: number; ageMs: number }[]>`
    select tree_size as size,
      extract(epoch from clock_timestamp() - created_at)::float8 * 1000 as "ageMs"
    from svc.checkpoint order by tree_size desc limit 1`);
