import type { RecordedApproval } from '#protocol/approvals';
import { readEntry } from '#protocol/entries';
import type { RevocationInHistory, VerdictInHistory } from '#protocol/history';
import type { KeyedEntry } from '#protocol/keys';
import type { StatusEntry } from '#protocol/schemas/log-entry';
import { parseTime } from '#protocol/time';
import { arrayOf } from '../db/columns.js';
import { type Pool, asTenants, type Db, readAsTenants } from '../db/transaction.js';
import { keysInLog, voidingLeaf } from '../log/keys.js';
import { treeSize } from '../log/log.js';
import { verdictHistories } from '../log/verdicts.js';
import { aepColumns, rebuildAep, type AepRow, type Validity } from './rebuild-aep.js';
import { readApprovals } from '../admissions/references.js';

/** A proof for its tenant; its payload is null after an erasure. */
export interface StoredProof extends Omit<AepRow, 'approval' | 'at'> {
  leafIndex: number;
  lane: 1 | 2;
  isOutcome: boolean;
  /** The validity in the log entry; null: unlimited. */
  entryValidity: Validity | null;
  /** The AEP rebuilt from the rows; null when payload is missing, empty when the rows form no AEP. */
  aep: Buffer | null;
  /** The approval of a second decision; null otherwise. */
  approval: RecordedApproval | null;
  /** Whether an erasure record exists; without a record, missing payload is lost. */
  isErased: boolean;
  /** Epoch milliseconds. */
  acceptedAt: number;
  aepHash: Buffer;
  proofRecordHash: Buffer;
  /** Whether the entry has the acceptance time of the intake row. */
  hasIntakeTime: boolean;
  /** The hash in the tree at `leafIndex`; null when its tile is lost. */
  leafHash: Buffer | null;
}

/** One of the tenant's proofs; null for an unknown proof and for a proof of another tenant. */
export async function readProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<StoredProof | null> {
  return (await readProofs(sql, tenantNo, [proofId])).get(proofId) ?? null;
}

/** The tenant's proofs among these, by id. */
export function readProofs(
  sql: Pool,
  tenantNo: number,
  proofIds: readonly string[],
): Promise<Map<string, StoredProof>> {
  type Row = AepRow & Omit<StoredProof, 'acceptedAt' | 'aep' | 'approval'> & { isWhole: boolean };
  return asTenants(sql, [tenantNo], async (tx) => {
    const rows = await tx<Row[]>`
      select ${aepColumns(tx)}, e.leaf_index as "leafIndex", e.lane, e.is_outcome as "isOutcome",
        e.validity as "entryValidity", e.at = i.accepted_at as "hasIntakeTime", e.aep_hash as "aepHash",
        e.proof_record_hash as "proofRecordHash",
        num_nulls(i.request, i.request_hash, i.seed, e.reasons) = 0 as "isWhole",
        substring(l.hashes from (e.leaf_index % 256)::int * 32 + 1 for 32) as "leafHash",
        case when e.signature is null then
          (select true from svc.erasure x where x.proof_id = e.proof_id) end is not null as "isErased"
      -- "offset 0": the planner may otherwise choose to read every proof of the tenant.
      from (select * from svc.log_entry where proof_id = any(${arrayOf(proofIds)}::uuid[]) offset 0) e
      join svc.intake i on i.proof_id = e.proof_id and i.tenant_no = e.tenant_no
      join svc.tenant t on t.tenant_no = e.tenant_no
      left join svc.tile l on l.level = 0 and l.tile_index = e.leaf_index / 256
      where e.tenant_no = ${tenantNo}`;
    const approvals = await readApprovals(tx, rows);
    return new Map(
      rows.map((row) => {
        const aep = rebuildAep(row)?.bytes ?? (row.isWhole ? Buffer.alloc(0) : null);
        const approval = approvals.get(row.proofId) ?? null;
        return [row.proofId, { ...row, aep, approval, acceptedAt: row.at.getTime() }];
      }),
    );
  });
}

/** Whether the log has an adopted proof with this id, whose tenant is lost with its payload. */
export async function isAdopted(sql: Pool, tenantNo: number, proofId: string): Promise<boolean> {
  const adopted = (tx: Db) => tx`
    select from svc.log_entry where proof_id = ${proofId}::uuid and tenant_no is null`;
  return (await readAsTenants(sql, [tenantNo], adopted)).length > 0;
}

export interface ProofHistory {
  logSize: number;
  /** All verdicts, oldest first; the last is effective. */
  verdicts: VerdictInHistory[];
  /** All revocations in log order, repeated ones included. */
  revocations: RevocationInHistory[];
  /** Whether a revocation row differs from its log entry, so that its content is unknown. */
  isDamaged?: boolean;
  isErased?: boolean;
  /** The index of the entry that voids the proof; null or absent when the proof is not void. */
  voidedAt?: number | null;
  /** The key entries of the log, with delegations only of the proof's own key; null when an entry is unreadable. */
  keys: KeyedEntry[] | null;
}

/** The query is not limited to a tenant: the caller must have found the proof among the tenant's own. */
export async function proofHistory(
  db: Db,
  {
    proofId,
    leafIndex,
    isErased,
    keyId,
  }: Pick<StoredProof, 'proofId' | 'leafIndex' | 'isErased' | 'keyId'>,
): Promise<ProofHistory> {
  // Reads verdicts first, so that the later reads include the causes of each verdict.
  const verdicts = (await verdictHistories(db, [leafIndex])).get(leafIndex) ?? [];
  const statuses = await statusesOf(db, [proofId]);
  const [keys, logSize] = await Promise.all([keysInLog(db, [keyId]), treeSize(db)]);
  const revocations = statuses.flatMap(({ leafIndex: at, entry }): RevocationInHistory[] => {
    if (entry === null) return [];
    const { artifact_kind, reason_hash, time } = entry;
    return [{ leafIndex: at, kind: artifact_kind, at: parseTime(time), reasonHash: reason_hash }];
  });
  const isDamaged = statuses.some(({ entry }) => entry === null);
  const voidedAt = voidingLeaf(keys, keyId, leafIndex);
  return { logSize, verdicts, revocations, isDamaged, isErased, voidedAt, keys };
}

/** A status row of the proof differs from its log entry: it may have been a revocation. */
export class DamagedEntryError extends Error {}

export interface StatusOf {
  proofId: string;
  leafIndex: number;
  /** Null when the row differs from its log entry, so that its content is unknown. */
  entry: StatusEntry | null;
}

/**
 * The status rows of the proofs, in log order, each with its entry. The entry is null unless it names
 * this proof and hashes to its leaf in the tree: a manipulated row must not hide a revocation.
 */
export async function statusesOf(db: Db, proofIds: readonly string[]): Promise<StatusOf[]> {
  const rows = await db<(Omit<StatusOf, 'entry'> & { body: Buffer; inTree: boolean | null })[]>`
    select e.leaf_index as "leafIndex", e.revokes as "proofId", e.body,
      sha256('\\x00'::bytea || e.body)
        = substring(t.hashes from (e.leaf_index % 256)::int * 32 + 1 for 32) as "inTree"
    from svc.log_entry e
    left join svc.tile t on t.level = 0 and t.tile_index = e.leaf_index / 256
    where e.kind = 2 and e.revokes = any(${[...proofIds]}::uuid[])
    order by e.leaf_index`;
  return rows.map(({ proofId, leafIndex, body, inTree }) => {
    const entry = inTree === true ? readEntry(body) : null;
    const isAbout = entry?.type === 'status' && entry.proof_id === proofId;
    return { proofId, leafIndex, entry: isAbout ? entry : null };
  });
}
