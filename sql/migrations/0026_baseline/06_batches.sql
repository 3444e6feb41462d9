-- Batches, and their chunks of pending admissions.

create table svc.batch (
  batch_id    uuid primary key,
  tenant_no   integer not null references svc.tenant,
  key_no      integer not null,
  items_hash  bytea check (length(items_hash) = 32),              -- of the items in order
  total       integer not null check (total > 0),
  request_id  text not null,
  accepted_at timestamptz(3) not null,
  unique (tenant_no, items_hash)
);
create index batch_of_tenant on svc.batch (tenant_no, accepted_at, batch_id);
call svc.secure_rows('batch', is_own => true);
create policy erasing on svc.batch to svc_erase using (true);

-- Consecutive items of a batch: 16 bytes an item; one row for each item would take about 100.
create table svc.batch_part (
  batch_id    uuid not null references svc.batch,
  first_index integer not null check (first_index >= 0),
  proof_ids   uuid[] not null check (cardinality(proof_ids) > 0), -- null for an invalid item
  replayed    boolean[] check (cardinality(replayed) = cardinality(proof_ids)), -- null: no item is replayed
  problems    bytea,                                              -- JSON by item index
  primary key (batch_id, first_index)
);
alter table svc.batch_part alter column proof_ids set storage external;
call svc.secure_rows('batch_part');
create policy own_tenants on svc.batch_part to svc_engine
  using (exists (select from svc.batch b where b.batch_id = batch_part.batch_id));
create policy erasing on svc.batch_part to svc_erase using (true);

-- Counted in the transactions that commit outcomes, so that reading it costs one row.
create table svc.batch_progress (
  batch_id     uuid primary key references svc.batch,
  tenant_no    integer not null references svc.tenant,
  awaited      integer not null check (awaited >= 0),             -- pending at acceptance
  pending      integer not null check (pending between 0 and awaited),
  admitted     integer not null check (admitted >= 0),
  denied       integer not null check (denied >= 0),
  approval_required integer not null check (approval_required >= 0),
  refused      integer not null check (refused >= 0),
  invalid      integer not null check (invalid >= 0),
  replayed     integer not null check (replayed >= 0),
  completed_at timestamptz(3),
  check ((pending = 0) = (completed_at is not null))
);
create index batch_unfinished on svc.batch_progress (tenant_no) include (pending) where pending > 0;
call svc.secure_rows('batch_progress');
create policy own_tenants on svc.batch_progress to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (exists (select from svc.batch b
    where b.batch_id = batch_progress.batch_id and b.tenant_no = batch_progress.tenant_no));
create policy counted on svc.batch_progress for select to current_user using (true);

call svc.keep_rows('delete', 'batch', 'batch_part', 'batch_progress');

-- Pending items only get outcomes: no item is counted twice or lost. The error code names the row as the fault: with
-- the code for a missing right, workers would defer every admission in the group.
create function svc.progress_only_counts() returns trigger language plpgsql as $$
begin
  if new.admitted < old.admitted or new.denied < old.denied or new.refused < old.refused
     or new.approval_required < old.approval_required
     or new.pending + new.admitted + new.denied + new.approval_required + new.refused
       <> old.pending + old.admitted + old.denied + old.approval_required + old.refused
     or (new.batch_id, new.tenant_no, new.awaited, new.invalid, new.replayed)
       is distinct from (old.batch_id, old.tenant_no, old.awaited, old.invalid, old.replayed)
     or old.completed_at is not null then
    raise exception 'the counts of batch % may only advance', old.batch_id using errcode = 'check_violation';
  end if;
  return new;
end $$;
create trigger only_counts before update on svc.batch_progress for each row execute function svc.progress_only_counts();

-- Chunks whose new admissions have no outcome. Deleting the row claims all of them.
create table svc.chunk_pending (
  chunk_id    uuid primary key,                                   -- the proof id of its first new admission
  batch_id    uuid not null,
  first_index integer not null,
  tenant_no   integer not null references svc.tenant,
  accepted_at timestamptz(3) not null,
  admissions  smallint not null check (admissions > 0),           -- new ones
  answers     smallint[],                                         -- items of the batch that each answers; null: one each
  leased_at   timestamptz,
  foreign key (batch_id, first_index) references svc.batch_part
);
create index chunk_pending_next on svc.chunk_pending (tenant_no, batch_id, first_index) where leased_at is null;
create index chunk_pending_age on svc.chunk_pending (leased_at) where leased_at is not null;
call svc.secure_rows('chunk_pending');
create policy own_tenants on svc.chunk_pending to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (exists (select from svc.batch b
    where b.batch_id = chunk_pending.batch_id and b.tenant_no = chunk_pending.tenant_no));
create policy counted on svc.chunk_pending for select to current_user using (true);

-- A chunk is pending from the transaction that accepts its admissions, which cannot have outcomes yet.
create function svc.chunk_is_new() returns trigger language plpgsql as $$
declare
  listed integer;
  accepted integer;
begin
  select count(*), count(*) filter (where (select true from svc.intake i where i.proof_id = u.proof_id
      and i.tenant_no = new.tenant_no and i.accepted_at = new.accepted_at
      and i.xmin = pg_current_xact_id()::xid))
    into listed, accepted
    from svc.batch_part p cross join unnest(p.proof_ids, p.replayed) as u(proof_id, replayed)
    where p.batch_id = new.batch_id and p.first_index = new.first_index
      and u.proof_id is not null and u.replayed is not true;
  if listed <> new.admissions or accepted <> new.admissions then
    raise exception 'chunk % of batch % is not new', new.first_index, new.batch_id
      using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;
create trigger is_new after insert on svc.chunk_pending for each row execute function svc.chunk_is_new();

-- Numbers the last chunk lease of each tenant: the lowest number is next.
create table svc.chunk_lease (
  tenant_no integer primary key references svc.tenant,
  lease_no  bigint generated always as identity
);
call svc.secure_rows('chunk_lease', 'svc_worker', is_checked => false);

-- Items that point to an earlier pending admission, to be counted with its outcome.
create table svc.batch_watch (
  proof_id uuid not null references svc.intake,
  batch_id uuid not null references svc.batch,
  items    smallint not null check (items > 0),
  primary key (proof_id, batch_id)
);
call svc.secure_rows('batch_watch');
create policy own_tenants on svc.batch_watch to svc_engine
  using (exists (select from svc.batch b where b.batch_id = batch_watch.batch_id))
  with check (exists (select from svc.batch b join svc.intake i using (tenant_no)
    where b.batch_id = batch_watch.batch_id and i.proof_id = batch_watch.proof_id));

-- The engine sees one tenant at a time, but rejects all of them when the queue is full, so it may learn
-- this number. Counting stops at `most`, in physical order: an index scan takes ten times as long.
create function svc.pending_depth(most integer) returns integer language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = on as $$
  select (select count(*) from (select from svc.intake_pending limit most) as single)::integer
    + (select coalesce(sum(admissions), 0) from (select admissions from svc.chunk_pending limit most) as chunk)::integer
$$;

-- Pending batch items of all tenants (`everybodys`) and of one (`own`).
create function svc.batch_pending(of_tenant integer, out everybodys integer, out own integer)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(sum(pending), 0)::integer,
    coalesce(sum(pending) filter (where tenant_no = of_tenant), 0)::integer
  from svc.batch_progress where pending > 0
$$;
