-- Which instances of the programs live, and how ready each is: `admin status` reads it. Nothing that the
-- public is given depends on it.

create table svc.heartbeat (
  role       name not null,
  instance   uuid not null,
  started_at timestamptz(3) not null default clock_timestamp(),
  beat_at    timestamptz(3) not null default clock_timestamp(),
  readiness  jsonb not null,                                       -- as /readyz answers
  primary key (role, instance)
);

-- As the owner, under the role that logged in: no program speaks for another. An instance that has been
-- silent for a day is forgotten once another of its role lives.
create function svc.record_heartbeat(of uuid, is_ready jsonb) returns void language sql security definer
  set search_path = pg_catalog, pg_temp as $$
  insert into svc.heartbeat (role, instance, readiness) values (session_user, of, is_ready)
    on conflict (role, instance) do update set beat_at = clock_timestamp(), readiness = excluded.readiness;
  delete from svc.heartbeat where role = session_user and beat_at < clock_timestamp() - interval '1 day';
$$;

revoke all on function svc.record_heartbeat(uuid, jsonb) from public;
grant execute on function svc.record_heartbeat(uuid, jsonb) to svc_engine, svc_worker, svc_verifier, svc_publisher;
grant select on svc.heartbeat to svc_admin;
