-- Admissions until their outcome, rejections, idempotency keys, and the counters of policy sets.

-- One row pins every input of one decision except the counter values, which svc.log_entry records.
-- Triggers replace the foreign keys, which would look up and lock each row. Erasure nulls the payload.
create table svc.intake (
  proof_id      uuid primary key,
  tenant_no     integer not null,
  lane          smallint not null check (lane in (1, 2)),         -- 1 execute, 2 agent
  environment   text not null check (environment in ('sandbox', 'live')),
  request       bytea,                                            -- RFC 8785 form
  request_hash  bytea check (length(request_hash) = 32),
  accepted_at   timestamptz(3) not null,
  seed          bytea check (length(seed) = 32),                  -- HMAC key of the salts of the AEP
  policy_digest bytea not null,
  fixture_hash  bytea,
  validity      jsonb,                                            -- null: unlimited
  refused       boolean not null default false,
  key_no        integer,                                          -- revoking the key also rejects its pending admissions
  bound         boolean not null default false,                   -- the API key is restricted to the agent of the request
  -- The place in a run, null outside of runs. An erasure keeps it, so that no other request gets its number.
  run_key       bytea check (length(run_key) = 32),               -- hash of agent id and run id
  run_seq       bigint check (run_seq >= 0),
  run_closes    boolean,                                          -- the request ends the run
  approves      uuid,                                             -- second decision: the pending proof
  approval      bytea,                                            -- second decision: approval, registration and reasons of the pending proof
  check (num_nulls(run_key, run_seq, run_closes) in (0, 3)),
  check (approval is null or approves is not null)
);
-- An older row may exceed the next two limits: workers can still reject it, and erasures still erase it.
-- Workers cannot read a larger number, and every group with such an admission would fail.
alter table svc.intake add check (run_seq <= 9007199254740991 or refused or request is null) not valid;
-- A compromised engine could store rows that exhaust the memory of workers. The API admits smaller ones.
alter table svc.intake add check (refused or request is null or (octet_length(request) <= 65536
  and octet_length(approval) <= 1048576 and octet_length(validity::text) <= 1024) is not false) not valid;
-- The deduplication key. A rejected admission releases it.
create unique index intake_identity on svc.intake (tenant_no, lane, request_hash) where not refused and approves is null;
-- A pending proof has one second decision. A rejected approval releases it.
create unique index intake_approves on svc.intake (approves) where not refused and approves is not null;
-- A number in a run belongs to one request, and to its second decision. Requests outside of runs cost nothing.
create unique index intake_run on svc.intake (tenant_no, run_key, run_seq, approves) nulls not distinct
  where run_key is not null and not refused;
create index intake_close on svc.intake (tenant_no, run_key) where run_closes and not refused;
call svc.keep_rows('delete', 'intake');
create trigger keeps_its_id before update of proof_id, tenant_no, policy_digest, approves on svc.intake
  for each row execute function svc.refuse_change();
call svc.secure_rows('intake', is_own => true);
create policy erasing on svc.intake to svc_erase using (true);

-- Replaces foreign keys: referenced rows never disappear, so no lock is needed. A compromised engine could state a
-- time far in the past, so that a superseded policy set or an expired approval counted.
create function svc.intake_references_exist() returns trigger language plpgsql as $$
begin
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
create trigger references_exist after insert on svc.intake referencing new table as added
  for each statement execute function svc.intake_references_exist();

-- Single admissions without an outcome. Deleting the row is the claim, so only one transaction can append.
-- The admissions of a batch are pending in svc.chunk_pending until their chunk is split.
create table svc.intake_pending (
  proof_id    uuid primary key,
  accepted_at timestamptz(3) not null,
  batch_id    uuid,
  batch_items smallint check (batch_items > 0)                    -- items of the batch that it answers
);
create index intake_pending_age on svc.intake_pending (accepted_at, proof_id);

-- Rows without a tenant, here and below, belong to the tenant of their parent, whose policy decides. A statement
-- does not see its own inserts, so the parent is inserted by an earlier statement.
call svc.secure_rows('intake_pending');
create policy own_tenants on svc.intake_pending to svc_engine
  using (exists (select from svc.intake i where i.proof_id = intake_pending.proof_id))
  with check (batch_id is null and exists (select from svc.intake i where i.proof_id = intake_pending.proof_id));
create policy counted on svc.intake_pending for select to current_user using (true);

-- An admission with an outcome is never pending again.
create function svc.pending_has_no_outcome() returns trigger language plpgsql as $$
declare
  wrong uuid;
begin
  select proof_id into wrong from added a
    where (select true from svc.intake i where i.proof_id = a.proof_id) is null limit 1;
  if found then
    raise exception 'admission % was never accepted', wrong using errcode = 'foreign_key_violation';
  end if;
  select proof_id into wrong from added a
    where (select true from svc.log_entry e where e.proof_id = a.proof_id)
      or (select true from svc.refusal r where r.proof_id = a.proof_id) limit 1;
  if found then
    raise exception 'admission % has an outcome', wrong using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;
create trigger has_no_outcome after insert on svc.intake_pending referencing new table as added
  for each statement execute function svc.pending_has_no_outcome();

-- Rejections of accepted admissions: a check or an error ended the admission before a proof was signed.
create table svc.refusal (
  proof_id   uuid primary key references svc.intake,
  code       text not null,
  detail     text not null,
  refused_at timestamptz(3) not null default now()
);
call svc.secure_rows('refusal');
create policy own_tenants on svc.refusal to svc_engine
  using (exists (select from svc.intake i where i.proof_id = refusal.proof_id));
create policy erasing on svc.refusal to svc_erase using (true);

