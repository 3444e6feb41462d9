-- Batches: what came together, what each item of it became, and whose turn it is to be worked.

-- What came together ------------------------------------------------------------------------

create table svc.batch (
  batch_id    uuid primary key,
  tenant_no   integer not null references svc.tenant,
  key_no      integer not null,
  items_hash  bytea not null check (length(items_hash) = 32),      -- of the items in their order
  total       integer not null check (total > 0),
  request_id  text not null,                                       -- of the request, for the problems of its items
  accepted_at timestamptz(3) not null,
  unique (tenant_no, items_hash)                                   -- sent again, it is the same batch
);
create index batch_of_tenant on svc.batch (tenant_no, accepted_at, batch_id);

-- Its items in order, some hundreds a row: 16 bytes an item, where a row each would take a hundred.
create table svc.batch_part (
  batch_id    uuid not null references svc.batch,
  first_index integer not null check (first_index >= 0),
  proof_ids   uuid[] not null check (cardinality(proof_ids) > 0),  -- null where an item has a problem
  replayed    boolean[] check (cardinality(replayed) = cardinality(proof_ids)), -- points to an admission of before; null: none does
  problems    bytea,                                               -- of its items, as JSON, by their index
  primary key (batch_id, first_index)
);
alter table svc.batch_part alter column proof_ids set storage external;

-- How far it is: counted by whoever settles an item, in the transaction that settles it, so that
-- asking costs one row however many items there are.
create table svc.batch_progress (
  batch_id     uuid primary key references svc.batch,
  tenant_no    integer not null references svc.tenant,
  awaited      integer not null check (awaited >= 0),              -- pending when it was accepted
  pending      integer not null check (pending between 0 and awaited),
  admitted     integer not null check (admitted >= 0),
  denied       integer not null check (denied >= 0),
  refused      integer not null check (refused >= 0),
  invalid      integer not null check (invalid >= 0),
  replayed     integer not null check (replayed >= 0),
  completed_at timestamptz(3),
  check ((pending = 0) = (completed_at is not null))
);
create index batch_unfinished on svc.batch_progress (tenant_no) include (pending) where pending > 0;

-- Whose turn it is --------------------------------------------------------------------------

-- Pending with a batch: the batch counts it when it is settled, as so many of its items. No foreign
-- key, which costs more than the row; the policy below asks the same.
alter table svc.intake_pending
  add column batch_id    uuid,
  add column batch_items smallint check (batch_items > 0);
-- A batch comes back by its turns. What is looked through by age are the others, however many wait.
drop index svc.intake_pending_age;
create index intake_pending_age on svc.intake_pending (accepted_at, proof_id) where batch_id is null;

-- Parts that are to be worked, and those that were handed out a short while ago: a tenant's latest
-- says when it had its turn.
create table svc.batch_turn (
  batch_id    uuid not null references svc.batch,
  first_index integer not null,
  tenant_no   integer not null references svc.tenant,
  items       smallint not null check (items > 0),
  handed_at   timestamptz,
  primary key (batch_id, first_index)
);
create index batch_turn_next on svc.batch_turn (tenant_no, batch_id, first_index) where handed_at is null;
create index batch_turn_last on svc.batch_turn (tenant_no, handed_at) where handed_at is not null;
create index batch_turn_age on svc.batch_turn (handed_at) where handed_at is not null;

-- Items that point to an admission of before which was pending itself: counted when it is settled.
create table svc.batch_watch (
  proof_id uuid not null references svc.intake,
  batch_id uuid not null references svc.batch,
  items    smallint not null check (items > 0),
  primary key (proof_id, batch_id)
);

-- What may not change -----------------------------------------------------------------------

create trigger append_only before update or delete on svc.batch for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.batch_part for each row execute function svc.refuse_change();
create trigger append_only before delete on svc.batch_progress for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.batch execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.batch_part execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.batch_progress execute function svc.refuse_change();

