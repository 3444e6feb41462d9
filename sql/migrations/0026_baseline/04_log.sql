-- The log: entries, tiles, checkpoints, and logs that were retired.

-- The lock of this row is the append lock.
create table svc.log_head (
  one       boolean primary key default true check (one),
  tree_size bigint not null default 0 check (tree_size >= 0)
);
insert into svc.log_head default values;
call svc.keep_rows('delete', 'log_head');

-- Takes the append lock, so that no proof appears until the transaction ends.
create function svc.hold_appends() returns bigint language sql security definer
  set search_path = pg_catalog, pg_temp as $$
  select tree_size from svc.log_head for update
$$;

create function svc.head_only_grows() returns trigger language plpgsql as $$
begin
  if new.tree_size <= old.tree_size then
    raise exception 'svc.log_head may only grow' using errcode = 'insufficient_privilege';
  end if;
  if (select count(*) from svc.log_entry where leaf_index >= old.tree_size and leaf_index < new.tree_size)
     <> new.tree_size - old.tree_size then
    raise exception 'the log has no % leaves', new.tree_size using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_grows before update on svc.log_head for each row execute function svc.head_only_grows();

-- Entries --------------------------------------------------------------------------------------

-- One row per leaf. The canonical bytes of a proof's entry follow from its columns; `body` has those of
-- the other kinds. The AEP of a proof is rebuilt from the intake row and the payload columns, and must have the hash
-- `aep_hash`. The other columns repeat members of the AEP for lists and the publisher.
create table svc.log_entry (
  leaf_index        bigint primary key check (leaf_index >= 0),
  at                timestamptz(3) not null,
  tenant_no         integer,
  -- 1 proof, 2 status, 3 key, 4 erasure, 5 verdict, 6 snapshot
  kind              smallint not null check (kind between 1 and 6),
  lane              smallint check (lane in (1, 2)),              -- the type of the request: 1 execute, 2 agent
  is_outcome        boolean,
  proof_id          uuid unique,
  revokes           uuid,                                         -- status: the proof
  effect            text check (effect in ('ADMIT', 'DENY', 'REQUIRE_APPROVAL')),
  environment       text,
  key_id            text,
  aep_hash          bytea,
  proof_record_hash bytea,
  body              bytea,
  engine_version    text,
  validity          jsonb,                                        -- as in svc.intake; null: unlimited
  -- Payload, which can be erased.
  signature         bytea,
  reasons           jsonb,                                        -- policy ids, fact.<name>, budget.<counter>
  budgets           jsonb,                                        -- {counter: {window, before, after}}; null: none
  action            text,                                         -- null for an outcome
  intent_id         text collate "C",                             -- null for the agent request type
  parent            uuid                                          -- the proof that an agent request follows from
);
-- An adopted proof has its entry in `body`. Its tenant is known only if the admission was not lost.
alter table svc.log_entry add constraint log_entry_check check (case kind
  when 1 then num_nulls(proof_id, is_outcome, effect, environment, key_id, aep_hash, proof_record_hash) = 0
    and length(aep_hash) = 32 and length(proof_record_hash) = 32 and revokes is null
    and case when body is null then num_nulls(tenant_no, lane, engine_version) = 0
      else (tenant_no is null) = (lane is null) and num_nonnulls(engine_version, signature, reasons, budgets,
        action, intent_id, parent) = 0 end
  else body is not null and (revokes is not null) = (kind = 2)
    and num_nonnulls(proof_id, tenant_no, lane, is_outcome, effect, environment, key_id, aep_hash,
      proof_record_hash, engine_version, validity, signature, reasons, budgets, action, intent_id, parent) = 0
      end) not valid;
create index log_entry_status on svc.log_entry (revokes) where kind = 2;
create index log_entry_key on svc.log_entry (leaf_index) where kind = 3;
create index log_entry_of_tenant on svc.log_entry (tenant_no, leaf_index) where tenant_no is not null;
-- Not on a hash: row-level security keeps conditions with functions away from an index.
create index log_entry_intent on svc.log_entry (tenant_no, intent_id, leaf_index) where intent_id is not null;
create index log_entry_parent on svc.log_entry (tenant_no, parent, leaf_index) where parent is not null;
create index log_entry_latest on svc.log_entry (kind, leaf_index) where kind > 3;
-- Verdict entries that list leaves; few do.
create index log_entry_listing on svc.log_entry (leaf_index)
  where kind = 5 and (position('"failed":[]' in body) = 0 or position('"restored":[]' in body) = 0);
