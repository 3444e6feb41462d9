-- Erasure nulls the payload of an admission, all of it or none, and only beside its record. The log
-- keeps the commitments.

create table svc.erasure (
  proof_id   uuid primary key,                                    -- of the admission, proved or rejected
  leaf_index bigint,                                              -- null when it was rejected
  erased_at  timestamptz(3) not null default clock_timestamp(),
  actor      text not null check (actor <> ''),
  reason_ref text not null check (reason_ref <> '')               -- a case number, kept forever: never its words
);
create index erasure_leaf on svc.erasure (leaf_index);
call svc.keep_rows('update or delete', 'erasure');
create trigger audited after insert on svc.erasure for each row execute function svc.record_act();
create trigger lists_exception after insert on svc.erasure for each row
  when (new.leaf_index is not null) execute function svc.list_status_exception('proof_id');
call svc.secure_rows('erasure', 'svc_verifier, svc_admin, svc_erase');
create policy own_tenants on svc.erasure to svc_engine
  using (exists (select from svc.intake i where i.proof_id = erasure.proof_id));
-- For svc.append_erasure, which runs as the owner.
create policy appended on svc.erasure for select to current_user using (true);

-- When a record commits, its admission has an outcome and no payload.
create function svc.erasure_is_complete() returns trigger language plpgsql as $$
begin
  if not exists (select from svc.log_entry e where e.proof_id = new.proof_id)
     and not exists (select from svc.refusal r where r.proof_id = new.proof_id) then
    raise exception 'admission % has no outcome', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  if not exists (select from svc.intake i where i.proof_id = new.proof_id
      and i.request is null and i.request_hash is null and i.seed is null
      and i.approval is null)
     and (exists (select from svc.intake i where i.proof_id = new.proof_id)
       or not exists (select from svc.log_entry e where e.proof_id = new.proof_id and e.body is not null))
     or exists (select from svc.log_entry e where e.proof_id = new.proof_id
      and (num_nonnulls(e.signature, e.reasons, e.budgets, e.action, e.intent_id, e.parent) > 0
        or e.leaf_index is distinct from new.leaf_index))
     or (new.leaf_index is not null
      and not exists (select from svc.log_entry e where e.proof_id = new.proof_id)) then
    raise exception 'the payload of % is not erased', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;
create constraint trigger is_whole after insert on svc.erasure deferrable initially deferred
  for each row execute function svc.erasure_is_complete();

-- Erased leaves without an ERASED verdict.
create table svc.erasure_due (
  leaf_index bigint primary key
);

-- Runs as the owner: the eraser cannot hide an erasure from the verifier.
create function svc.remember_erasure() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  insert into svc.erasure_due (leaf_index) values (new.leaf_index) on conflict do nothing;
  return null;
end $$;
create trigger remembered after insert on svc.erasure for each row
  when (new.leaf_index is not null) execute function svc.remember_erasure();

-- Payload that may be erased -------------------------------------------------------------------

-- Rows are inserted with their payload.

create function svc.document_is_required() returns trigger language plpgsql as $$
begin
  if new.document is null then
    raise exception 'svc.% requires a document', tg_table_name using errcode = 'not_null_violation';
  end if;
  return new;
end $$;
create trigger has_document before insert on svc.revocation_request for each row execute function svc.document_is_required();
create trigger has_document before insert on svc.revocation_reason for each row execute function svc.document_is_required();

create function svc.batch_has_hash() returns trigger language plpgsql as $$
begin
  if new.items_hash is null then
    raise exception 'a batch requires the hash of its items' using errcode = 'not_null_violation';
  end if;
  return new;
end $$;
create trigger has_hash before insert on svc.batch for each row execute function svc.batch_has_hash();

-- Arguments: the columns that may be nulled, and the column that names the erasure record.
create function svc.only_erases() returns trigger language plpgsql as $$
declare
  was constant jsonb := to_jsonb(old);
  is_now constant jsonb := to_jsonb(new);
  payload constant text[] := tg_argv[0]::text[];
