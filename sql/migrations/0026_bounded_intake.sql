-- A compromised engine could state a time far in the past, so that a superseded policy set or an expired approval
-- counted.
create or replace function svc.intake_references_exist() returns trigger language plpgsql as $$
begin
  if exists (select from added where request is null or request_hash is null or seed is null
      or (approves is null) <> (approval is null)) then
    raise exception 'an intake has no payload' using errcode = 'not_null_violation';
  end if;
  if exists (select from (select distinct tenant_no from added) a
      where (select true from svc.tenant t where t.tenant_no = a.tenant_no) is null) then
    raise exception 'the tenant of an intake does not exist' using errcode = 'foreign_key_violation';
  end if;
  if exists (select from (select distinct tenant_no, policy_digest from added) a
      where (select true from svc.policy_set s where s.digest = a.policy_digest) is null
        and not exists (select from svc.overlay_set s where s.digest = a.policy_digest and s.tenant_no = a.tenant_no)) then
    raise exception 'the policy set of an intake does not exist' using errcode = 'foreign_key_violation';
  end if;
  -- Also if the overlay was activated during the insert, which is then repeated.
  if exists (select from (select distinct tenant_no, policy_digest from added) a
      join svc.tenant t using (tenant_no) where t.overlay is not null
        and not exists (select from svc.overlay_set s where s.digest = a.policy_digest
          and s.tenant_no = a.tenant_no and s.overlay = t.overlay)) then
    raise exception 'an intake leaves out the overlay of its tenant' using errcode = 'SV001';
  end if;
  -- An honest engine takes the time in the transaction of the insert; the clock may be set back meanwhile.
  if current_user = 'svc_engine' and exists (select from added
      where accepted_at < least(now(), clock_timestamp()) - interval '60 seconds') then
    raise exception 'an intake has a time before its transaction' using errcode = 'check_violation';
  end if;
  return null;
end $$;

-- A compromised engine could store rows that exhaust the memory of workers. The API admits smaller ones. Not validated,
-- because validation would scan the table. Workers can still reject, and erasures still erase, an older row.
alter table svc.intake add check (refused or request is null or (octet_length(request) <= 65536
  and octet_length(approval) <= 1048576 and octet_length(validity::text) <= 1024) is not false) not valid;
