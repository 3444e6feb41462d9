-- Before, any other login of a role with this right recorded nothing, and saw no error.
create or replace function svc.record_maintenance() returns void language plpgsql security definer
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
