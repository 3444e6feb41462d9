-- What every admission passes is checked once a statement and not once a row: the same rules, over
-- all the rows that a statement adds. Row by row they took half of the database's time.
--
-- Each question is a scalar subquery, which can only be answered by looking each row up. An EXISTS
-- may be planned as a join with all of a table, and such a plan stays while the table grows.

-- The log -------------------------------------------------------------------------------------

-- A worker's proofs come by the hundred; whatever else is appended is looked at row by row, as before.
drop trigger follows_head on svc.log_entry;
create trigger is_its_own before insert on svc.log_entry for each row
  when (new.kind <> 1 or current_user <> 'svc_worker') execute function svc.entry_follows_head();

create function svc.entries_follow_head() returns trigger language plpgsql as $$
declare
  lowest constant bigint := (select min(leaf_index) from added);
begin
  if lowest < (select tree_size from svc.log_head) then
    raise exception 'leaf % is behind the head of the log', lowest using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;
create trigger follow_head after insert on svc.log_entry referencing new table as added
  for each statement execute function svc.entries_follow_head();

-- What rows point to --------------------------------------------------------------------------

-- In place of foreign keys, which look up, and lock, what each row points to. The locks are for the
-- case that it goes away meanwhile; nothing here ever does.
create trigger append_only before delete on svc.tenant for each row execute function svc.refuse_change();
create trigger append_only before delete on svc.intake for each row execute function svc.refuse_change();
create trigger keeps_its_number before update of tenant_no on svc.tenant for each row execute function svc.refuse_change();
create trigger keeps_its_id before update of proof_id, tenant_no, policy_digest on svc.intake
  for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.tenant execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.intake execute function svc.refuse_change();

alter table svc.intake
  drop constraint intake_tenant_no_fkey,
  drop constraint intake_policy_digest_fkey;
create function svc.intake_is_somebodys() returns trigger language plpgsql as $$
begin
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
create trigger is_somebodys after insert on svc.intake referencing new table as added
  for each statement execute function svc.intake_is_somebodys();

alter table svc.proof drop constraint proof_proof_id_fkey;
create function svc.proof_has_intake() returns trigger language plpgsql as $$
declare
  without uuid;
begin
  select proof_id into without from added a
    where (select true from svc.intake i where i.proof_id = a.proof_id) is null limit 1;
  if found then
    raise exception 'proof % was never accepted', without using errcode = 'foreign_key_violation';
  end if;
  return null;
end $$;
create trigger has_intake after insert on svc.proof referencing new table as added
  for each statement execute function svc.proof_has_intake();

-- What is pending was accepted and is not settled ----------------------------------------------

alter table svc.intake_pending drop constraint intake_pending_proof_id_fkey;
drop trigger is_unsettled on svc.intake_pending;
create or replace function svc.pending_is_unsettled() returns trigger language plpgsql as $$
declare
  wrong uuid;
begin
  select proof_id into wrong from added a
    where (select true from svc.intake i where i.proof_id = a.proof_id) is null limit 1;
  if found then
    raise exception 'admission % was never accepted', wrong using errcode = 'foreign_key_violation';
  end if;
  select proof_id into wrong from added a
    where (select true from svc.proof p where p.proof_id = a.proof_id)
      or (select true from svc.refusal r where r.proof_id = a.proof_id) limit 1;
  if found then
    raise exception 'admission % is settled', wrong using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;
create trigger is_unsettled after insert on svc.intake_pending referencing new table as added
  for each statement execute function svc.pending_is_unsettled();

revoke all on all functions in schema svc from public;
