-- What svc_erase may take away beside payload is held to a record of an erasure as well: keys, the
-- reasons of revocations, and what batches have of items that were never admissions.

-- A key is bound in the transaction that accepts a body, or finds it accepted. So one whose hash nothing
-- has any more is of a body that was erased; payload, or the hash of a batch, goes before its keys do.
-- What is kept is not shown to be deleted, rather than refused: a body may have been erased and be here again.
drop policy erasing on svc.idempotency_key;
create policy erasing on svc.idempotency_key for select to svc_erase using (true);
create policy erased on svc.idempotency_key for delete to svc_erase using (case lane
  when 3 then (select true from svc.batch b
    where b.tenant_no = idempotency_key.tenant_no and b.items_hash = idempotency_key.request_hash) is null
  else (select true from svc.intake i where i.tenant_no = idempotency_key.tenant_no
      and i.lane = idempotency_key.lane and i.request_hash = idempotency_key.request_hash
      and not i.refused) is null
    -- No index finds what was refused by its hash: looked at once a statement.
    and (tenant_no, lane, request_hash) not in (
      select i.tenant_no, i.lane, i.request_hash from svc.refusal join svc.intake i using (proof_id)
      where i.request_hash is not null) end);

-- Without its reason a worker appends no revocation: whoever takes it away keeps one out of the log.
create function svc.reason_waits() returns trigger language plpgsql as $$
begin
  if (select true from svc.revocation_pending q where q.request_id = old.request_id) then
    raise exception 'revocation request % waits to be appended, and keeps its reason', old.request_id
      using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger keeps_reason before update on svc.revocation_request for each row
  when (old.document is distinct from new.document) execute function svc.reason_waits();

-- A batch of which nothing was admitted goes with its tenant: when something of the tenant was erased,
-- or nothing is left of it to erase.
create or replace function svc.batch_is_erased() returns trigger language plpgsql as $$
declare
  of_tenant constant integer := (select tenant_no from svc.batch where batch_id = new.batch_id);
begin
  if exists (select from svc.batch_part p cross join unnest(p.proof_ids) as one(proof_id)
      where p.batch_id = new.batch_id and one.proof_id is not null) then
    if exists (select from svc.batch_part p cross join unnest(p.proof_ids) as one(proof_id)
        join svc.erasure e on e.proof_id = one.proof_id where p.batch_id = new.batch_id) then
      return new;
    end if;
  elsif exists (select from svc.erasure e join svc.intake i using (proof_id) where i.tenant_no = of_tenant)
     or not exists (select from svc.intake i where i.tenant_no = of_tenant and i.request is not null) then
    return new;
  end if;
  raise exception 'nothing of batch % was erased', new.batch_id using errcode = 'insufficient_privilege';
end $$;

revoke all on function svc.reason_waits() from public;
