-- Adoption appends the published leaves that a restored database lost, byte for byte. Their payloads
-- are lost, as after an erasure.

create table svc.adoption (
  from_index bigint primary key check (from_index >= 0),
  to_index   bigint not null check (to_index > from_index),
  at         timestamptz(3) not null default clock_timestamp()
);
call svc.keep_rows('update or delete', 'adoption');
create trigger audited after insert on svc.adoption for each row execute function svc.record_act();

-- No honest verifier appends a verdict entry before the time up to which the last one reports expiries. With a time
-- ahead, the false verdicts of a compromised `svc_erase` would therefore stay published until that time.
create function svc.adopted_time_is_not_ahead() returns trigger language plpgsql as $$
declare
  stated constant timestamptz := greatest(new.at,
    (convert_from(new.body, 'UTF8')::jsonb ->> 'expired_through')::timestamptz);
begin
  if stated > clock_timestamp() + interval '60 seconds' then
    raise exception 'leaf % has the time %, more than 60 seconds ahead of the clock of the database: correct the clock, or repeat the command after this time',
      new.leaf_index, to_char(stated at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  return new;
end $$;
create trigger is_not_ahead before insert on svc.log_entry for each row
  when (new.kind <> 1 and current_setting('svc.adopts', true) = 'on')
  execute function svc.adopted_time_is_not_ahead();

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

-- Records the adoption of the leaves from `first` on, and ends pending admissions and revocations whose outcomes these
-- leaves have.
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
