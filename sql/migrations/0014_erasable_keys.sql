-- A pending proof and its second decision have one request hash: two rows, with which every deletion of the key
-- failed. Without second decisions the condition has one row at most, and the index intake_identity finds it.
alter policy erased on svc.idempotency_key using (case lane
  when 3 then (select true from svc.batch b
    where b.tenant_no = idempotency_key.tenant_no and b.items_hash = idempotency_key.request_hash) is null
  else (select true from svc.intake i where i.tenant_no = idempotency_key.tenant_no
      and i.lane = idempotency_key.lane and i.request_hash = idempotency_key.request_hash
      and not i.refused and i.approves is null) is null
    -- No index finds rejected admissions by hash: evaluated once per statement.
    and (tenant_no, lane, request_hash) not in (
      select i.tenant_no, i.lane, i.request_hash from svc.refusal join svc.intake i using (proof_id)
      where i.request_hash is not null) end);
