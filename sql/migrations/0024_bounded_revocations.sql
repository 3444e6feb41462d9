-- A revocation changes a key and every key below it under the append lock, which delays every tenant. A tenant has a
-- limited number of keys that a revocation can change.

create index api_key_unrevoked on svc.api_key (tenant_no) where revoked_at is null;

-- One statement for each generation, which sees the keys that the generation before created until it was locked. A
-- trigger that calls itself for each key would exceed the stack of PostgreSQL, and a long chain of keys could not be
-- revoked.
create or replace function svc.revoke_created_keys() returns trigger language plpgsql as $$
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
create or replace trigger revokes_created after update of revoked_at on svc.api_key for each row
  when (old.revoked_at is null and new.revoked_at is not null and pg_trigger_depth() = 0)
  execute function svc.revoke_created_keys();

-- Null: the tenant has too many keys. False: the managing key is inactive, or lacks a wanted scope.
create or replace function svc.create_api_key(managing integer, id text, hash bytea, wanted text[], restriction jsonb,
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
