import { entryBytes, readEntry, revocationReasonBytes } from '#protocol/entries';
import { isProofId } from '#protocol/ids';
import type { StatusEntry } from '#protocol/schemas/log-entry';
import { isProofOnly, type ArtifactKind, type Decided } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { firstRow } from '../db/columns.js';
import {
  type Db,
  type Pool,
  type Transaction,
  asTenants,
  type OwnId,
  databaseTime,
} from '../db/transaction.js';
import { appendEntries, lockHead, type NewEntry } from '../log/append.js';
import { statusEntriesOf } from '../log/log.js';
import { DamagedEntryError, statusesOf } from '../proofs/read.js';
import { AdministrationError, joinTransaction } from '../tenants/audit.js';

export interface RevocationItem {
  requestId: string;
  keyNo: number;
  proofId: string;
  artifactKind: ArtifactKind;
  reasonHash: Uint8Array;
  document: Uint8Array;
}

/** The entry that revoked an artifact: the first of its revocations in the log. */
export interface LoggedRevocation {
  state: 'revoked';
  leafIndex: number;
  entry: StatusEntry;
}

export type RevocationRejection = 'api_key_revoked' | 'processing_failed';

export type RevocationOutcome = LoggedRevocation | { state: 'refused'; code: RevocationRejection };

export type RevocationRequestResult =
  | { outcome: 'unknown_proof' }
  /** Only the admission of an action has artifacts besides its proof. */
  | { outcome: 'absent_artifact' }
  | { outcome: 'revoked'; revocation: LoggedRevocation }
  /** `stored`: a worker will append or reject the request. `repeat`: the request is already pending. */
  | { outcome: 'stored' | 'repeat'; requestId: string };

/** Attempts to store a request. Another attempt is needed if a concurrent request was rejected. */
const MAX_ATTEMPTS = 8;

async function revocationInLog(
  tx: Db,
  proofId: string,
  kind: ArtifactKind,
): Promise<LoggedRevocation | null> {
  for (const { leafIndex, entry } of await statusesOf(tx, [proofId])) {
    if (entry === null) throw new DamagedEntryError(`leaf ${leafIndex} about proof ${proofId}`);
    if (entry.artifact_kind === kind) return { state: 'revoked', leafIndex, entry };
  }
  return null;
}

/** The decision of one of the tenant's proofs, or null. */
export const decidedOf = (tx: Db, tenantNo: number, proofId: string) =>
  firstRow(tx<Decided[]>`
    select effect, is_outcome as "isOutcome" from svc.log_entry
    where proof_id = ${proofId}::uuid and tenant_no = ${tenantNo}`);

/**
 * Stores a tenant's request to revoke an artifact of its own proof, unless the artifact is already
 * revoked or requested. A worker appends the entry, because the engine's role must not append.
 */
export function insertRevocationRequest(
  sql: Pool,
  tenantNo: number,
  item: RevocationItem,
): Promise<RevocationRequestResult> {
  const { requestId, proofId, artifactKind } = item;
  return asTenants(sql, [tenantNo], async (tx) => {
    const decided = await decidedOf(tx, tenantNo, proofId);
    if (decided === null) return { outcome: 'unknown_proof' };
    if (artifactKind !== 'proof' && isProofOnly(decided)) return { outcome: 'absent_artifact' };
    for (let round = 0; round < MAX_ATTEMPTS; round += 1) {
      const revocation = await revocationInLog(tx, proofId, artifactKind);
      if (revocation !== null) return { outcome: 'revoked', revocation };
      if (await insertRequest(tx, tenantNo, item)) return { outcome: 'stored', requestId };
      const first = await firstRequest(tx, tenantNo, proofId, artifactKind);
      if (first !== null) return { outcome: 'repeat', requestId: first };
      // A worker rejected the concurrent request meanwhile: try again.
    }
    throw new Error(`revocation requests of ${proofId} conflict repeatedly`);
  });
}

async function insertRequest(
  tx: Transaction,
  tenantNo: number,
  item: RevocationItem,
): Promise<boolean> {
  // Runs two statements, because a row-level security check on the pending row must see the request.
  const { requestId, keyNo, proofId, artifactKind, reasonHash, document } = item;
  const inserted = await tx`
    insert into svc.revocation_request
      (request_id, tenant_no, key_no, proof_id, artifact_kind, reason_hash, document)
    values (${requestId}::uuid, ${tenantNo}, ${keyNo}, ${proofId}::uuid, ${artifactKind},
      ${reasonHash}, ${document})
    on conflict (proof_id, artifact_kind) where refused is null do nothing`;
  if (inserted.count === 0) return false;
  await tx`
    insert into svc.revocation_pending (request_id, requested_at)
    select request_id, requested_at from svc.revocation_request
    where request_id = ${requestId}::uuid`;
  return true;
}

