-- Tenants register and retire their own approvers.

-- The API key that registered it; null: the operator did.
alter table svc.approver add column created_by text;
create index approver_of_tenant on svc.approver (tenant_no, created_at, registration_hash);

-- Such a key could approve the actions of its own agent.
alter table svc.api_key add constraint restricted_key_registers_no_approvers check (
  num_nonnulls(agent_id, actions, tools, environment) = 0 or not 'approvers' = any (scopes));

-- Appends a change of a registration, and returns its index; null: the log has it already.
create function svc.append_approver(hash bytea, change text) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  at constant timestamptz := date_trunc('milliseconds', clock_timestamp());
  changes text[];
begin
  perform svc.hold_appends();
  changes := array(select convert_from(e.body, 'UTF8')::jsonb ->> 'change' from svc.log_entry e
    where e.kind = 3 and position(convert_to(format('"registration_hash":"%s"', encode(hash, 'hex')), 'UTF8') in e.body) > 0);
  if change = any (changes) then
    return null;
  end if;
  perform svc.require(change = 'activate' or change = 'retire' and 'activate' = any (changes),
    'only an activated registration can be retired');
  return svc.append_entry(3, at, convert_to(format('{"change":"%s","registration_hash":"%s",'
    '"schema_version":"svc.registry.entry/1.1","time":"%s","type":"key","use":"approver"}', change,
    encode(hash, 'hex'), to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')), 'UTF8'));
end $$;

-- The engine changes approvers only by these functions, for a key of the tenant with the scope `approvers`. They take
-- the append lock before the lock of the key, like revocations of keys.

-- Null: the key may not. False: the tenant has too many, each of which every reader of the log reads.
create function svc.register_approver(managing integer, registration bytea) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  manager svc.api_key;
begin
  perform svc.hold_appends();
  manager := svc.lock_managing_key(managing, 'approver register', 'approvers');
  if manager.key_id is null then
    return null;
  end if;
  perform svc.require((select t.tenant_id from svc.tenant t where t.tenant_no = manager.tenant_no)
    = convert_from(registration, 'UTF8')::jsonb ->> 'tenant_id', 'the registration is of another tenant');
  if (select count(*) from svc.approver a where a.tenant_no = manager.tenant_no) >= 500 then
    return false;
  end if;
  insert into svc.approver (registration_hash, tenant_no, document, created_by)
    values (sha256(registration), manager.tenant_no, registration, manager.key_id) on conflict do nothing;
  perform svc.append_approver(sha256(registration), 'activate');
  return true;
end $$;

-- False: the key may not.
create function svc.retire_approver(managing integer, hash bytea) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  manager svc.api_key;
begin
  perform svc.hold_appends();
  manager := svc.lock_managing_key(managing, 'approver retire', 'approvers');
  if manager.key_id is null then
    return false;
  end if;
  perform svc.require(exists (select from svc.approver a
    where a.registration_hash = hash and a.tenant_no = manager.tenant_no), 'the approver is of another tenant'),
    svc.append_approver(hash, 'retire');
  return true;
end $$;

revoke all on function svc.append_approver(bytea, text), svc.register_approver(integer, bytea),
  svc.retire_approver(integer, bytea) from public;
grant execute on function svc.append_approver(bytea, text) to svc_admin;
grant execute on function svc.register_approver(integer, bytea), svc.retire_approver(integer, bytea) to svc_engine;

-- For these functions, which run as the owner.
create policy managed on svc.approver to current_user using (true);
create policy appended_keys on svc.log_entry for insert to current_user with check (kind = 3);
