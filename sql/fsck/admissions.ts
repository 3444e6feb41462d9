import { readEntry } from '#protocol/entries';
import { arrayOf, batchIdOf, hexOf, valuesOf } from '../db/columns.js';
import { type Db, type Pool, readSnapshot } from '../db/transaction.js';
import { entriesWhere } from '../log/log.js';

export interface AdmissionRow {
  proofId: string;
  /** Whether the intake row is marked as rejected, which releases the deduplication key. */
  isRefused: boolean;
  hasProof: boolean;
  hasRefusal: boolean;
  isPending: boolean;
  /** Whether some of the admission's payload is missing. */
  lacksPayload: boolean;
  /** Whether some of the admission's payload is present. */
  hasPayload: boolean;
  isErased: boolean;
  /** The payload of an admission without a proof: no log entry covers this payload. */
  unproved: { request: Buffer; requestHash: Buffer } | null;
}

const inChunks = (sql: Db) => sql`
  select u.proof_id from svc.chunk_pending join svc.batch_part p using (batch_id, first_index)
  cross join lateral unnest(p.proof_ids, p.replayed) as u(proof_id, replayed)
  where u.proof_id is not null and u.replayed is not true`;

/** Admissions after `after`, in order of their ids. */
export async function admissionsFrom(
  sql: Db,
  after: string,
  limit: number,
): Promise<AdmissionRow[]> {
  const rows = await sql<(AdmissionRow & { request: Buffer | null; requestHash: Buffer | null })[]>`
    select i.proof_id as "proofId", i.refused as "isRefused", "hasProof",
      num_nulls(request, request_hash, seed) > 0 or (approves is null) <> (approval is null) as "lacksPayload",
      num_nonnulls(request, request_hash, seed, approval) > 0 as "hasPayload",
      case when not "hasProof" then i.request end as request,
      case when not "hasProof" then i.request_hash end as "requestHash",
      (select true from svc.refusal r where r.proof_id = i.proof_id) is not null as "hasRefusal",
      (select true from svc.intake_pending q where q.proof_id = i.proof_id) is not null
        or i.proof_id in (${inChunks(sql)}) as "isPending",
      (select true from svc.erasure x where x.proof_id = i.proof_id) is not null as "isErased"
    from (select * from svc.intake where proof_id > ${after}::uuid order by proof_id limit ${limit}) i
    cross join lateral (
      -- An adopted proof without a tenant does not belong to the admission, which was rejected after the restore.
      select (select true from svc.log_entry e where e.proof_id = i.proof_id and e.tenant_no is not null)
        is not null as "hasProof") found
    order by i.proof_id`;
  return rows.map(({ request, requestHash, ...row }) => ({
    ...row,
    unproved: request === null || requestHash === null ? null : { request, requestHash },
  }));
}

/** The number of admissions pending for longer than `ms` milliseconds, and the oldest acceptance time. */
export async function waitingLongerThan(sql: Db, ms: number) {
  const [row] = await sql<[{ count: number; oldest: Date | null }]>`
    select coalesce(sum(admissions), 0) as count, min(accepted_at) as oldest from (
      select 1 as admissions, accepted_at from svc.intake_pending
      union all select admissions, accepted_at from svc.chunk_pending) pending
    where accepted_at < now() - ${`${ms} milliseconds`}::interval`;
  return row;
}

type ItemCounts = Record<
  'admitted' | 'denied' | 'approval_required' | 'refused' | 'invalid' | 'replayed',
  number
>;

/** A batch with its stored counts and the counts computed from its items. */
export interface CheckedBatch {
  batchId: string;
  total: number;
  /** Whether the chunks are contiguous and add up to the batch's number of items. */
  arePartsWhole: boolean;
  /** Number of items whose admission is missing, or belongs to another tenant. */
  foreignItems: number;
  /** Number of items whose admission was erased. */
  erased: number;
  /** The stored items hash in hex; null when an item was erased. */
  itemsHash: string | null;
  /**
   * The hash computed from the items; null with invalid items, which are not stored, and if an erasure may have
   * deleted the hash of an earlier batch with these items.
   */
  foundHash: string | null;
  isComplete: boolean;
  counted: (ItemCounts & { pending: number }) | null;
  /** Items of an open batch that are not counted yet, from pending and batch_watch rows; 0 for a complete batch. */
  waiting: number;
  found: ItemCounts;
}

