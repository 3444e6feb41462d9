-- Adoption appends the published leaves that a restored database lost, byte for byte. Their payloads
-- are lost, as after an erasure.

create table svc.adoption (
  from_index bigint primary key check (from_index >= 0),
  to_index   bigint not null check (to_index > from_index),
  at         timestamptz(3) not null default clock_timestamp()
);
create trigger append_only before update or delete on svc.adoption
  for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.adoption execute function svc.refuse_change();
create trigger audited after insert on svc.adoption for each row execute function svc.record_act();

-- An adopted proof has its entry in `body`. Its tenant is known only if the admission was not lost.
-- Not validated, because the constraint before was stricter.
alter table svc.log_entry drop constraint log_entry_check, add constraint log_entry_check check (case kind
  when 1 then num_nulls(proof_id, is_outcome, effect, environment, key_id, aep_hash, proof_record_hash) = 0
    and length(aep_hash) = 32 and length(proof_record_hash) = 32 and revokes is null
    and case when body is null then num_nulls(tenant_no, lane, engine_version) = 0
      else (tenant_no is null) = (lane is null) and num_nonnulls(engine_version, signature, reasons, budgets,
        action, intent_id, parent) = 0 end
  else body is not null and (revokes is not null) = (kind = 2)
    and num_nonnulls(proof_id, tenant_no, lane, is_outcome, effect, environment, key_id, aep_hash,
      proof_record_hash, engine_version, validity, signature, reasons, budgets, action, intent_id, parent) = 0
      end) not valid;
create trigger is_not_adopted before insert on svc.log_entry for each row
  when (new.kind = 1 and new.body is not null and current_user in ('svc_worker', 'svc_admin'))
  execute function svc.refuse_change();

create or replace function svc.entries_follow_head() returns trigger language plpgsql as $$
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

-- No list of a tenant has a proof whose tenant is lost.
create function svc.skip_row() returns trigger language plpgsql as $$
begin
  return null;
end $$;
create trigger has_tenant before insert on svc.status_exception for each row
  when (new.tenant_no is null) execute function svc.skip_row();

create or replace function svc.erasure_is_complete() returns trigger language plpgsql as $$
begin
  if not exists (select from svc.log_entry e where e.proof_id = new.proof_id)
     and not exists (select from svc.refusal r where r.proof_id = new.proof_id) then
    raise exception 'admission % has no outcome', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  if not exists (select from svc.intake i where i.proof_id = new.proof_id
      and i.request is null and i.request_hash is null and i.seed is null
      and i.approval is null)
     and (exists (select from svc.intake i where i.proof_id = new.proof_id)
       or not exists (select from svc.log_entry e where e.proof_id = new.proof_id and e.body is not null))
     or exists (select from svc.log_entry e where e.proof_id = new.proof_id
      and (num_nonnulls(e.signature, e.reasons, e.budgets, e.action, e.intent_id, e.parent) > 0
        or e.leaf_index is distinct from new.leaf_index))
     or (new.leaf_index is not null
      and not exists (select from svc.log_entry e where e.proof_id = new.proof_id)) then
    raise exception 'the payload of % is not erased', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;

