-- Policy sets of the operator, fixtures, and overlays: policies of one tenant on top of the operator's set.

create table svc.policy_set (
  digest     bytea primary key check (length(digest) = 32),
  manifest   text not null,
  files      jsonb not null,
  created_at timestamptz(3) not null default now()
);
create trigger audited after insert on svc.policy_set for each row execute function svc.record_act();

create table svc.policy_activation (
  activation_id bigint generated always as identity primary key,
  digest        bytea not null references svc.policy_set,
  active_from   timestamptz(3) not null default now()
);
create trigger audited after insert on svc.policy_activation for each row execute function svc.record_act();

create table svc.fixture (
  fixture_ref  text primary key,
  fixture_hash bytea not null check (length(fixture_hash) = 32),
  content      bytea not null,
  created_at   timestamptz(3) not null default now()
);
create trigger audited after insert on svc.fixture for each row execute function svc.record_act();

call svc.keep_rows('update or delete', 'fixture', 'policy_activation', 'policy_set');

-- The sets that a running transaction may have pinned, or that a later one will pin: the set in force one minute ago,
-- and each set that is activated after that time.
create function svc.policies_in_use() returns setof bytea language sql stable as $$
  select digest from svc.policy_activation
    where active_from > clock_timestamp() - interval '1 minute'
  union
  (select digest from svc.policy_activation where active_from <= clock_timestamp() - interval '1 minute'
    order by active_from desc, activation_id desc limit 1)
$$;

-- The policy set in force now, not at the start of the transaction, which may have waited for a lock since.
create function svc.policy_in_force(out digest bytea, out at timestamptz) returns setof record
  language sql as $$
  select a.digest, t.at
  from (select date_trunc('milliseconds', clock_timestamp()) as at) t
  cross join lateral (select a.digest from svc.policy_activation a where active_from <= t.at
    order by active_from desc, activation_id desc limit 1) a;
$$;

-- Overlays -------------------------------------------------------------------------------------

-- An overlay can only forbid.
create table svc.overlay (
  tenant_no  integer not null references svc.tenant,
  digest     bytea not null check (length(digest) = 32),          -- of the document
  document   text not null,                                       -- {id: text}, canonical
  key_no     integer not null,
  created_at timestamptz(3) not null default clock_timestamp(),
  primary key (tenant_no, digest)
);
create trigger audited after insert on svc.overlay for each row execute function svc.record_act();

-- The set that decides for a tenant: the operator's set `base`, and these policies. If a rule does not fit the base,
-- the set forbids everything.
create table svc.overlay_set (
  tenant_no integer not null,
  overlay   bytea not null,
  base      bytea not null references svc.policy_set,
  digest    bytea not null check (length(digest) = 32),
  manifest  text not null,
  policies  jsonb not null,
  sentences jsonb not null,
  unfit     text[] not null,                                      -- ids of the rules that do not fit
  primary key (tenant_no, overlay, base),
  foreign key (tenant_no, overlay) references svc.overlay,
  -- The base may not change: workers check that policies with such ids only forbid.
  check (policies <> '{}' and not jsonb_path_exists(policies, '$.keyvalue() ? (!(@.key starts with "overlay."))'))
);
create index overlay_set_digest on svc.overlay_set (digest, tenant_no);

call svc.keep_rows('update or delete', 'overlay', 'overlay_set');
call svc.secure_rows('overlay', 'svc_worker, svc_admin', is_own => true);
call svc.secure_rows('overlay_set', 'svc_worker, svc_admin', is_own => true);
-- For the functions below, which run as the owner.
create policy managed on svc.overlay to current_user using (true);
create policy managed on svc.overlay_set to current_user using (true);

