-- Tenants, their API keys, and the approvers of their actions.

create table svc.tenant (
  tenant_no   integer generated always as identity primary key,
  tenant_id   text not null unique check (tenant_id ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$'),
  environment text not null check (environment in ('sandbox', 'live')),
  allowlisted boolean not null default false,
  -- {"proof": seconds|null, "certificate": …, "passport": …, "trust": …}; "approval": seconds for an
  -- approval, absent for the default
  validity    jsonb not null default '{"proof":null,"certificate":null,"passport":null,"trust":null}',
  created_at  timestamptz(3) not null default now(),
  rate_limit  integer check (rate_limit > 0),                     -- requests per second; null: the engine's default
  overlay     bytea                                               -- in force; null: none. Triggers replace a foreign key
);
call svc.keep_rows('delete', 'tenant');
create trigger keeps_its_number before update of tenant_no on svc.tenant
  for each row execute function svc.refuse_change();
create trigger audited after insert or update on svc.tenant for each row execute function svc.record_act();

-- Environments. Workers reject admissions of an environment that is not open. In other tables, the column `lane` is
-- the type of a request.
create table svc.lane (
  environment text primary key check (environment in ('sandbox', 'live')),
  open        boolean not null default false,
  changed_at  timestamptz(3) not null default now()
);
insert into svc.lane (environment) values ('sandbox'), ('live');
create trigger audited after insert or update on svc.lane for each row execute function svc.record_act();

-- API keys -------------------------------------------------------------------------------------

create table svc.api_key (
  key_id      text primary key,
  tenant_no   integer not null references svc.tenant,
  secret_hash bytea not null check (length(secret_hash) = 32),
  scopes      text[] not null,
  review_ref  text not null check (review_ref <> ''),
  created_at  timestamptz(3) not null default now(),
  expires_at  timestamptz(3),
  revoked_at  timestamptz(3),
  key_no      integer generated always as identity unique,
  replaces    text references svc.api_key,                        -- rotation: the predecessor
  created_by  text references svc.api_key,                        -- the key that created it by API
  -- The restriction of the key: all null if unrestricted. `*` in a pattern matches any characters.
  agent_id    text check (agent_id <> ''),
  actions     text[] check (cardinality(actions) > 0),            -- patterns
  tools       text[] check (cardinality(tools) > 0),              -- patterns
  environment text check (environment in ('sandbox', 'live')),
  constraint restricted_key_manages_no_keys check (
    num_nonnulls(agent_id, actions, tools, environment) = 0 or not scopes && array['admin', 'keys', 'policy']),
  -- Such a key could approve the actions of its own agent.
  constraint restricted_key_registers_no_approvers check (
    num_nonnulls(agent_id, actions, tools, environment) = 0 or not 'approvers' = any (scopes))
);
create index api_key_of_tenant on svc.api_key (tenant_no, created_at, key_id);
create index api_key_created on svc.api_key (created_by) where created_by is not null;
create index api_key_unrevoked on svc.api_key (tenant_no) where revoked_at is null;
create trigger audited after insert or update on svc.api_key for each row execute function svc.record_act();
call svc.secure_rows('api_key', is_checked => false);
-- Authentication, which precedes the scope, finds the keys of every tenant by their ids.
create policy own_tenants on svc.api_key to svc_engine
  using ((select svc.tenants_in_scope()) is null or tenant_no = any ((select svc.tenants_in_scope())::integer[]));
-- For the functions and triggers that run as the owner.
create policy managed on svc.api_key to current_user using (true);

-- Revocation cascades: a stolen key may have created keys. One statement for each generation, which sees the keys
-- that the generation before created until it was locked. A trigger that calls itself for each key would exceed the
-- stack of PostgreSQL, and a long chain of keys could not be revoked.
create function svc.revoke_created_keys() returns trigger language plpgsql as $$
declare
  generation text[] := array[new.key_id];
begin
  while generation is not null loop
    with revoked as (
      update svc.api_key set revoked_at = new.revoked_at
        where created_by = any (generation) and revoked_at is null returning key_id)
    select array_agg(key_id) into generation from revoked;
  end loop;
  return null;
end $$;
create trigger revokes_created after update of revoked_at on svc.api_key for each row
  when (old.revoked_at is null and new.revoked_at is not null and pg_trigger_depth() = 0)
  execute function svc.revoke_created_keys();

-- The engine changes keys only by the two functions below, for a key that manages the keys of its tenant.
-- `for share` makes a concurrent revocation wait, so it also revokes the new key.
create function svc.lock_managing_key(managing integer, act text, scope text default 'keys') returns svc.api_key
  language plpgsql as $$
declare
  manager svc.api_key;
begin
  select * into manager from svc.api_key k where k.key_no = managing
    and k.tenant_no = any (svc.tenants_in_scope()) and k.scopes && array['admin', scope]
    and k.revoked_at is null and (k.expires_at is null or k.expires_at > clock_timestamp()) for share;
  perform set_config('svc.actor', 'key ' || manager.key_id, true), set_config('svc.act', act, true);
  return manager;
end $$;

-- True: the key was created. Null: the tenant has 5,000 keys that are not revoked; the number is limited because a
-- revocation changes a key and every key below it under the append lock, which delays every tenant. False: the
-- managing key is inactive, or lacks a wanted scope. The expiry of the managing key
-- limits the new key at creation only; revocation cascades.
create function svc.create_api_key(managing integer, id text, hash bytea, wanted text[], restriction jsonb,
    until timestamptz) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  manager constant svc.api_key := svc.lock_managing_key(managing, 'key create');
  most constant integer := 5000;
begin
  if (select count(*) from (select from svc.api_key k
      where k.tenant_no = manager.tenant_no and k.revoked_at is null limit most) as unrevoked) = most then
    return null;
  end if;
  insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref, expires_at, created_by,
    agent_id, actions, tools, environment)
  select id, manager.tenant_no, hash, wanted, manager.review_ref, least(until, manager.expires_at),
    manager.key_id, r.agent_id, r.actions, r.tools, r.environment
  from jsonb_to_record(restriction) as r(agent_id text, actions text[], tools text[], environment text)
  where manager.scopes @> wanted or 'admin' = any (manager.scopes);
  return found;