create function svc.refused_has_no_proof() returns trigger language plpgsql as $$
begin
  if not new.refused or exists (select from svc.log_entry where proof_id = new.proof_id)
     or not exists (select from svc.refusal where proof_id = new.proof_id) then
    raise exception 'admission % is not refused', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger has_no_proof before update of refused on svc.intake for each row execute function svc.refused_has_no_proof();

create table svc.idempotency_key (
  tenant_no    integer not null references svc.tenant,
  lane         smallint not null,                                 -- 3 for batches
  key          text not null,
  request_hash bytea not null,
  created_at   timestamptz(3) not null default now(),
  primary key (tenant_no, lane, key)
);
call svc.secure_rows('idempotency_key', is_checked => false, is_own => true);

-- Counters -------------------------------------------------------------------------------------

-- Workers compare and set counters under the append lock, so that concurrent admissions cannot overspend.
create table svc.counter (
  tenant_no  integer not null references svc.tenant,
  -- An unsalted hash of the definition, agent id and run id: the counter outlives the erasure of its requests.
  key        bytea not null check (length(key) = 32),
  period     text not null,                                       -- the UTC day, or 'run'
  name       text not null,
  value      bigint not null check (value between 0 and 9007199254740991),
  leaf_index bigint not null check (leaf_index >= 0),             -- of the last proof that changed it
  primary key (tenant_no, key, period)
);
call svc.keep_rows('delete', 'counter');
call svc.secure_rows('counter', 'svc_worker');

create function svc.counter_only_grows() returns trigger language plpgsql as $$
begin
  if new.value < old.value or new.leaf_index <= old.leaf_index
     or (new.tenant_no, new.key, new.period, new.name) is distinct from (old.tenant_no, old.key, old.period, old.name) then
    raise exception 'svc.counter may only grow' using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_grows before update on svc.counter for each row execute function svc.counter_only_grows();

-- Functions of the engine ----------------------------------------------------------------------

-- The functions below combine several steps in one statement, because each round trip wakes a process on both sides.
-- They run with the rights of their caller.

-- Stores the admissions whose deduplication key and number in the run are free, and returns their ids. The columns
-- of one admission have the same position in each array; `packed` holds the hash, the seed and the request of each.
-- Without a policy set, the one in force is pinned; if there is none, nothing is stored.
--
-- scope, lock_ms: settings of the transaction; null leaves them
-- singly: whether the admissions are pending one by one, not in a chunk of a batch
create function svc.store_admissions(scope text, lock_ms text, singly boolean, pinned bytea, pinned_at timestamptz,
  ids uuid[], tenants integer[], lanes smallint[], packed bytea, starts integer[], lengths integer[],
  fixtures text[], keys integer[], run_keys text[], run_seqs bigint[], closes boolean[])
  returns setof uuid language plpgsql as $$
declare
  stored uuid[];
begin
  if scope is not null then
    perform set_config('svc.tenants', scope, true);
  end if;
  if lock_ms is not null then
    perform set_config('lock_timeout', lock_ms, true);
  end if;
  if pinned is null then
    select digest, at into pinned, pinned_at from svc.policy_in_force();
    if not found then
      return;
    end if;
  end if;
  with stored_rows as (
    insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
      accepted_at, seed, policy_digest, fixture_hash, validity, key_no, bound, run_key, run_seq, run_closes)
    select i.proof_id, t.tenant_no, i.lane, t.environment,
      substring(packed from i.start + 64 for i.length - 64), substring(packed from i.start for 32), pinned_at,
      substring(packed from i.start + 32 for 32), svc.digest_of(t, pinned), f.fixture_hash,
      nullif(t.validity, '{"proof":null,"certificate":null,"passport":null,"trust":null}'), i.key_no, k.agent_id is not null,
      decode(i.run_key, 'hex'), i.run_seq, i.run_closes
    from unnest(ids, tenants, lanes, starts, lengths, fixtures, keys, run_keys, run_seqs, closes)
      with ordinality as i(proof_id, tenant_no, lane, start, length, fixture_ref, key_no, run_key, run_seq,
        run_closes, n)
    join svc.tenant t using (tenant_no)
    left join svc.fixture f using (fixture_ref)
    left join svc.api_key k on k.key_no = i.key_no and k.tenant_no = i.tenant_no
    order by i.n
    -- The deduplication key, or the number in the run, is in use.
    on conflict do nothing
    returning proof_id)
  select array_agg(proof_id) into stored from stored_rows;
  -- A separate statement: the row check needs a visible intake row.
  if singly then
    insert into svc.intake_pending (proof_id, accepted_at)
      select proof_id, accepted_at from svc.intake where proof_id = any(stored);
  end if;
  return query select unnest(stored);
end $$;

-- Each admission with its proof or its rejection.
-- "+ 0": with a plain condition, a cached plan reads every proof of the tenant.
create view svc.outcome with (security_invoker) as
  select i.proof_id, i.tenant_no, i.lane, i.approves, i.refused, e.effect, i.request_hash, e.leaf_index,
    case when e.effect <> 'ADMIT' then e.reasons end as reasons, i.policy_digest, i.accepted_at,
    i.validity ->> 'approval' as approval_seconds, r.code, r.detail
  from svc.intake i
  left join svc.log_entry e on e.proof_id = i.proof_id and e.tenant_no + 0 = i.tenant_no
  left join svc.refusal r on r.proof_id = i.proof_id;

-- scope: the tenants whose rows are visible. The caller checks the tenant of each row as well.
create function svc.read_outcomes(scope text, ids uuid[]) returns setof svc.outcome language plpgsql as $$
begin
  perform set_config('svc.tenants', scope, true);
  return query select * from svc.outcome o where o.proof_id = any(ids);
end $$;
