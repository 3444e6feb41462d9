-- When the last fsck without findings and the last base backup ended; null before the first.
create table svc.maintenance (
  kind     text primary key check (kind in ('fsck', 'backup')),
  since    timestamptz(3) not null default clock_timestamp(),
  ended_at timestamptz(3)
);
insert into svc.maintenance (kind) values ('fsck'), ('backup');
create trigger audited after update on svc.maintenance for each row execute function svc.record_act();

-- The login role decides which: fsck cannot report a backup.
create function svc.record_maintenance() returns void language sql security definer
  set search_path = pg_catalog, pg_temp as $$
  update svc.maintenance set ended_at = clock_timestamp()
    where kind = case session_user when 'svc_fsck' then 'fsck' when 'svc_admin' then 'backup' end;
$$;

revoke all on function svc.record_maintenance() from public;
grant execute on function svc.record_maintenance() to svc_admin, svc_fsck;
grant select on svc.maintenance to svc_admin, svc_publisher;