/** Batches after `after`, in order of their ids. */
export async function batchesFrom(sql: Db, after: string, limit: number): Promise<CheckedBatch[]> {
  // The pending tables have no index on batch_id, so one scan counts the rows of all batches of the page.
  const ofPage = (pending: string) => sql`
    exists (select from open) and ${sql(pending)}.batch_id > ${hexOf(after)}::uuid
    and ${sql(pending)}.batch_id <= (select batch_id from open order by batch_id desc limit 1)`;
  const rows = await sql<CheckedBatch[]>`
    with page as materialized (
      select * from svc.batch where batch_id > ${hexOf(after)}::uuid order by batch_id limit ${limit}),
    open as materialized (
      select batch_id from page left join svc.batch_progress g using (batch_id, tenant_no)
      where g.completed_at is null),
    waiting as materialized (
      select batch_id, sum(n)::integer as items from (
        select batch_id, batch_items as n from svc.intake_pending where ${ofPage('intake_pending')}
        union all select batch_id, items from svc.batch_watch where ${ofPage('batch_watch')}
        union all select batch_id, coalesce(u.answers, 1)
          from svc.chunk_pending c join svc.batch_part p using (batch_id, first_index)
          cross join lateral unnest(p.proof_ids, p.replayed, c.answers) as u(proof_id, replayed, answers)
          where ${ofPage('c')} and u.proof_id is not null and u.replayed is not true) pending
      group by batch_id)
    select b.batch_id as "batchId", b.total, encode(b.items_hash, 'hex') as "itemsHash",
      encode(compared.hash, 'hex') as "foundHash", parts.whole as "arePartsWhole",
      g.completed_at is not null as "isComplete", items."foreignItems", items.erased,
      coalesce(w.items, 0) as waiting,
      case when g.batch_id is not null then json_build_object('admitted', g.admitted,
        'denied', g.denied, 'approval_required', g.approval_required, 'refused', g.refused, 'invalid', g.invalid, 'replayed', g.replayed,
        'pending', g.pending) end as counted,
      json_build_object('admitted', items.admitted, 'denied', items.denied,
        'approval_required', items.approval_required, 'refused', items.refused,
        'invalid', items.invalid, 'replayed', items.replayed) as found
    from page b
    left join svc.batch_progress g on g.batch_id = b.batch_id and g.tenant_no = b.tenant_no
    left join waiting w on w.batch_id = b.batch_id and g.completed_at is null
    cross join lateral (
      select coalesce(sum(size) = b.total and bool_and(first_index = before), false) as whole from (
        select first_index, cardinality(proof_ids) as size,
          coalesce(sum(cardinality(proof_ids)) over (order by first_index
            rows between unbounded preceding and 1 preceding), 0) as before
        from svc.batch_part where batch_id = b.batch_id) p) parts
    cross join lateral (
      select count(*) filter (where e.effect = 'ADMIT') as admitted,
        count(*) filter (where e.effect = 'DENY') as denied,
        count(*) filter (where e.effect = 'REQUIRE_APPROVAL') as approval_required,
        count(*) filter (where e.proof_id is null and i.refused) as refused,
        count(*) filter (where u.proof_id is null) as invalid,
        count(*) filter (where u.replayed) as replayed,
        count(*) filter (where u.proof_id is not null and i.tenant_no is distinct from b.tenant_no) as "foreignItems",
        count(*) filter (where i.proof_id is not null and i.request_hash is null) as erased,
        case when bool_and(i.request_hash is not null) then
          sha256(string_agg(decode(lpad(i.lane::text, 2, '0'), 'hex') || i.request_hash, ''
            order by t.first_index, u.n)) end as hash
      from svc.batch_part t
      cross join lateral unnest(t.proof_ids, t.replayed) with ordinality as u(proof_id, replayed, n)
      left join svc.log_entry e on e.proof_id = u.proof_id and e.tenant_no is not null
      left join svc.intake i on i.proof_id = u.proof_id
      where t.batch_id = b.batch_id) items
    cross join lateral (
      -- Earlier batches with the same items: the hash of the next batch is computed from the hash and the id of the
      -- batch before.
      with recursive chain as (
        select items.hash
        union all
        select sha256(p.items_hash || uuid_send(p.batch_id))
        from chain c join svc.batch p on p.tenant_no = b.tenant_no and p.items_hash = c.hash
        where c.hash is distinct from b.items_hash)
      select case when items.hash is null then null
        when exists (select from chain where hash = b.items_hash) then b.items_hash
        -- Null if an erasure deleted the hash of an earlier batch: that batch may belong to the chain.
        when not exists (select from svc.batch p where p.tenant_no = b.tenant_no and p.items_hash is null
          and p.total = b.total and p.accepted_at <= b.accepted_at) then items.hash end as hash) compared
    order by b.batch_id`;
  return rows.map((row) => ({ ...row, batchId: batchIdOf(row.batchId) }));
}

