-- Erasure: a role of its own may null the payload of an admission, and nothing else. What the log
-- commits to stays.

do $$
begin
  create role svc_erase nologin;
exception when duplicate_object or unique_violation then
  null; -- roles belong to the cluster
end $$;
grant usage on schema svc to svc_erase;

-- What was erased -----------------------------------------------------------------------------

create table svc.erasure (
  proof_id   uuid primary key,                                     -- of the admission, proved or refused
  leaf_index bigint,                                               -- null when it was refused
  erased_at  timestamptz(3) not null default clock_timestamp(),
  actor      text not null check (actor <> ''),
  reason_ref text not null check (reason_ref <> '')                -- of the request to erase: a case number, never its words
);

-- Leaves of which the verifier has yet to say that nothing is asserted any more.
create table svc.erasure_due (
  leaf_index bigint primary key
);

-- Payload may be nulled: all of it or none, and only beside its record -----------------------------

alter table svc.intake
  alter column request drop not null,
  alter column request_hash drop not null,
  alter column salt drop not null;
alter table svc.revocation_request alter column document drop not null;
alter table svc.revocation_reason alter column document drop not null;
alter table svc.batch alter column items_hash drop not null;
alter table svc.verdict
  drop constraint verdict_outcome_check,
  add constraint verdict_outcome_check check (outcome in ('pass', 'fail', 'erased'));

-- What comes new has its payload. By statement, as all checks of what every admission passes.
create or replace function svc.intake_is_somebodys() returns trigger language plpgsql as $$
begin
  if exists (select from added where request is null or request_hash is null or salt is null) then
    raise exception 'an intake has no payload' using errcode = 'not_null_violation';
  end if;
  if exists (select from (select distinct tenant_no from added) a
      where (select true from svc.tenant t where t.tenant_no = a.tenant_no) is null) then
    raise exception 'an intake has a tenant that there is not' using errcode = 'foreign_key_violation';
  end if;
  if exists (select from (select distinct policy_digest from added) a
      where (select true from svc.policy_set s where s.digest = a.policy_digest) is null) then
    raise exception 'an intake has a policy set that there is not' using errcode = 'foreign_key_violation';
  end if;
  return null;
end $$;

create function svc.documents_are_there() returns trigger language plpgsql as $$
begin
  if new.document is null then
    raise exception 'svc.% has a document', tg_table_name using errcode = 'not_null_violation';
  end if;
  return new;
end $$;
create trigger has_document before insert on svc.revocation_request for each row execute function svc.documents_are_there();
create trigger has_document before insert on svc.revocation_reason for each row execute function svc.documents_are_there();
create function svc.batch_has_hash() returns trigger language plpgsql as $$
begin
  if new.items_hash is null then
    raise exception 'a batch has the hash of its items' using errcode = 'not_null_violation';
  end if;
  return new;
end $$;
create trigger has_hash before insert on svc.batch for each row execute function svc.batch_has_hash();

-- The row after is the row before, without the columns that are named to it. The argument after them
-- says whose record there must be.
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

create trigger only_erases before update of request, request_hash, salt on svc.intake for each row
  when (current_user = 'svc_erase') -- nobody else has the right to these columns
  execute function svc.only_erases('{request,request_hash,salt}', 'proof_id');

drop trigger append_only on svc.proof;
create trigger append_only before delete on svc.proof for each row execute function svc.refuse_change();
create trigger only_erases before update on svc.proof for each row
  execute function svc.only_erases('{aep,signature,action,intent_id}', 'proof_id');

drop trigger only_closes on svc.revocation_request;
create trigger only_closes before update on svc.revocation_request for each row
  when (old.document is not distinct from new.document) execute function svc.request_only_closes();
create trigger only_erases before update on svc.revocation_request for each row
  when (old.document is distinct from new.document)
  execute function svc.only_erases('{document}', 'proof_id');

-- A reason is found by its hash; whose it is, the log says.
drop trigger append_only on svc.revocation_reason;
create trigger append_only before delete on svc.revocation_reason for each row execute function svc.refuse_change();
create trigger only_erases before update on svc.revocation_reason for each row
  execute function svc.only_erases('{document}', '');
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

-- Of a batch its identity goes, which hashes bodies without a salt, and what was wrong with items.
drop trigger append_only on svc.batch;
create trigger append_only before delete on svc.batch for each row execute function svc.refuse_change();
create trigger only_erases before update on svc.batch for each row
  execute function svc.only_erases('{items_hash}', '');
drop trigger append_only on svc.batch_part;
create trigger append_only before delete on svc.batch_part for each row execute function svc.refuse_change();
create trigger only_erases before update on svc.batch_part for each row
  execute function svc.only_erases('{problems}', '');
create function svc.batch_is_erased() returns trigger language plpgsql as $$
begin
  if not exists (select from svc.batch_part p cross join unnest(p.proof_ids) as one(proof_id)
      join svc.erasure e on e.proof_id = one.proof_id where p.batch_id = new.batch_id)
     and exists (select from svc.batch_part p cross join unnest(p.proof_ids) as one(proof_id)
      where p.batch_id = new.batch_id and one.proof_id is not null) then
    raise exception 'nothing of batch % was erased', new.batch_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger recorded before update on svc.batch for each row execute function svc.batch_is_erased();