async function firstRequest(
  tx: Db,
  tenantNo: number,
  proofId: string,
  kind: ArtifactKind,
): Promise<string | null> {
  const [row] = await tx<{ id: string }[]>`
    select request_id as id from svc.revocation_request
    where proof_id = ${proofId}::uuid and artifact_kind = ${kind}
      and tenant_no = ${tenantNo} and refused is null`;
  return row?.id ?? null;
}

interface RequestRow {
  requestId: string;
  proofId: string;
  artifactKind: ArtifactKind;
  refused: RevocationRejection | null;
  isPending: boolean;
}

/** Columns of a RequestRow, from `svc.revocation_request r`. */
const requestColumns = (tx: Db) => tx`
  r.request_id as "requestId", r.proof_id as "proofId", r.artifact_kind as "artifactKind", r.refused,
  exists (select from svc.revocation_pending p where p.request_id = r.request_id) as "isPending"`;

async function outcomeOf(tx: Db, row: RequestRow): Promise<RevocationOutcome | null> {
  if (row.isPending) return null;
  if (row.refused !== null) return { state: 'refused', code: row.refused };
  return revocationInLog(tx, row.proofId, row.artifactKind);
}

/** The outcomes of the tenant's requests, by request id; pending requests are absent. */
export function readRevocationOutcomes(
  sql: Pool,
  requests: readonly OwnId[],
): Promise<Map<string, RevocationOutcome>> {
  const tenants = requests.map(({ tenantNo }) => tenantNo);
  return asTenants(sql, tenants, async (tx) => {
    const rows = await tx<RequestRow[]>`
      select ${requestColumns(tx)}
      from unnest(${requests.map(({ id }) => id)}::uuid[], ${tenants}::int[])
        as asked(request_id, tenant_no)
      join svc.revocation_request r using (request_id, tenant_no)`;
    const settled = new Map<string, RevocationOutcome>();
    for (const row of rows) {
      const outcome = await outcomeOf(tx, row);
      if (outcome !== null) settled.set(row.requestId, outcome);
    }
    return settled;
  });
}

/**
 * The revocation state of an artifact; null when no revocation was requested, or the proof is not
 * the tenant's.
 */
export function revocationState(
  sql: Pool,
  tenantNo: number,
  proofId: string,
  kind: ArtifactKind,
): Promise<'pending' | RevocationOutcome | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    if ((await decidedOf(tx, tenantNo, proofId)) === null) return null;
    const revocation = await revocationInLog(tx, proofId, kind);
    if (revocation !== null) return revocation;
    const [row] = await tx<RequestRow[]>`
      select ${requestColumns(tx)} from svc.revocation_request r
      where r.proof_id = ${proofId}::uuid and r.artifact_kind = ${kind}
        and r.tenant_no = ${tenantNo}
      order by r.requested_at desc, r.request_id desc limit 1`;
    if (row === undefined) return null;
    return (await outcomeOf(tx, row)) ?? 'pending';
  });
}

/** A claimed request, with checks of its columns, which are not trusted. */
export interface ClaimedRevocation {
  requestId: string;
  proofId: string;
  artifactKind: ArtifactKind;
  reasonHash: Buffer;
  document: Buffer;
  /** Whether the API key belongs to the tenant and is not revoked. */
  keyHolds: boolean;
  /** Whether the proof belongs to the tenant and has this artifact. */
  artifactHolds: boolean;
}

/**
 * Claims pending requests in this transaction, oldest first. Only one transaction can commit the
 * claim of a request.
 */
export function claimRevocations(tx: Transaction, requestIds: string[]) {
  return tx<ClaimedRevocation[]>`
    with claimed as (
      delete from svc.revocation_pending where request_id = any(${requestIds}::uuid[])
      returning request_id)
    select r.request_id as "requestId", r.proof_id as "proofId", r.artifact_kind as "artifactKind",
      r.reason_hash as "reasonHash", r.document,
      exists (select from svc.api_key k where k.key_no = r.key_no
        and k.tenant_no = r.tenant_no and k.revoked_at is null) as "keyHolds",
      exists (select from svc.log_entry e where e.proof_id = r.proof_id and e.tenant_no = r.tenant_no
        and (e.effect = 'ADMIT' and not e.is_outcome or r.artifact_kind = 'proof')) as "artifactHolds"
    from claimed join svc.revocation_request r using (request_id)
    where r.refused is null
    order by r.requested_at, r.request_id`;
}