type Query = (sql: Pool, limit: number) => Promise<{ at: string }[]>;

/**
 * Queries for rows that must not exist or whose counterpart is missing, each as its table and key.
 * Each query reads one snapshot, so that it sees concurrent inserts completely.
 */
export const ORPHAN_ROWS = {
  /** Missing batches that other rows refer to. */
  batches: (sql, limit) => sql`
    select distinct 'svc.batch batch_id=batch_' || replace(s.batch_id::text, '-', '') as at from (
      select batch_id from svc.batch_part union select batch_id from svc.batch_progress
      union select batch_id from svc.chunk_pending
      union select batch_id from svc.intake_pending where batch_id is not null) s
    left join svc.batch b using (batch_id) where b.batch_id is null order by at limit ${limit}`,
  /** Pending rows of admissions that are also pending in a chunk. */
  twice: (sql, limit) => sql`
    select 'svc.intake_pending proof_id=' || replace(proof_id::text, '-', '') as at
    from svc.intake_pending where proof_id in (${inChunks(sql)}) order by at limit ${limit}`,
  /** Missing packages that have member rows. */
  packages: (sql, limit) => sql`
    select distinct 'svc.trust_package package_id=pkg_' || replace(m.package_id::text, '-', '') as at
    from svc.package_member m left join svc.trust_package k using (package_id)
    where k.package_id is null order by at limit ${limit}`,
  /** Packages without a change number. */
  unchanged: (sql, limit) => sql`
    select 'svc.grant_change package_id=pkg_' || replace(package_id::text, '-', '') as at
    from svc.trust_package where package_id not in (
      select package_id from svc.grant_change where package_id is not null)
    order by at limit ${limit}`,
  /** Change numbers whose token or package is missing. */
  changes: (sql, limit) => sql`
    select 'svc.grant_change change_no=' || c.change_no as at from svc.grant_change c
    left join svc.share_token t on t.token_hash = c.token_hash
    left join svc.trust_package k on k.package_id = c.package_id
    where t.token_hash is null and k.package_id is null order by c.change_no limit ${limit}`,
  /** Erasure records of an unknown admission, or with a wrong leaf index. */
  erasures: (sql, limit) => sql`
    select 'svc.erasure proof_id=' || replace(x.proof_id::text, '-', '') as at from svc.erasure x
    left join svc.intake i using (proof_id) left join svc.log_entry e using (proof_id)
    where (i.proof_id is null and e.proof_id is null)
      or (e.proof_id is not null and x.leaf_index is distinct from e.leaf_index)
    order by at limit ${limit}`,
  /** Leaves that have a row in `svc.erasure` but are in no erasure entry of the log, or the reverse. */
  unlogged: (sql, limit) =>
    readSnapshot(sql, async (tx) => {
      // This function parses the entries, because a query that parses them would fail at a damaged entry.
      const ranges = (await entriesWhere(tx, tx`kind = 4`)).flatMap(({ body }) => {
        const entry = readEntry(body);
        return entry?.type === 'erasure' ? entry.ranges : [];
      });
      return tx`
        select 'svc.erasure leaf_index=' || coalesce(x.leaf_index, logged.leaf) as at
        from (select leaf_index from svc.erasure where leaf_index is not null) x
        full join (
          select generate_series(first, least(past, (select tree_size from svc.log_head)) - 1) as leaf
          from unnest(${arrayOf(ranges.map(([first]) => first))}::bigint[],
            ${arrayOf(ranges.map(([, past]) => past))}::bigint[]) as range(first, past)) as logged
          on logged.leaf = x.leaf_index
        where x.leaf_index is null or logged.leaf is null order by 1 limit ${limit}`;
    }),
  /** Pending rows and rejections without an intake row. */
  unaccepted: (sql, limit) => sql`
    select name || ' proof_id=' || replace(proof_id::text, '-', '') as at from (
      select 'svc.intake_pending' as name, proof_id from svc.intake_pending
      union all select 'svc.refusal', proof_id from svc.refusal) q
    left join svc.intake i using (proof_id) where i.proof_id is null order by at limit ${limit}`,
  /** Admissions that share a deduplication key, which the index forbids. */
  duplicates: (sql, limit) => sql`
    select 'svc.intake proof_id='
      || string_agg(replace(proof_id::text, '-', ''), ',' order by proof_id) as at
    from svc.intake where not refused and request_hash is not null and approves is null
    group by tenant_no, lane, request_hash having count(*) > 1 limit ${limit}`,
  /** Sets and overlays whose text or manifest does not have its stored hash. A manifest has the hashes of the texts. */
  policySets: (sql, limit) => sql`
    select name || ' digest=' || encode(digest, 'hex') as at from (
      select 'svc.policy_set' as name, digest, manifest as content, files, files -> 'policies' as policies
        from svc.policy_set
      union all select 'svc.overlay_set', s.digest, s.manifest, b.files, s.policies || (b.files -> 'policies')
        from svc.overlay_set s left join svc.policy_set b on b.digest = s.base
      union all select 'svc.overlay', digest, document, null, null from svc.overlay) stored
    where case when sha256(convert_to(content, 'UTF8')) is distinct from digest then true
      else name <> 'svc.overlay' and (content::jsonb -> 'policies_sha256', content::jsonb ->> 'schema_sha256',
          content::jsonb -> 'counters') is distinct from (
        (select coalesce(jsonb_object_agg(id, encode(sha256(convert_to(rule, 'UTF8')), 'hex')), '{}')
          from jsonb_each_text(case jsonb_typeof(policies) when 'object' then policies end) as texts(id, rule)),
        encode(sha256(convert_to(files ->> 'schema', 'UTF8')), 'hex'),
        coalesce(files -> 'counters', '{}')) end limit ${limit}`,
  /** Activations that the audit did not record, and recorded activations that are missing or differ. */
  activations: (sql, limit) => sql`
    select distinct 'svc.policy_activation digest=' || encode(coalesce(p.digest, a.digest), 'hex') as at
    from svc.policy_activation p
    full join (select (after ->> 'activation_id')::bigint as activation_id, (after ->> 'digest')::bytea as digest,
        (after ->> 'active_from')::timestamptz as active_from
      from svc.audit where object = 'policy_activation' and operation = 'INSERT') a
      using (activation_id, digest, active_from)
    where p.digest is null or a.digest is null order by at limit ${limit}`,
  /** Retired logs without their last checkpoint, and checkpoints of a retired log without a row in svc.ended_log. */
  retired: (sql, limit) => sql`
    select distinct 'svc.ended_log origin=' || origin as at from svc.ended_log l
    full join (select origin, max(tree_size) as tree_size, true as found from svc.ended_checkpoint group by origin) c
      using (origin, tree_size)
    where l.reason is null or c.found is null order by at limit ${limit}`,
  registrations: (sql, limit) => sql`
    select 'svc.approver registration_hash=' || encode(registration_hash, 'hex') as at from svc.approver
    where sha256(document) is distinct from registration_hash limit ${limit}`,
  fixtures: (sql, limit) => sql`
    select 'svc.fixture fixture_ref=' || fixture_ref as at from svc.fixture
    where sha256(content) is distinct from fixture_hash limit ${limit}`,
} as const satisfies Record<string, Query>;

/**
 * The first activation of a policy set, in epoch milliseconds; for a set combined with an overlay, the
 * first activation of its base set.
 *
 * @param digest hex
 */
export async function activeSince(sql: Db, digest: string): Promise<number | null> {
  const [row] = await sql<[{ since: Date | null }]>`
    select min(active_from) as since from svc.policy_activation
    where digest = decode(${digest}, 'hex')
      or digest in (select base from svc.overlay_set where digest = decode(${digest}, 'hex'))`;
  return row.since?.getTime() ?? null;
}

/** The ranges of leaves adopted from the published log, [from, to): their documents and admissions are lost. */
export const adoptedRanges = (sql: Db) => sql<{ from: number; to: number }[]>`
  select from_index as from, to_index as to from svc.adoption`;

/** The registrations among `hashes` (hex) that are not stored. */
export const unstoredRegistrations = (sql: Db, hashes: readonly string[]) =>
  valuesOf<string>(sql`
    select hash from unnest(${[...hashes]}::text[]) as hash
    where not exists (select from svc.approver where registration_hash = decode(hash, 'hex'))`);
