-- The schema of the registry as of version 26. One transaction runs the files of this folder in order; later
-- migrations follow as files beside the folder. Everything belongs to the owner of the database. Each program has
-- its own role, whose rights are in 13_rights.sql.
--
-- Three constraints are `not valid`: databases from before this baseline may hold rows that break them.

create schema svc;

-- One role per program, never owner or superuser. Roles belong to the cluster, so they may exist; a
-- deployment gives them passwords.
do $$
declare
  program text;
begin
  foreach program in array array['svc_engine', 'svc_worker', 'svc_verifier', 'svc_publisher', 'svc_admin',
    'svc_fsck', 'svc_erase'] loop
    begin
      execute format('create role %I nologin', program);
    exception when duplicate_object or unique_violation then
      null;
    end;
  end loop;
end $$;

-- Append-only tables and row-level security ----------------------------------------------------

-- These rules hold for every role, including administrators: the log only grows, and an admission gets one
-- outcome.

create function svc.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'svc.% is append-only: % refused', tg_table_name, tg_op using errcode = 'insufficient_privilege';
end $$;

create function svc.skip_row() returns trigger language plpgsql as $$
begin
  return null;
end $$;

-- The last file drops the next two procedures.

-- Keeps the rows of tables: rejects these operations, and TRUNCATE.
create procedure svc.keep_rows(operations text, variadic tables text[]) language plpgsql as $$
declare
  name text;
begin
  foreach name in array tables loop
    execute format('create trigger append_only before %s on svc.%I
      for each row execute function svc.refuse_change()', operations, name);
    execute format('create trigger no_truncate before truncate on svc.%I
      execute function svc.refuse_change()', name);
  end loop;
end $$;

-- Row-level security backs up the tenant predicate of every query of the engine: its role sees only the rows of
-- the tenants in `svc.tenants`, set for one transaction; none without it. The roles in `programs` serve every tenant;
-- their grants limit them. fsck reads the rows if `is_checked`. The engine's policy is created here if `is_own`: the
-- table has the number of the tenant. Forced on the owner too, so a migration that changes rows must disable it first.
create procedure svc.secure_rows(of_table text,
    programs text default 'svc_worker, svc_verifier, svc_publisher, svc_admin', is_checked boolean default true,
    is_own boolean default false) language plpgsql as $$
begin
  execute format('alter table svc.%I enable row level security', of_table);
  execute format('alter table svc.%I force row level security', of_table);
  execute format('create policy whole_registry on svc.%I to %s using (true)', of_table, programs);
  if is_checked then
    execute format('create policy checked on svc.%I for select to svc_fsck using (true)', of_table);
  end if;
  if is_own then
    -- The scope is a subquery, so that it is read once per statement and not once per row.
    execute format('create policy own_tenants on svc.%I to svc_engine
      using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))', of_table);
  end if;
end $$;

create function svc.tenants_in_scope() returns integer[] language sql stable as $$
  select nullif(current_setting('svc.tenants', true), '')::integer[]
$$;

create function svc.require(is_met boolean, problem text) returns void language plpgsql as $$
begin
  if is_met is not true then
    raise exception '%', problem using errcode = 'check_violation';
  end if;
end $$;

-- The audit ------------------------------------------------------------------------------------

create table svc.audit (
  audit_id  bigint generated always as identity primary key,
  at        timestamptz(3) not null default clock_timestamp(),
  db_role   text not null,
  actor     text,                                                 -- as the command reported
  act       text,                                                 -- the command
  object    text not null,                                        -- the table
  operation text not null,
  before    jsonb,
  after     jsonb
);
call svc.keep_rows('update or delete', 'audit');

-- Runs as the owner: no program can skip a record or forge one. Secrets and large texts are left out.
create function svc.record_act() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  hidden constant text[] := array['secret_hash', 'manifest', 'files', 'content', 'document'];
begin
  insert into svc.audit (db_role, actor, act, object, operation, before, after)
  values (session_user, nullif(current_setting('svc.actor', true), ''),
    nullif(current_setting('svc.act', true), ''), tg_table_name, tg_op,
    case when tg_op = 'UPDATE' then to_jsonb(old) - hidden end, to_jsonb(new) - hidden);
  return null;
end $$;