begin
  if is_now - payload <> was - payload
     or exists (select from unnest(payload) as name where is_now ->> name is not null) then
    raise exception 'svc.% is append-only, and its payload may only be erased', tg_table_name
      using errcode = 'insufficient_privilege';
  end if;
  if tg_argv[1] = 'proof_id'
     and (select true from svc.erasure e where e.proof_id = (is_now ->> 'proof_id')::uuid) is null then
    raise exception 'svc.%: there is no record of this erasure', tg_table_name
      using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;

create trigger only_erases before update of request, request_hash, seed, approval on svc.intake for each row
  when (current_user = 'svc_erase') -- no other role may update these columns
  execute function svc.only_erases('{request,request_hash,seed,approval}', 'proof_id');
create trigger only_erases before update on svc.log_entry for each row
  execute function svc.only_erases('{signature,reasons,budgets,action,intent_id,parent}', 'proof_id');
create trigger only_erases before update on svc.revocation_request for each row
  when (old.document is distinct from new.document)
  execute function svc.only_erases('{document}', 'proof_id');
create trigger only_erases before update on svc.revocation_reason for each row
  execute function svc.only_erases('{document}', '');
create trigger only_erases before update on svc.batch for each row
  execute function svc.only_erases('{items_hash}', '');
create trigger only_erases before update on svc.batch_part for each row
  execute function svc.only_erases('{problems}', '');

-- A worker appends no revocation without its reason, so erasing it would keep the revocation out.
create function svc.pending_request_keeps_reason() returns trigger language plpgsql as $$
begin
  if (select true from svc.revocation_pending q where q.request_id = old.request_id) then
    raise exception 'revocation request % is pending and keeps its reason', old.request_id
      using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger keeps_reason before update on svc.revocation_request for each row
  when (old.document is distinct from new.document) execute function svc.pending_request_keeps_reason();

create function svc.reason_is_erased() returns trigger language plpgsql as $$
declare
  said constant jsonb := convert_from(old.document, 'UTF8')::jsonb;
begin
  if (select true from svc.erasure e where e.proof_id = (said ->> 'proof_id')::uuid) is null then
    raise exception 'svc.revocation_reason: there is no record of this erasure'
      using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger recorded before update on svc.revocation_reason for each row
  when (old.document is not null) execute function svc.reason_is_erased();

-- The unsalted items hash and the problems of a batch. A batch without admissions is erased when the
-- tenant has an erasure record, or has no payload left.
create function svc.batch_is_erased() returns trigger language plpgsql as $$
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
  raise exception 'no admission of batch % was erased', new.batch_id using errcode = 'insufficient_privilege';
end $$;
create trigger recorded before update on svc.batch for each row execute function svc.batch_is_erased();
create trigger recorded before update on svc.batch_part for each row execute function svc.batch_is_erased();

-- The detail of a rejection may quote the request.
create function svc.detail_is_erased() returns trigger language plpgsql as $$
begin
  if to_jsonb(new) - 'detail' <> to_jsonb(old) - 'detail' or new.detail <> ''
     or (select true from svc.erasure e where e.proof_id = new.proof_id) is null then
    raise exception 'svc.refusal may only be erased' using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_erases before update on svc.refusal for each row execute function svc.detail_is_erased();

-- The eraser may delete a key only when its body was erased: payload and batch hashes go before keys.
-- Other keys are invisible to the deletion, because the same body may exist again. A pending proof and its second
-- decision have one request hash: without second decisions the condition has one row at most, and the index
-- intake_identity finds it.
create policy erasing on svc.idempotency_key for select to svc_erase using (true);
create policy erased on svc.idempotency_key for delete to svc_erase using (case lane
  when 3 then (select true from svc.batch b
    where b.tenant_no = idempotency_key.tenant_no and b.items_hash = idempotency_key.request_hash) is null
  else (select true from svc.intake i where i.tenant_no = idempotency_key.tenant_no
      and i.lane = idempotency_key.lane and i.request_hash = idempotency_key.request_hash
      and not i.refused and i.approves is null) is null
    -- No index finds rejected admissions by hash: evaluated once per statement.
    and (tenant_no, lane, request_hash) not in (
      select i.tenant_no, i.lane, i.request_hash from svc.refusal join svc.intake i using (proof_id)
      where i.request_hash is not null) end);