call svc.keep_rows('delete', 'log_entry');
create trigger audited after insert on svc.log_entry for each row
  when (new.kind in (2, 3)) execute function svc.record_act();
call svc.secure_rows('log_entry');
-- All entries but proofs are public. An adopted proof without a tenant is visible too: anyone can read in the public
-- log that it exists.
create policy own_tenants on svc.log_entry to svc_engine
  using (kind <> 1 or tenant_no is null or tenant_no = any ((select svc.tenants_in_scope())::integer[]));
create policy erasing on svc.log_entry to svc_erase using (true);
-- For the functions of 09_entries.sql, which run as the owner. Only proofs belong to tenants.
create policy appended on svc.log_entry for insert to current_user with check (kind > 3);
create policy appended_keys on svc.log_entry for insert to current_user with check (kind = 3);
create policy appended_to on svc.log_entry for select to current_user using (kind > 1);

-- Each role appends only its kinds of entries, the kinds from 4 on only through functions (09_entries.sql); a worker
-- only requested revocations, each once. Readers of the log see the body of an entry only, so the body of a status
-- or key entry of an administrator must not be another entry, such as a proof or an erasure. A worker's proofs come
-- by the hundred and are checked by statement, below.
create function svc.entry_follows_head() returns trigger language plpgsql as $$
declare
  said jsonb;
begin
  if (current_user = 'svc_worker' and new.kind = 3) or (current_user = 'svc_admin' and new.kind = 1)
     or (current_user in ('svc_worker', 'svc_admin') and new.kind > 3) then
    raise exception '% may not append entries of kind %', current_user, new.kind using errcode = 'insufficient_privilege';
  end if;
  if current_user in ('svc_worker', 'svc_admin') and new.kind > 1 then
    said := convert_from(new.body, 'UTF8')::jsonb;
  end if;
  if current_user = 'svc_admin' and (
      said ->> 'type' is distinct from (case new.kind when 2 then 'status' else 'key' end)
      or (new.kind = 2 and said ->> 'proof_id' is distinct from replace(new.revokes::text, '-', ''))) then
    raise exception 'the body is not an entry of kind %', new.kind using errcode = 'insufficient_privilege';
  end if;
  if current_user = 'svc_worker' and new.kind = 2 then
    if not exists (
      select from svc.revocation_request r where r.proof_id = new.revokes and r.refused is null
        and said ->> 'proof_id' = replace(r.proof_id::text, '-', '')
        and said ->> 'artifact_kind' = r.artifact_kind
        and said ->> 'reason_hash' = encode(r.reason_hash, 'hex')) then
      raise exception 'no tenant requested the revocation of %', new.revokes using errcode = 'insufficient_privilege';
    end if;
    if exists (
      select from svc.log_entry e where e.kind = 2 and e.revokes = new.revokes
        and convert_from(e.body, 'UTF8')::jsonb ->> 'artifact_kind' = said ->> 'artifact_kind') then
      raise exception 'the % of % is revoked already', said ->> 'artifact_kind', new.revokes using errcode = 'insufficient_privilege';
    end if;
  end if;
  if new.leaf_index < (select tree_size from svc.log_head) then
    raise exception 'leaf % is behind the head of the log', new.leaf_index using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger is_its_own before insert on svc.log_entry for each row
  when (new.kind <> 1 or current_user <> 'svc_worker') execute function svc.entry_follows_head();

create trigger is_not_adopted before insert on svc.log_entry for each row
  when (new.kind = 1 and new.body is not null and current_user in ('svc_worker', 'svc_admin'))
  execute function svc.refuse_change();

-- Frequent inserts are checked once per statement: checks by row took half of the database's time.
-- Each lookup is a scalar subquery, which is planned as an index lookup. An EXISTS may be planned as a
-- join with the whole table, and the cached plan stays while the table grows.

create function svc.entries_follow_head() returns trigger language plpgsql as $$
declare
  lowest constant bigint := (select min(leaf_index) from added);
  without uuid;
begin
  if lowest < (select tree_size from svc.log_head) then
    raise exception 'leaf % is behind the head of the log', lowest using errcode = 'insufficient_privilege';
  end if;
  select proof_id into without from added a where kind = 1 and body is null
    and (select true from svc.intake i where i.proof_id = a.proof_id and not i.refused) is null limit 1;
  if found then
    raise exception 'proof % was never accepted, or was rejected', without using errcode = 'foreign_key_violation';
  end if;
  return null;