-- The digest of a set with an overlay covers its base and the overlay's policies. Workers look up the base of a digest
-- to learn whether the set may decide, so a row with another base would let a superseded set decide.
create function svc.overlay_set_is_of_its_base() returns trigger language plpgsql as $$
begin
  if (new.digest = sha256(convert_to(new.manifest, 'UTF8')) and new.manifest::jsonb = (
      select jsonb_set(b.manifest::jsonb, '{policies_sha256}', b.manifest::jsonb -> 'policies_sha256' || (
        select jsonb_object_agg(key, encode(sha256(convert_to(value, 'UTF8')), 'hex'))
        from jsonb_each_text(new.policies)))
      from svc.policy_set b where b.digest = new.base)) is not true then
    raise exception 'the digest is not that of the base with these policies' using errcode = 'check_violation';
  end if;
  return new;
end $$;
create trigger is_of_its_base before insert on svc.overlay_set
  for each row execute function svc.overlay_set_is_of_its_base();

-- Every active overlay is combined with every set in use: else an admission would find no set and fail. The
-- lock excludes the activation of an overlay and of a set at the same time.
create function svc.overlays_are_combined() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_advisory_xact_lock(7566947, 4);
  if exists (select from svc.tenant t cross join svc.policies_in_use() as used
      where t.overlay is not null
        and t.tenant_no = coalesce((to_jsonb(new) ->> 'tenant_no')::integer, t.tenant_no)
        and used = coalesce((to_jsonb(new) ->> 'digest')::bytea, used)
        and not exists (select from svc.overlay_set s
          where s.tenant_no = t.tenant_no and s.overlay = t.overlay and s.base = used)) then
    raise exception 'an active overlay is not combined with a policy set' using errcode = 'SV001';
  end if;
  return null;
end $$;
create trigger overlays_are_combined after insert on svc.policy_activation
  for each row execute function svc.overlays_are_combined();
create trigger overlay_is_combined after update of overlay on svc.tenant
  for each row execute function svc.overlays_are_combined();

-- The set that decides for a tenant: with the tenant's overlay if one is active. Null, which acceptance rejects,
-- if no set combines both.
create function svc.digest_of(tenant svc.tenant, operators bytea) returns bytea language sql stable as $$
  select case when tenant.overlay is null then operators else (select o.digest from svc.overlay_set o
    where o.tenant_no = tenant.tenant_no and o.overlay = tenant.overlay and o.base = operators) end;
$$;

-- The engine changes overlays only by these functions, for a key of the tenant with the scope `policy`.
-- Null: the managing key is inactive or lacks the scope. False: the tenant has 500 overlays.
create function svc.store_overlay(managing integer, hash bytea, texts text, most integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  manager constant svc.api_key := svc.lock_managing_key(managing, 'overlay store', 'policy');
begin
  if manager.key_id is null then
    return null;
  end if;
  if (select count(*) from svc.overlay o where o.tenant_no = manager.tenant_no and o.digest <> hash) >= most then
    return false;
  end if;
  insert into svc.overlay (tenant_no, digest, document, key_no)
    values (manager.tenant_no, hash, texts, managing) on conflict do nothing;
  return true;
end $$;

-- False: the managing key is inactive or lacks the scope. Without sets, deactivates the overlay if it is active.
create function svc.activate_overlay(managing integer, hash bytea, sets jsonb) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  manager constant svc.api_key := svc.lock_managing_key(managing,
    case when sets is null then 'overlay deactivate' else 'overlay activate' end, 'policy');
begin
  insert into svc.overlay_set (tenant_no, overlay, base, digest, manifest, policies, sentences, unfit)
    select manager.tenant_no, hash, decode(s.base, 'hex'), decode(s.digest, 'hex'), s.manifest, s.policies,
      s.sentences, s.unfit
    from jsonb_to_recordset(sets) as s(base text, digest text, manifest text, policies jsonb, sentences jsonb,
      unfit text[])
    where manager.key_id is not null
    on conflict do nothing;
  update svc.tenant set overlay = case when sets is not null then hash end
    where tenant_no = manager.tenant_no and (overlay is distinct from hash) = (sets is not null);
  return manager.key_id is not null;
end $$;