-- What is pending becomes something else, and nothing else happens: no item is counted twice or lost.
create function svc.progress_only_settles() returns trigger language plpgsql as $$
begin
  if new.admitted < old.admitted or new.denied < old.denied or new.refused < old.refused
     or new.pending + new.admitted + new.denied + new.refused
       <> old.pending + old.admitted + old.denied + old.refused
     or (new.batch_id, new.tenant_no, new.awaited, new.invalid, new.replayed)
       is distinct from (old.batch_id, old.tenant_no, old.awaited, old.invalid, old.replayed)
     or old.completed_at is not null then
    raise exception 'batch % may only settle', old.batch_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_settles before update on svc.batch_progress for each row execute function svc.progress_only_settles();

-- Whose rows --------------------------------------------------------------------------------

do $$
declare
  tenants_table text;
begin
  foreach tenants_table in array array['batch', 'batch_part', 'batch_progress', 'batch_turn', 'batch_watch'] loop
    execute format('alter table svc.%I enable row level security', tenants_table);
    execute format('alter table svc.%I force row level security', tenants_table);
    execute format('create policy whole_registry on svc.%I
      to svc_worker, svc_verifier, svc_publisher, svc_admin using (true)', tenants_table);
  end loop;
end $$;

create policy own_tenants on svc.batch to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]));
create policy own_tenants on svc.batch_part to svc_engine
  using (exists (select from svc.batch b where b.batch_id = batch_part.batch_id));
create policy own_tenants on svc.batch_progress to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (exists (select from svc.batch b
    where b.batch_id = batch_progress.batch_id and b.tenant_no = batch_progress.tenant_no));
create policy own_tenants on svc.batch_turn to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (exists (select from svc.batch b
    where b.batch_id = batch_turn.batch_id and b.tenant_no = batch_turn.tenant_no));
create policy own_tenants on svc.batch_watch to svc_engine
  using (exists (select from svc.batch b where b.batch_id = batch_watch.batch_id))
  with check (exists (select from svc.batch b join svc.intake i using (tenant_no)
    where b.batch_id = batch_watch.batch_id and i.proof_id = batch_watch.proof_id));

-- Nobody's admission counts for somebody else's batch.
drop policy own_tenants on svc.intake_pending;
create policy own_tenants on svc.intake_pending to svc_engine
  using (exists (select from svc.intake i where i.proof_id = intake_pending.proof_id))
  with check (exists (select from svc.intake i where i.proof_id = intake_pending.proof_id
    and (intake_pending.batch_id is null or exists (select from svc.batch b
      where b.batch_id = intake_pending.batch_id and b.tenant_no = i.tenant_no))));

-- How much of batches is pending, of all tenants and of one: an engine sees no other tenant's rows,
-- and may learn the number.
create policy counted on svc.batch_progress for select to current_user using (true);
create function svc.batch_pending(of_tenant integer, out everybodys integer, out own integer)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(sum(pending), 0)::integer,
    coalesce(sum(pending) filter (where tenant_no = of_tenant), 0)::integer
  from svc.batch_progress where pending > 0
$$;

-- Who may what -------------------------------------------------------------------------------

revoke all on all functions in schema svc from public;

grant execute on function svc.batch_pending(integer) to svc_engine;
grant select, insert on svc.batch, svc.batch_part, svc.batch_progress, svc.batch_turn, svc.batch_watch
  to svc_engine;

grant select on svc.batch_part, svc.batch_progress, svc.batch_turn, svc.batch_watch to svc_worker;
grant update (pending, admitted, denied, refused, completed_at) on svc.batch_progress to svc_worker;
grant update (handed_at) on svc.batch_turn to svc_worker;
grant delete on svc.batch_turn, svc.batch_watch to svc_worker;

grant select on svc.batch, svc.batch_part, svc.batch_progress, svc.batch_turn, svc.batch_watch to svc_admin;