create trigger recorded before update on svc.batch_part for each row execute function svc.batch_is_erased();

-- An input goes when no AEP that is kept names it. Whoever erases looks for one; here it is held that
-- something of the tenant which it names was erased at all.
drop trigger append_only on svc.policy_input;
create trigger append_only before update on svc.policy_input for each row execute function svc.refuse_change();
create function svc.input_is_erased() returns trigger language plpgsql as $$
declare
  named constant text := convert_from(old.input, 'UTF8')::jsonb #>> '{tenant,tenant_id}';
begin
  if not exists (select from svc.tenant t join svc.intake i using (tenant_no)
      join svc.erasure e using (proof_id) where t.tenant_id = named) then
    raise exception 'svc.policy_input is append-only, and nothing of the tenant of this input was erased' using errcode = 'insufficient_privilege';
  end if;
  return old;
end $$;
create trigger only_erases before delete on svc.policy_input for each row execute function svc.input_is_erased();

-- Why an admission was refused may quote it.
create function svc.detail_is_erased() returns trigger language plpgsql as $$
begin
  if to_jsonb(new) - 'detail' <> to_jsonb(old) - 'detail' or new.detail <> ''
     or (select true from svc.erasure e where e.proof_id = new.proof_id) is null then
    raise exception 'svc.refusal may only be erased' using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_erases before update on svc.refusal for each row execute function svc.detail_is_erased();

-- A record speaks of something settled, and when it commits all of it is gone.
create function svc.erasure_is_whole() returns trigger language plpgsql as $$
begin
  if exists (select from svc.intake_pending q where q.proof_id = new.proof_id) then
    raise exception 'admission % is not settled', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  if not exists (select from svc.intake i where i.proof_id = new.proof_id
      and i.request is null and i.request_hash is null and i.salt is null)
     or exists (select from svc.proof p where p.proof_id = new.proof_id
      and (p.aep is not null or p.signature is not null or p.action is not null or p.intent_id is not null
        or p.leaf_index is distinct from new.leaf_index))
     or (new.leaf_index is not null
      and not exists (select from svc.proof p where p.proof_id = new.proof_id)) then
    raise exception 'the payload of % is not erased', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;
create constraint trigger is_whole after insert on svc.erasure deferrable initially deferred
  for each row execute function svc.erasure_is_whole();

-- Written as the owner: whoever erases cannot leave the verifier out.
create function svc.remember_erasure() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  insert into svc.erasure_due (leaf_index) values (new.leaf_index) on conflict do nothing;
  return null;
end $$;
create trigger remembered after insert on svc.erasure for each row
  when (new.leaf_index is not null) execute function svc.remember_erasure();

create trigger append_only before update or delete on svc.erasure for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.erasure execute function svc.refuse_change();
create trigger audited after insert on svc.erasure for each row execute function svc.record_act();

-- Until the transaction ends nothing is appended: which proofs there are is known by then.
create function svc.hold_appends() returns bigint language sql security definer
  set search_path = pg_catalog, pg_temp as $$
  select tree_size from svc.log_head for update
$$;

-- Whose rows, and who may what ------------------------------------------------------------------

alter table svc.erasure enable row level security;
alter table svc.erasure force row level security;
create policy whole_registry on svc.erasure to svc_verifier, svc_admin, svc_erase using (true);
create policy checked on svc.erasure for select to svc_fsck using (true);
create policy own_tenants on svc.erasure to svc_engine
  using (exists (select from svc.intake i where i.proof_id = erasure.proof_id));

do $$
declare
  tenants_table text;
begin
  foreach tenants_table in array array['intake', 'intake_pending', 'refusal', 'idempotency_key', 'proof',
    'revocation_request', 'revocation_pending', 'batch', 'batch_part'] loop
    execute format('create policy erasing on svc.%I to svc_erase using (true)', tenants_table);
  end loop;
end $$;

revoke all on all functions in schema svc from public;
grant execute on function svc.hold_appends() to svc_erase;

grant select on svc.tenant, svc.intake, svc.intake_pending, svc.refusal, svc.idempotency_key, svc.proof,
  svc.log_entry, svc.policy_input, svc.revocation_request, svc.revocation_pending, svc.revocation_reason, svc.batch, svc.batch_part,
  svc.erasure to svc_erase;
grant insert on svc.erasure to svc_erase;
grant update (request, request_hash, salt) on svc.intake to svc_erase;
grant update (aep, signature, action, intent_id) on svc.proof to svc_erase;
grant update (document) on svc.revocation_request, svc.revocation_reason to svc_erase;
grant update (items_hash) on svc.batch to svc_erase;
grant update (problems) on svc.batch_part to svc_erase;
grant update (detail) on svc.refusal to svc_erase;
grant delete on svc.policy_input, svc.idempotency_key to svc_erase;

grant select (proof_id, erased_at) on svc.erasure to svc_engine;
grant select (proof_id, leaf_index) on svc.erasure to svc_verifier;
grant select, delete on svc.erasure_due to svc_verifier;
grant select on svc.erasure to svc_admin;
grant select on svc.erasure, svc.erasure_due to svc_fsck;
