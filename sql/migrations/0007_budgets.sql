-- The counters of policy sets. Workers compare and set them under the append lock, so that concurrent
-- admissions cannot overspend.

create table svc.counter (
  tenant_no  integer not null references svc.tenant,
  -- An unsalted hash of the definition, agent id and run id: the counter outlives the erasure of its requests.
  key        bytea not null check (length(key) = 32),
  period     text not null,                                       -- the UTC day, or 'run'
  name       text not null,
  value      bigint not null check (value between 0 and 9007199254740991),
  leaf_index bigint not null check (leaf_index >= 0),             -- of the last proof that changed it
  primary key (tenant_no, key, period)
);

create function svc.counter_only_grows() returns trigger language plpgsql as $$
begin
  if new.value < old.value or new.leaf_index <= old.leaf_index
     or (new.tenant_no, new.key, new.period, new.name) is distinct from (old.tenant_no, old.key, old.period, old.name) then
    raise exception 'svc.counter may only grow' using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_grows before update on svc.counter for each row execute function svc.counter_only_grows();
create trigger append_only before delete on svc.counter for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.counter execute function svc.refuse_change();

revoke all on function svc.counter_only_grows() from public;
grant select, insert on svc.counter to svc_worker;
grant update (value, leaf_index) on svc.counter to svc_worker;
grant select on svc.counter to svc_fsck;

alter table svc.counter enable row level security;
alter table svc.counter force row level security;
create policy whole_registry on svc.counter to svc_worker using (true);
create policy checked on svc.counter for select to svc_fsck using (true);
