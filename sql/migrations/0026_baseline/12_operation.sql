-- Heartbeats, maintenance and traces.

create table svc.heartbeat (
  role       name not null,
  instance   uuid not null,
  started_at timestamptz(3) not null default clock_timestamp(),
  beat_at    timestamptz(3) not null default clock_timestamp(),
  readiness  jsonb not null,                                      -- the body of /readyz
  primary key (role, instance)
);

-- Records a heartbeat under the login role, so that no program reports for another. Deletes instances
-- of the role that were silent for a day.
create function svc.record_heartbeat(of uuid, is_ready jsonb) returns void language sql security definer
  set search_path = pg_catalog, pg_temp as $$
  insert into svc.heartbeat (role, instance, readiness) values (session_user, of, is_ready)
    on conflict (role, instance) do update set beat_at = clock_timestamp(), readiness = excluded.readiness;
  delete from svc.heartbeat where role = session_user and beat_at < clock_timestamp() - interval '1 day';
$$;

-- When the last fsck without findings and the last base backup ended; null before the first.
create table svc.maintenance (
  kind      text primary key check (kind in ('fsck', 'backup')),
  since     timestamptz(3) not null default clock_timestamp(),
  ended_at  timestamptz(3),
  failed_at timestamptz(3)                                        -- when fsck last found corruption
);
insert into svc.maintenance (kind) values ('fsck'), ('backup');
create trigger audited after update on svc.maintenance for each row execute function svc.record_act();

-- The login role decides which: fsck cannot report a backup.
create function svc.record_maintenance() returns void language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  recorded constant text := case session_user when 'svc_fsck' then 'fsck' when 'svc_admin' then 'backup' end;
begin
  if recorded is null then
    raise exception '% cannot record this: log in as svc_admin after a backup, as svc_fsck after fsck', session_user
      using errcode = 'insufficient_privilege';
  end if;
  update svc.maintenance set ended_at = clock_timestamp() where kind = recorded;
end $$;

-- Records a run of fsck over both database and snapshot. A clean run deletes the last finding.
create function svc.record_fsck(is_corrupt boolean) returns void language sql security definer
  set search_path = pg_catalog, pg_temp as $$
  update svc.maintenance set
      ended_at = case when is_corrupt then ended_at else clock_timestamp() end,
      failed_at = case when is_corrupt then clock_timestamp() end
    where kind = 'fsck';
$$;

-- Trace contexts of sampled admissions, which worker, verifier and publisher continue. Kept for an hour; empty
-- without tracing. No payload and no tenant.
create table svc.trace (
  proof_id    uuid primary key,
  traceparent text not null check (length(traceparent) = 55),
  created_at  timestamptz(3) not null default clock_timestamp()
);
create index trace_created_at on svc.trace (created_at);
