import { parseEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import type { RevocationInHistory, VerdictInHistory } from '#protocol/history';
import type { KeyedEntry } from '#protocol/keys';
import type { StatusEntry } from '#protocol/schemas/log-entry';
import { parseTime } from '#protocol/time';
import { inMs } from '../db/columns.js';
import { type Pool, asTenants, type Db } from '../db/transaction.js';
import { keysInLog, treeSize, voidingLeaf } from '../log/log.js';
import { verdictHistories } from '../log/verdicts.js';
import type { Environment } from '../tenants/api-keys.js';
import { unpackAep } from './packed-aep.js';

/** A proof for its tenant; payload columns are null after an erasure. */
export interface StoredProof {
  proofId: string;
  tenantId: string;
  leafIndex: number;
  lane: 1 | 2;
  effect: 'ADMIT' | 'DENY';
  isOutcome: boolean;
  environment: Environment;
  keyId: string;
  aep: Buffer | null;
  signature: Buffer | null;
  /** Null after an erasure, like the two preceding members. */
  requestHash: Buffer | null;
  /** Whether an erasure record exists; without a record, missing payload is lost. */
  isErased: boolean;
  /** Epoch milliseconds. */
  acceptedAt: number;
  aepHash: Buffer;
  proofRecordHash: Buffer;
  /** Whether the log row at `leafIndex` is the entry of this proof with this acceptance time. */
  isLogged: boolean;
}

/** Stands for the hashes of a leaf that is not a proof: no bytes hash to it. */
const NO_HASH = Buffer.alloc(32);

/** One of the tenant's proofs; null for an unknown proof and for another tenant's. */
export function readProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<StoredProof | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<(Omit<StoredProof, 'acceptedAt'> & { acceptedAt: Date })[]>`
      select p.proof_id as "proofId", t.tenant_id as "tenantId", p.leaf_index as "leafIndex", p.lane,
        p.effect, p.is_outcome as "isOutcome", p.environment, p.key_id as "keyId", p.aep, p.signature,
        i.request_hash as "requestHash", i.accepted_at as "acceptedAt",
        case when p.aep is null then (select true from svc.erasure x where x.proof_id = p.proof_id) end
          is not null as "isErased",
        coalesce(e.aep_hash, ${NO_HASH}) as "aepHash",
        coalesce(e.proof_record_hash, ${NO_HASH}) as "proofRecordHash",
        e.kind = 1 and e.proof_id = p.proof_id and e.at = i.accepted_at as "isLogged"
      from svc.proof p
      join svc.intake i on i.proof_id = p.proof_id and i.tenant_no = p.tenant_no
      join svc.tenant t on t.tenant_no = p.tenant_no
      join svc.log_entry e on e.leaf_index = p.leaf_index
      where p.proof_id = ${proofId}::uuid and p.tenant_no = ${tenantNo}`;
    if (row === undefined) return null;
    return { ...inMs(row), aep: row.aep === null ? null : unpackAep(row.aep) };
  });
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
  /** Every key entry of the log; null when one is unreadable. */
  keys: KeyedEntry[] | null;
}

interface ProofFacts {
  proofId: string;
  leafIndex: number;
  isErased: boolean;
  keyId: string;
}

/** Not scoped to a tenant: the caller must have found the proof among the tenant's own. */
export async function proofHistory(
  db: Db,
  { proofId, leafIndex, isErased, keyId }: ProofFacts,
): Promise<ProofHistory> {
  // Reads verdicts first, so that the later reads include the causes of each verdict.
  const verdicts = (await verdictHistories(db, [leafIndex])).get(leafIndex) ?? [];
  const statuses = await statusesOf(db, [proofId]);
  const [keys, logSize] = await Promise.all([keysInLog(db), treeSize(db)]);
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
export class DamagedEntryError extends Error {
  override readonly name = 'DamagedEntryError';
}

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
    select e.leaf_index as "leafIndex", e.proof_id as "proofId", e.body,
      sha256('\\x00'::bytea || e.body)
        = substring(t.hashes from (e.leaf_index % 256)::int * 32 + 1 for 32) as "inTree"
    from svc.log_entry e
    left join svc.tile t on t.level = 0 and t.tile_index = e.leaf_index / 256
    where e.kind = 2 and e.proof_id = any(${[...proofIds]}::uuid[])
    order by e.leaf_index`;
  return rows.map(({ proofId, leafIndex, body, inTree }) => ({
    proofId,
    leafIndex,
    entry: inTree === true ? entryAbout(proofId, body) : null,
  }));
}

function entryAbout(proofId: string, body: Buffer): StatusEntry | null {
  try {
    const entry = parseEntry(body);
    return entry.type === 'status' && entry.proof_id === proofId ? entry : null;
  } catch (error) {
    if (error instanceof ProtocolError) return null;
    throw error;
  }
}
