-- Approvers, whose keys approve or reject actions. The log has the hash of a registration, which stays
-- private.
create table svc.approver (
  registration_hash bytea primary key check (length(registration_hash) = 32),
  tenant_no         integer not null references svc.tenant,
  document          bytea not null,
  created_at        timestamptz(3) not null default clock_timestamp()
);

create trigger append_only before update or delete on svc.approver
  for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.approver execute function svc.refuse_change();

grant select on svc.approver to svc_engine, svc_admin, svc_fsck;
grant insert on svc.approver to svc_admin;

alter table svc.approver enable row level security;
alter table svc.approver force row level security;
create policy checked on svc.approver for select to svc_fsck using (true);
create policy whole_registry on svc.approver to svc_admin using (true);
create policy own_tenants on svc.approver to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]));