end $$;

-- Returns false if the managing key is inactive or lacks the scope.
create function svc.revoke_api_key(managing integer, id text) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  manager svc.api_key;
begin
  -- Workers check keys under the append lock: they sign nothing for a revoked key.
  perform svc.hold_appends();
  manager := svc.lock_managing_key(managing, 'key revoke');
  update svc.api_key k set revoked_at = clock_timestamp()
    where k.key_id = id and k.tenant_no = manager.tenant_no and k.revoked_at is null;
  return manager.key_id is not null;
end $$;

-- Approvers ------------------------------------------------------------------------------------

-- Approvers approve or reject actions. The log has only the hash of a registration; the document stays private.
create table svc.approver (
  registration_hash bytea primary key check (length(registration_hash) = 32),
  tenant_no         integer not null references svc.tenant,
  document          bytea not null,
  created_at        timestamptz(3) not null default clock_timestamp(),
  created_by        text                                          -- the API key that registered it; null: the operator did
);
create index approver_of_tenant on svc.approver (tenant_no, created_at, registration_hash);
call svc.keep_rows('update or delete', 'approver');
call svc.secure_rows('approver', 'svc_admin', is_own => true);
create policy managed on svc.approver to current_user using (true);

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

-- The engine changes approvers only by the two functions below, for a key of the tenant with the scope `approvers`.
-- They take the append lock before the lock of the key, like revocations of keys.

-- Null: the managing key is inactive or lacks the scope. False: the tenant has 500 approvers; the number is limited
-- because every reader of the log reads each one.
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

-- False: the managing key is inactive or lacks the scope.
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
