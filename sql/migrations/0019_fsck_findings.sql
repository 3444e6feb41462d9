-- When fsck last found corruption; a clean run of both halves deletes it. Before, findings were in the output only.
alter table svc.maintenance add column failed_at timestamptz(3);

create function svc.record_fsck(is_corrupt boolean) returns void language sql security definer
  set search_path = pg_catalog, pg_temp as $$
  update svc.maintenance set
      ended_at = case when is_corrupt then ended_at else clock_timestamp() end,
      failed_at = case when is_corrupt then clock_timestamp() end
    where kind = 'fsck';
$$;

revoke all on function svc.record_fsck(boolean) from public;
grant execute on function svc.record_fsck(boolean) to svc_fsck;