create or replace function svc.append_erasure(body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  entry constant jsonb := svc.members_of(body, 'erasure');
  range jsonb;
  last bigint := 0;
begin
  perform svc.require(entry ->> 'cause' in ('erased', 'lost'), 'expected the cause `erased` or `lost`'),
    svc.require(jsonb_array_length(entry -> 'ranges') between 1 and 1000, 'expected 1 to 1000 ranges');
  for range in select jsonb_build_object('from', pair -> 0, 'to', pair -> 1, 'more', pair -> 2)
      from jsonb_array_elements(entry -> 'ranges') as pair loop
    perform svc.require(range -> 'more' = 'null', 'a range has more than two indexes');
    perform svc.require(svc.index_in(range, 'from') >= last
      and svc.index_in(range, 'from') < svc.index_in(range, 'to'), 'the ranges are not ascending and disjoint');
    last := svc.index_in(range, 'to');
    perform svc.require((select count(*) from svc.erasure
        where leaf_index >= svc.index_in(range, 'from') and leaf_index < last) = last - svc.index_in(range, 'from'),
      'a range has a leaf without a record of its erasure'),
      svc.require(entry ->> 'cause' = 'erased' or exists (select from svc.adoption
        where from_index <= svc.index_in(range, 'from') and to_index >= last), 'a range has a leaf that was not lost');
  end loop;
  return svc.append_entry(4, svc.time_in(entry, 'time'), body);
end $$;

-- Extends the tree of `leaf` leaves by leaf hashes that all belong to its last level-0 tile.
create function svc.extend_tiles(leaf bigint, hashes bytea) returns void language plpgsql as $$
declare
  place bigint := leaf;
  tile bytea;
begin
  for of_level in 0..7 loop
    tile := coalesce((select t.hashes from svc.tile t where t.level = of_level and t.tile_index = place / 256), '');
    perform svc.require(length(tile) = place % 256 * 32,
      format('tile %s/%s does not match the log of %s leaves', of_level, place / 256, leaf));
    tile := tile || hashes;
    insert into svc.tile (level, tile_index, hashes) values (of_level, place / 256, tile)
      on conflict (level, tile_index) do update set hashes = excluded.hashes;
    exit when length(tile) < 8192;
    while length(tile) > 32 loop
      tile := (select string_agg(sha256('\x01' || substring(tile from n for 64)), '' order by n)
        from generate_series(1, length(tile), 64) as n);
    end loop;
    hashes := tile;
    place := place / 256;
  end loop;
end $$;

create or replace function svc.append_entry(of_kind integer, at timestamptz, body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  leaf constant bigint := svc.hold_appends();
begin
  perform svc.require(length(body) <= 65535, 'a log entry has at most 65535 bytes');
  insert into svc.log_entry (leaf_index, at, kind, body) values (leaf, at, of_kind, body);
  perform svc.extend_tiles(leaf, sha256('\x00' || body));
  update svc.log_head set tree_size = leaf + 1;
  return leaf;
end $$;

-- Takes the append lock and the publisher's lease until the transaction ends, and returns the size.
create function svc.begin_adoption(of_log text) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  size constant bigint := svc.hold_appends();
begin
  if not pg_try_advisory_xact_lock(7566947, 1) then
    raise exception 'a publisher is running on this database: stop it first' using errcode = 'object_in_use';
  end if;
  if exists (select from svc.ended_log where origin = of_log)
     or exists (select from svc.checkpoint where split_part(note, E'\n', 1) <> of_log) then
    raise exception 'the log of this database is not %, or that log is retired', of_log
      using errcode = 'no_data_found';
  end if;
  return size;
end $$;

-- The caller has verified the entries under a signed checkpoint, which the database cannot. Without an
-- erasure record an adopted proof fails verification, so no entry that is made up becomes valid.
create function svc.adopt_entries(first bigint, bodies bytea[]) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  size constant bigint := svc.hold_appends();
  ends constant bigint := first + cardinality(bodies);
begin
  perform set_config('svc.adopts', 'on', true),
    svc.require(pg_try_advisory_xact_lock(7566947, 1), 'a publisher is running on this database'),
    svc.require(size = first and first / 256 = (ends - 1) / 256, 'expected the next entries of one tile');
  insert into svc.log_entry (leaf_index, at, kind, revokes, proof_id, tenant_no, lane, is_outcome, effect,
    environment, key_id, aep_hash, proof_record_hash, validity, body)
  select first + n - 1, svc.time_in(entry, 'time'), of_kind,
    case of_kind when 2 then (entry ->> 'proof_id')::uuid end, (proof ->> 'proof_id')::uuid, i.tenant_no, i.lane,
    (proof ->> 'effect') = 'ADMIT' and not (proof -> 'valid_until') ? 'trust', proof ->> 'effect',
    proof ->> 'environment', proof ->> 'key_id', decode(proof ->> 'aep_hash', 'hex'),
    decode(proof ->> 'proof_record_hash', 'hex'), i.validity, body
  from unnest(bodies) with ordinality as given(body, n)
  cross join lateral (select convert_from(body, 'UTF8')::jsonb as entry) parsed
  cross join lateral (select array_position(array['proof', 'status', 'key', 'erasure', 'verdict', 'snapshot'],
    entry ->> 'type') as of_kind) typed
  cross join lateral (select case of_kind when 1 then entry end as proof) proved
  left join svc.intake i on i.proof_id = (proof ->> 'proof_id')::uuid and not i.refused
  order by n;
  perform svc.extend_tiles(first, (select string_agg(sha256('\x00' || body), '' order by n)
    from unnest(bodies) with ordinality as given(body, n)));
  update svc.log_head set tree_size = ends;
  perform set_config('svc.adopts', 'off', true);
end $$;

-- Records the adoption of the leaves from `first` on. Closes what is pending and has its outcome there.
create function svc.finish_adoption(first bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('svc.adopts', 'on', true);
  insert into svc.adoption (from_index, to_index) values (first, svc.hold_appends());
  with chunks as (
    delete from svc.chunk_pending c where exists (
      select from svc.batch_part p cross join unnest(p.proof_ids, p.replayed) as u(proof_id, replayed)
      join svc.log_entry e on e.proof_id = u.proof_id
      where p.batch_id = c.batch_id and p.first_index = c.first_index and u.replayed is not true
        and e.leaf_index >= first)
    returning *),
  items as (
    select u.proof_id, c.accepted_at, c.batch_id, coalesce(u.answers, 1) as items, e.effect
    from chunks c join svc.batch_part p using (batch_id, first_index)
    cross join lateral unnest(p.proof_ids, p.replayed, c.answers) as u(proof_id, replayed, answers)
    left join svc.log_entry e on e.proof_id = u.proof_id
    where u.replayed is not true and u.proof_id is not null),
  still_pending as (
    insert into svc.intake_pending (proof_id, accepted_at, batch_id, batch_items)
    select proof_id, accepted_at, batch_id, items from items where effect is null),
  singles as (
    delete from svc.intake_pending q using svc.log_entry e
    where e.proof_id = q.proof_id and e.leaf_index >= first
    returning q.batch_id, q.batch_items as items, e.effect),
  outcomes as (
    select batch_id, sum(items) as items, coalesce(sum(items) filter (where effect = 'ADMIT'), 0) as admitted,
      coalesce(sum(items) filter (where effect = 'DENY'), 0) as denied,
      coalesce(sum(items) filter (where effect = 'REQUIRE_APPROVAL'), 0) as approval_required
    from (select batch_id, items, effect from items union all select * from singles) decided
    where effect is not null and batch_id is not null group by batch_id)
  update svc.batch_progress g set pending = g.pending - o.items, admitted = g.admitted + o.admitted,
    denied = g.denied + o.denied, approval_required = g.approval_required + o.approval_required,
    completed_at = case when g.pending = o.items then date_trunc('milliseconds', clock_timestamp()) end
  from outcomes o where g.batch_id = o.batch_id;
  delete from svc.revocation_pending q using svc.revocation_request r, svc.log_entry e
  where r.request_id = q.request_id and e.kind = 2 and e.revokes = r.proof_id and e.leaf_index >= first
    and convert_from(e.body, 'UTF8')::jsonb ->> 'artifact_kind' = r.artifact_kind;
  perform set_config('svc.adopts', 'off', true);
end $$;

revoke all on function svc.skip_row(), svc.extend_tiles(bigint, bytea), svc.begin_adoption(text),
  svc.adopt_entries(bigint, bytea[]), svc.finish_adoption(bigint) from public;
grant execute on function svc.begin_adoption(text), svc.adopt_entries(bigint, bytea[]),
  svc.finish_adoption(bigint) to svc_erase;
grant select on svc.tile to svc_erase;
grant select on svc.adoption to svc_worker, svc_admin, svc_fsck;

-- For these functions, which run as the owner; otherwise an owner who is not a superuser sees no rows of tenants.
do $$
declare
  name text;
begin
  foreach name in array array['intake', 'intake_pending', 'chunk_pending', 'batch_part', 'batch_progress', 'refusal',
    'revocation_pending', 'revocation_request', 'status_exception', 'log_entry'] loop
    execute format($policy$create policy adopted on svc.%I to current_user
      using (current_setting('svc.adopts', true) = 'on')$policy$, name);
  end loop;
end $$;
-- Anyone can read in the public log that such a proof exists.
alter policy own_tenants on svc.log_entry
  using (kind <> 1 or tenant_no is null or tenant_no = any ((select svc.tenants_in_scope())::integer[]));
