-- Functions that take several steps in one statement: each statement is a message, which wakes two processes. They
-- have the rights of their caller.

-- The policy set in force now, not at the start of the transaction, which may have waited for a lock since.
create function svc.policy_in_force(out digest bytea, out at timestamptz) returns setof record
  language sql as $$
  select a.digest, t.at
  from (select date_trunc('milliseconds', clock_timestamp()) as at) t
  cross join lateral (select a.digest from svc.policy_activation a where active_from <= t.at
    order by active_from desc, activation_id desc limit 1) a;
$$;

-- The set that decides for a tenant: with the tenant's overlay if one is active. Null, which acceptance rejects,
-- if no set combines both.
create function svc.digest_of(tenant svc.tenant, operators bytea) returns bytea language sql stable as $$
  select case when tenant.overlay is null then operators else (select o.digest from svc.overlay_set o
    where o.tenant_no = tenant.tenant_no and o.overlay = tenant.overlay and o.base = operators) end;
$$;

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

revoke all on function svc.policy_in_force(), svc.digest_of(svc.tenant, bytea), svc.store_admissions(text, text,
  boolean, bytea, timestamptz, uuid[], integer[], smallint[], bytea, integer[], integer[], text[], integer[], text[],
  bigint[], boolean[]), svc.read_outcomes(text, uuid[]) from public;
grant select on svc.outcome to svc_engine;
grant execute on function svc.policy_in_force(), svc.digest_of(svc.tenant, bytea), svc.store_admissions(text, text,
  boolean, bytea, timestamptz, uuid[], integer[], smallint[], bytea, integer[], integer[], text[], integer[], text[],
  bigint[], boolean[]), svc.read_outcomes(text, uuid[]) to svc_engine;
