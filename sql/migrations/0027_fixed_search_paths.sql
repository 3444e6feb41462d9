-- PL/pgSQL functions find types such as `jsonb` in the search path, where the temporary schema of the session comes
-- first. A role could replace a type, and so pass its checks or let its own functions run as the owner.
do $$
declare
  checked regprocedure;
begin
  for checked in select p.oid from pg_proc p join pg_language l on l.oid = p.prolang
      where p.pronamespace = 'svc'::regnamespace and l.lanname = 'plpgsql'
        and not exists (select from unnest(p.proconfig) as setting where setting like 'search_path=%') loop
    execute format('alter routine %s set search_path = pg_catalog, pg_temp', checked);
  end loop;
end $$;

-- A time zone of the session can give `Z` and `UTC` another meaning.
alter function svc.time_in set timezone = 'UTC';
alter function svc.adopted_time_is_not_ahead set timezone = 'UTC';
alter function svc.append_approver set timezone = 'UTC';

-- Counts the delegations before the time of the new one, too: a worker may state a time up to 60 seconds ago.
create or replace function svc.append_delegation(body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  leaf constant bigint := svc.hold_appends();
  entry constant jsonb := svc.members_of(body, 'key');
  until_index constant bigint := svc.index_in(entry -> 'delegation', 'until_index');
  max_proofs constant bigint := svc.index_in(entry -> 'delegation', 'max_proofs');
  root constant text := entry #>> '{delegation,root_key_id}';
  sig constant text := entry #>> '{delegation,sig}';
  public_key constant text := entry ->> 'public_key';
  -- RFC 7638
  id constant text := rtrim(translate(encode(sha256(convert_to(
    format('{"crv":"Ed25519","kty":"OKP","x":"%s"}', public_key), 'UTF8')), 'base64'), '+/', '-_'), '=');
begin
  perform svc.require(public_key ~ '^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$' and sig ~ '^[A-Za-z0-9+/]{85}[AQgw]==$',
      'a key or signature is malformed'),
    svc.require(convert_from(body, 'UTF8') = format('{"change":"activate","delegation":{"max_proofs":%s,'
      '"root_key_id":"%s","sig":"%s","until_index":%s},"key_id":"%s","public_key":"%s",'
      '"schema_version":"svc.registry.entry/1.1","time":"%s","type":"key","use":"aep"}', max_proofs, root, sig,
      until_index, id, public_key, entry ->> 'time'), 'not the canonical entry of a delegation'),
    svc.require(max_proofs <= 1000000 and until_index > leaf + 1 and until_index - leaf - 1 <= max_proofs,
      'the limits of the delegation are too wide, or used up'),
    svc.require((select array_agg(key ->> 'change' order by leaf_index) from (
        select e.leaf_index, convert_from(e.body, 'UTF8')::jsonb as key from svc.log_entry e
        where e.kind = 3 and position('"use":"aep_root"' in e.body) > 0) as roots
      where key ->> 'key_id' = root) = array['activate'], 'the root key is not active in the log'),
    svc.require(not exists (select from svc.log_entry e
      where e.kind = 3 and position(convert_to(id, 'UTF8') in e.body) > 0), 'the key is already in the log');
  if (select e.at from svc.log_entry e where e.kind = 3 and position('"delegation"' in e.body) > 0
      order by e.leaf_index desc limit 1 offset 59)
      > least(clock_timestamp(), svc.time_in(entry, 'time')) - interval '1 minute' then
    raise exception 'the log has 60 delegations of the last minute' using errcode = 'program_limit_exceeded';
  end if;
  return svc.append_entry(3, svc.time_in(entry, 'time'), body);
end $$;

-- Also requires that no publisher runs, and that no proof from `first` on was appended by a worker.
create or replace function svc.finish_adoption(first bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('svc.adopts', 'on', true);
  insert into svc.adoption (from_index, to_index) values (first, svc.hold_appends());
  perform svc.require(pg_try_advisory_xact_lock(7566947, 1), 'a publisher is running on this database'),
    svc.require(not exists (select from svc.log_entry where leaf_index >= first and kind = 1 and body is null),
      'a leaf was not adopted');
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

-- Rejects admissions whose checks would read an old snapshot, and admissions that are inserted as rejected.
create or replace function svc.intake_references_exist() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  -- Otherwise the checks below would read an old snapshot, without an overlay that its tenant activated since.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'an intake is inserted only in a transaction with the isolation level read committed'
      using errcode = 'insufficient_privilege';
  end if;
  if exists (select from added where refused) then
    raise exception 'an intake is inserted as rejected' using errcode = 'insufficient_privilege';
  end if;
  if exists (select from added where request is null or request_hash is null or seed is null
      or (approves is null) <> (approval is null)) then
    raise exception 'an intake has no payload' using errcode = 'not_null_violation';
  end if;
  if exists (select from (select distinct tenant_no from added) a
      where (select true from svc.tenant t where t.tenant_no = a.tenant_no) is null) then
    raise exception 'the tenant of an intake does not exist' using errcode = 'foreign_key_violation';
  end if;
  if exists (select from (select distinct tenant_no, policy_digest from added) a
      where (select true from svc.policy_set s where s.digest = a.policy_digest) is null
        and not exists (select from svc.overlay_set s where s.digest = a.policy_digest and s.tenant_no = a.tenant_no)) then
    raise exception 'the policy set of an intake does not exist' using errcode = 'foreign_key_violation';
  end if;
  -- Also if the overlay was activated during the insert, which is then repeated.
  if exists (select from (select distinct tenant_no, policy_digest from added) a
      join svc.tenant t using (tenant_no) where t.overlay is not null
        and not exists (select from svc.overlay_set s where s.digest = a.policy_digest
          and s.tenant_no = a.tenant_no and s.overlay = t.overlay)) then
    raise exception 'an intake leaves out the overlay of its tenant' using errcode = 'SV001';
  end if;
  -- An honest engine takes the time in the transaction of the insert; the clock may be set back meanwhile.
  if current_user = 'svc_engine' and exists (select from added
      where accepted_at < least(now(), clock_timestamp()) - interval '60 seconds') then
    raise exception 'an intake has a time before its transaction' using errcode = 'check_violation';
  end if;
  return null;
end $$;

-- A bundle of entries stores lengths in 16 bits: one longer entry in the log would stop its publication. Older rows
-- are not checked.
alter table svc.log_entry add constraint log_entry_body_length check (octet_length(body) <= 65535) not valid;
