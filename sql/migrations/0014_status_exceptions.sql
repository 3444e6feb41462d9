-- Lists that filter by status read the few proofs whose status may differ from VALID, instead of
-- computing the status of every proof of the tenant.

-- A proof that is verified and not listed here is VALID. One that is listed may be VALID too: the
-- reader computes the status. Rows may repeat, so that writers never wait for each other.
create table svc.status_exception (
  tenant_no  integer not null,
  leaf_index bigint not null
);
create index status_exception_of_tenant on svc.status_exception (tenant_no, leaf_index);

alter table svc.status_exception enable row level security;
alter table svc.status_exception force row level security;
create policy whole_registry on svc.status_exception
  to svc_worker, svc_verifier, svc_admin, svc_erase using (true);
create policy own_tenants on svc.status_exception to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]));

-- Written by triggers, so that no program can change a status without listing the proof.
create function svc.list_status_exception() returns trigger language plpgsql as $$
begin
  insert into svc.status_exception (tenant_no, leaf_index)
  select p.tenant_no, p.leaf_index from svc.proof p
  where p.proof_id = new.proof_id
    and not exists (select from svc.status_exception x
      where x.tenant_no = p.tenant_no and x.leaf_index = p.leaf_index);
  return null;
end $$;
create trigger lists_exception after insert on svc.log_entry for each row
  when (new.kind = 2) execute function svc.list_status_exception();
create trigger lists_exception after insert on svc.erasure for each row
  when (new.leaf_index is not null) execute function svc.list_status_exception();

create function svc.list_verdict_exceptions() returns trigger language plpgsql as $$
begin
  insert into svc.status_exception (tenant_no, leaf_index)
  select p.tenant_no, p.leaf_index from svc.log_entry e join svc.proof p using (proof_id)
  where e.leaf_index between new.first_index and new.last_index and e.kind = 1
    and not exists (select from svc.status_exception x
      where x.tenant_no = p.tenant_no and x.leaf_index = p.leaf_index);
  return null;
end $$;
create trigger lists_exceptions after insert on svc.verdict for each row
  when (not new.frontier or new.outcome <> 'pass' or new.expired <> '{}')
  execute function svc.list_verdict_exceptions();

create trigger append_only before update or delete on svc.status_exception for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.status_exception execute function svc.refuse_change();

alter table svc.proof no force row level security;
alter table svc.erasure no force row level security;
alter table svc.status_exception no force row level security;
insert into svc.status_exception (tenant_no, leaf_index)
select p.tenant_no, p.leaf_index
from (
  select proof_id from svc.log_entry where kind = 2
  union
  select proof_id from svc.erasure
  union
  select e.proof_id from svc.verdict v join svc.log_entry e on e.leaf_index = v.first_index
  where not v.frontier and e.kind = 1
  union
  select e.proof_id from svc.verdict v
  join svc.log_entry e on e.leaf_index between v.first_index and v.last_index
  where v.frontier and (v.outcome <> 'pass' or v.expired <> '{}') and e.kind = 1
) x
-- One row by the primary key for each: a plain join reads every proof.
cross join lateral (
  select tenant_no, leaf_index from svc.proof where proof_id = x.proof_id limit 1
) p;
alter table svc.proof force row level security;
alter table svc.erasure force row level security;
alter table svc.status_exception force row level security;

revoke all on function svc.list_status_exception(), svc.list_verdict_exceptions() from public;
grant select, insert on svc.status_exception to svc_worker, svc_verifier, svc_admin, svc_erase;
grant select on svc.status_exception to svc_engine;