/** Rejects claimed requests; the artifact can be requested again. */
export async function refuseRevocations(
  tx: Transaction,
  refusals: { requestId: string; code: RevocationRejection }[],
): Promise<void> {
  for (const { requestId, code } of refusals) {
    await tx`
      update svc.revocation_request set refused = ${code}
      where request_id = ${requestId}::uuid`;
  }
}

export async function insertReasons(
  tx: Transaction,
  reasons: { reasonHash: Buffer; document: Uint8Array }[],
): Promise<void> {
  if (reasons.length === 0) return;
  const rows = reasons.map(({ reasonHash, document }) => ({ reason_hash: reasonHash, document }));
  await tx`insert into svc.revocation_reason ${tx(rows)}`;
}

/** The log entry that revokes an artifact at `at`, in epoch milliseconds. */
export function revocationEntry(
  revocation: Pick<ClaimedRevocation, 'proofId' | 'artifactKind' | 'reasonHash'>,
  at: number,
): NewEntry {
  const { proofId, artifactKind, reasonHash } = revocation;
  const body = entryBytes({
    type: 'status',
    status: 'REVOKED',
    proof_id: proofId,
    artifact_kind: artifactKind,
    reason_hash: reasonHash.toString('hex'),
    time: formatTime(at),
  });
  return { kind: 'status', proofId, at, body };
}

interface Revocation {
  proofId: string;
  artifactKind: ArtifactKind;
  reason: string;
  actor: string;
  /** 32 random bytes in hex, so that a guessed reason cannot be confirmed from its public hash. */
  salt: string;
}

/**
 * Revokes an artifact permanently for an operator, without a request, and returns the index of its log
 * entry. The database stores the reason as `svc.registry.revocation_reason/1.0`; the log has only its hash.
 *
 * @throws AdministrationError when the proof is unknown, or the artifact is absent or already revoked: the log
 *   would keep such an entry forever, and monitors and fsck would report it
 */
export function appendRevocation(sql: Pool | Transaction, revocation: Revocation): Promise<number> {
  const { proofId, artifactKind, reason, actor, salt } = revocation;
  const unknown = new AdministrationError(`unknown proof ${proofId}`);
  if (!isProofId(proofId)) return Promise.reject(unknown);
  const document = revocationReasonBytes({
    proof_id: proofId,
    artifact_kind: artifactKind,
    reason,
    actor,
    salt,
  });
  const reasonHash = Buffer.from(nativeSha256(document));
  return joinTransaction(sql, async (tx) => {
    const size = await lockHead(tx);
    const [decided] = await tx<Decided[]>`
      select effect, is_outcome as "isOutcome" from svc.log_entry where proof_id = ${proofId}::uuid`;
    if (decided === undefined) throw unknown;
    if (artifactKind !== 'proof' && isProofOnly(decided)) {
      throw new AdministrationError(
        `${proofId} is not the admission of an action, so it has no ${artifactKind}: revoke its proof`,
      );
    }
    for (const { leafIndex, body } of await statusEntriesOf(tx, [proofId], size)) {
      const entry = readEntry(body);
      if (entry?.type !== 'status' || entry.artifact_kind !== artifactKind) continue;
      throw new AdministrationError(
        `the ${artifactKind} of ${proofId} is already revoked, by leaf ${leafIndex}`,
      );
    }
    await insertReasons(tx, [{ reasonHash, document }]);
    const entry = revocationEntry({ proofId, artifactKind, reasonHash }, await databaseTime(tx));
    await appendEntries(tx, size, [entry]);
    return size;
  });
}

export interface PendingRevocation {
  requestedAt: Date;
  requestId: string;
}

/** Requests pending for longer than `ms` milliseconds after `after`, oldest first. */
export function revocationsOlderThan(
  sql: Db,
  ms: number,
  limit: number,
  after: PendingRevocation | null = null,
): Promise<PendingRevocation[]> {
  return sql<PendingRevocation[]>`
    select request_id as "requestId", requested_at as "requestedAt" from svc.revocation_pending
    where (requested_at < now() - ${`${ms} milliseconds`}::interval
        or requested_at > now() + interval '1 second') -- the clock was set back since the request
      and (requested_at, request_id) > (${after?.requestedAt ?? new Date(0)}::timestamptz,
        ${after?.requestId ?? '0'.repeat(32)}::uuid)
    order by requested_at, request_id limit ${limit}`;
}