end $$;
create trigger follow_head after insert on svc.log_entry referencing new table as added
  for each statement execute function svc.entries_follow_head();

-- Tiles and checkpoints ------------------------------------------------------------------------

create table svc.tile (
  level      smallint not null check (level >= 0),
  tile_index bigint not null check (tile_index >= 0),
  hashes     bytea not null check (length(hashes) between 32 and 8192 and length(hashes) % 32 = 0),
  primary key (level, tile_index)
);
alter table svc.tile alter column hashes set storage external;
call svc.keep_rows('delete', 'tile');

create function svc.tile_only_grows() returns trigger language plpgsql as $$
begin
  if new.level <> old.level or new.tile_index <> old.tile_index
     or length(new.hashes) <= length(old.hashes)
     or substring(new.hashes from 1 for length(old.hashes)) <> old.hashes then
    raise exception 'svc.tile % % may only be extended', old.level, old.tile_index using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_extends before update on svc.tile for each row execute function svc.tile_only_grows();

create table svc.checkpoint (
  tree_size  bigint primary key check (tree_size > 0),
  root       bytea not null check (length(root) = 32),
  note       text not null,
  created_at timestamptz(3) not null default now()
);
create index checkpoint_created on svc.checkpoint (created_at);
create trigger no_truncate before truncate on svc.checkpoint execute function svc.refuse_change();

-- A retired log: published leaves were lost. The leaves continue under another origin.
create table svc.ended_log (
  origin    text primary key check (origin <> ''),
  tree_size bigint not null check (tree_size > 0),                -- of its last checkpoint in the database
  reason    text not null check (reason <> ''),
  ended_at  timestamptz(3) not null default clock_timestamp()
);
create trigger audited after insert on svc.ended_log for each row execute function svc.record_act();

create table svc.ended_checkpoint (
  origin     text not null references svc.ended_log,
  tree_size  bigint not null,
  root       bytea not null,
  note       text not null,
  created_at timestamptz(3) not null,
  primary key (origin, tree_size)
);
call svc.keep_rows('update or delete', 'ended_checkpoint', 'ended_log');

-- Workers reject requests that depend on runs, counters or second decisions that a retired log lost, as after an
-- adoption, and sign under none of its delegations.
create view svc.retired_log as select origin, ended_at from svc.ended_log;

-- The database prevents changes of a checkpoint; only svc.end_log moves checkpoints.
create function svc.checkpoint_is_kept() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and exists (select from svc.ended_checkpoint e
    where e.origin = split_part(old.note, E'\n', 1) and e.tree_size = old.tree_size and e.note = old.note) then
    return old;
  end if;
  raise exception 'svc.checkpoint is append-only: % refused', tg_op using errcode = 'insufficient_privilege';
end $$;
create trigger is_kept before update or delete on svc.checkpoint for each row execute function svc.checkpoint_is_kept();

-- A second log under one origin would be a fork.
create function svc.log_has_not_ended() returns trigger language plpgsql as $$
begin
  if exists (select from svc.ended_log where origin = split_part(new.note, E'\n', 1)) then
    raise exception 'the log % is retired: no checkpoint may be stored for it', split_part(new.note, E'\n', 1)
      using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger has_not_ended before insert on svc.checkpoint for each row execute function svc.log_has_not_ended();

-- Retires the log `ending`: moves its checkpoints to svc.ended_checkpoint, and returns the size of the last one.
create function svc.end_log(ending text, why text) returns bigint language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  signed bigint;
begin
  -- The publisher holds this lock while it leads.
  if not pg_try_advisory_xact_lock(7566947, 1) then
    raise exception 'a publisher is running on this database: stop it first' using errcode = 'object_in_use';
  end if;
  select max(tree_size) into signed from svc.checkpoint where split_part(note, E'\n', 1) = ending;
  if signed is null or exists (select from svc.checkpoint where split_part(note, E'\n', 1) <> ending) then
    raise exception 'the log of this database is not %', ending using errcode = 'no_data_found';
  end if;
  insert into svc.ended_log (origin, tree_size, reason) values (ending, signed, why);
  insert into svc.ended_checkpoint (origin, tree_size, root, note, created_at)
    select ending, tree_size, root, note, created_at from svc.checkpoint;
  delete from svc.checkpoint;
  return signed;
end $$;
