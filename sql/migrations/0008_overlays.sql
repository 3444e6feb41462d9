-- Overlays: policies of one tenant on top of the operator's set. They can only forbid.

create table svc.overlay (
  tenant_no  integer not null references svc.tenant,
  digest     bytea not null check (length(digest) = 32),          -- of the document
  document   text not null,                                       -- {id: text}, canonical
  key_no     integer not null,
  created_at timestamptz(3) not null default clock_timestamp(),
  primary key (tenant_no, digest)
);

-- The set that decides for a tenant: the operator's set `base`, and these policies. In place of a rule that
-- does not fit the base, it forbids everything.
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

-- In force; null: none. `overlays_are_combined` replaces a foreign key.
alter table svc.tenant add column overlay bytea;

-- The sets that may decide an admission now or later. A transaction pins one before it inserts.
create function svc.policies_in_use() returns setof bytea language sql stable as $$
  select digest from svc.policy_activation
    where active_from > clock_timestamp() - interval '1 minute'
  union
  (select digest from svc.policy_activation where active_from <= clock_timestamp() - interval '1 minute'
    order by active_from desc, activation_id desc limit 1)
$$;

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

-- The engine changes overlays only by these functions, for a key of the tenant with the scope `policy`.
-- Null: the key may not. False: the tenant has too many.
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

-- False: the key may not. Without sets, deactivates the overlay if it is active.
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

do $$
declare
  name text;
begin
  foreach name in array array['overlay', 'overlay_set'] loop
    execute format('create trigger append_only before update or delete on svc.%I
      for each row execute function svc.refuse_change()', name);
    execute format('create trigger no_truncate before truncate on svc.%I
      execute function svc.refuse_change()', name);
    execute format('alter table svc.%I enable row level security', name);
    execute format('alter table svc.%I force row level security', name);
    execute format('create policy managed on svc.%I to current_user using (true)', name);
    execute format('create policy whole_registry on svc.%I to svc_worker, svc_admin using (true)', name);
    execute format('create policy checked on svc.%I for select to svc_fsck using (true)', name);
    execute format('create policy own_tenants on svc.%I to svc_engine
      using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))', name);
  end loop;
end $$;
create trigger audited after insert on svc.overlay for each row execute function svc.record_act();
create trigger overlays_are_combined after insert on svc.policy_activation
  for each row execute function svc.overlays_are_combined();
create trigger overlay_is_combined after update of overlay on svc.tenant
  for each row execute function svc.overlays_are_combined();

revoke all on function svc.policies_in_use(), svc.overlays_are_combined(),
  svc.store_overlay(integer, bytea, text, integer), svc.activate_overlay(integer, bytea, jsonb) from public;
grant execute on function svc.policies_in_use(), svc.store_overlay(integer, bytea, text, integer),
  svc.activate_overlay(integer, bytea, jsonb) to svc_engine;
grant select on svc.overlay, svc.overlay_set to svc_engine, svc_admin, svc_fsck;
grant select on svc.overlay_set to svc_worker;
grant insert on svc.overlay_set to svc_admin;
