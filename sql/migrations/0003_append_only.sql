-- The rules over rows that hold for every role, including administrators: the log only grows, and an
-- admission gets one outcome.

create function svc.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'svc.% is append-only: % refused', tg_table_name, tg_op using errcode = 'insufficient_privilege';
end $$;

do $$
declare
  name text;
begin
  foreach name in array array['audit', 'ended_checkpoint', 'ended_log', 'erasure', 'fixture', 'grant_change',
    'package_member', 'policy_activation', 'policy_set', 'share_expiry', 'share_revocation', 'share_token',
    'status_exception', 'trust_package', 'verdict'] loop
    execute format('create trigger append_only before update or delete on svc.%I
      for each row execute function svc.refuse_change()', name);
  end loop;
  -- Other triggers limit their updates.
  foreach name in array array['batch', 'batch_part', 'batch_progress', 'grant_head', 'intake',
    'log_entry', 'log_head', 'revocation_reason', 'revocation_request', 'tenant', 'tile'] loop
    execute format('create trigger append_only before delete on svc.%I
      for each row execute function svc.refuse_change()', name);
  end loop;
  foreach name in array array['audit', 'batch', 'batch_part', 'batch_progress', 'checkpoint',
    'ended_checkpoint', 'ended_log', 'erasure', 'fixture', 'grant_change', 'grant_head', 'intake', 'log_entry',
    'log_head', 'package_member', 'policy_activation', 'policy_set',
    'revocation_reason', 'revocation_request', 'share_expiry', 'share_revocation', 'share_token',
    'status_exception', 'tenant', 'tile', 'trust_package', 'verdict'] loop
    execute format('create trigger no_truncate before truncate on svc.%I
      execute function svc.refuse_change()', name);
  end loop;
end $$;

-- The audit ------------------------------------------------------------------------------------

-- Runs as the owner: no program can skip a record or forge one. Secrets and large texts are left out.
create function svc.record_act() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  hidden constant text[] := array['secret_hash', 'manifest', 'files', 'content', 'document'];
begin
  insert into svc.audit (db_role, actor, act, object, operation, before, after)
  values (session_user, nullif(current_setting('svc.actor', true), ''),
    nullif(current_setting('svc.act', true), ''), tg_table_name, tg_op,
    case when tg_op = 'UPDATE' then to_jsonb(old) - hidden end, to_jsonb(new) - hidden);
  return null;
end $$;

do $$
declare
  name text;
begin
  foreach name in array array['api_key', 'lane', 'tenant'] loop
    execute format('create trigger audited after insert or update on svc.%I
      for each row execute function svc.record_act()', name);
  end loop;
  foreach name in array array['ended_log', 'erasure', 'fixture', 'policy_activation', 'policy_set'] loop
    execute format('create trigger audited after insert on svc.%I
      for each row execute function svc.record_act()', name);
  end loop;
end $$;
create trigger audited after insert on svc.log_entry for each row
  when (new.kind in (2, 3)) execute function svc.record_act();

-- Revocation cascades: a stolen key may have created keys.
create function svc.revoke_created_keys() returns trigger language plpgsql as $$
begin
  update svc.api_key set revoked_at = new.revoked_at where created_by = new.key_id and revoked_at is null;
  return null;
end $$;
create trigger revokes_created after update of revoked_at on svc.api_key for each row
  when (old.revoked_at is null and new.revoked_at is not null) execute function svc.revoke_created_keys();

-- The log --------------------------------------------------------------------------------------

create function svc.tile_only_grows() returns trigger language plpgsql as $$
begin
  if new.level <> old.level or new.tile_index <> old.tile_index
     or length(new.hashes) <= length(old.hashes)
     or substring(new.hashes from 1 for length(old.hashes)) <> old.hashes then
    raise exception 'svc.tile % % may only be extended', old.level, old.tile_index using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_extends before update on svc.tile for each row execute function svc.tile_only_grows();

create function svc.head_only_grows() returns trigger language plpgsql as $$
begin
  if new.tree_size <= old.tree_size then
    raise exception 'svc.log_head may only grow' using errcode = 'insufficient_privilege';
  end if;
  if (select count(*) from svc.log_entry where leaf_index >= old.tree_size and leaf_index < new.tree_size)
     <> new.tree_size - old.tree_size then
    raise exception 'the log has no % leaves', new.tree_size using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_grows before update on svc.log_head for each row execute function svc.head_only_grows();

-- Each role appends only its kinds of entries, the kinds from 4 on only through functions (0006); a worker
-- only requested revocations, each once. A worker's proofs come by the hundred and are checked by
-- statement, below.
create function svc.entry_follows_head() returns trigger language plpgsql as $$
declare
  said jsonb;
begin
  if (current_user = 'svc_worker' and new.kind = 3) or (current_user = 'svc_admin' and new.kind = 1)
     or (current_user in ('svc_worker', 'svc_admin') and new.kind > 3) then
    raise exception '% may not append entries of kind %', current_user, new.kind using errcode = 'insufficient_privilege';
  end if;
  if current_user = 'svc_worker' and new.kind = 2 then
    said := convert_from(new.body, 'UTF8')::jsonb;
    if not exists (
      select from svc.revocation_request r where r.proof_id = new.revokes and r.refused is null
        and said ->> 'proof_id' = replace(r.proof_id::text, '-', '')
        and said ->> 'artifact_kind' = r.artifact_kind
        and said ->> 'reason_hash' = encode(r.reason_hash, 'hex')) then
      raise exception 'no tenant requested the revocation of %', new.revokes using errcode = 'insufficient_privilege';
    end if;
    if exists (
      select from svc.log_entry e where e.kind = 2 and e.revokes = new.revokes
        and convert_from(e.body, 'UTF8')::jsonb ->> 'artifact_kind' = said ->> 'artifact_kind') then
      raise exception 'the % of % is revoked already', said ->> 'artifact_kind', new.revokes using errcode = 'insufficient_privilege';
    end if;
  end if;
  if new.leaf_index < (select tree_size from svc.log_head) then
    raise exception 'leaf % is behind the head of the log', new.leaf_index using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger is_its_own before insert on svc.log_entry for each row
  when (new.kind <> 1 or current_user <> 'svc_worker') execute function svc.entry_follows_head();

-- Frequent inserts are checked once per statement: checks by row took half of the database's time.
-- Each lookup is a scalar subquery, which is planned as an index lookup. An EXISTS may be planned as a
-- join with the whole table, and the cached plan stays while the table grows.

create function svc.entries_follow_head() returns trigger language plpgsql as $$
declare
  lowest constant bigint := (select min(leaf_index) from added);
  without uuid;
begin
  if lowest < (select tree_size from svc.log_head) then
    raise exception 'leaf % is behind the head of the log', lowest using errcode = 'insufficient_privilege';
  end if;
  select proof_id into without from added a where kind = 1
    and (select true from svc.intake i where i.proof_id = a.proof_id and not i.refused) is null limit 1;
  if found then
    raise exception 'proof % was never accepted, or was rejected', without using errcode = 'foreign_key_violation';
  end if;
  return null;
end $$;
create trigger follow_head after insert on svc.log_entry referencing new table as added
  for each statement execute function svc.entries_follow_head();

-- The database prevents changes of a checkpoint; only svc.end_log moves checkpoints.
create function svc.checkpoint_is_kept() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and exists (select from svc.ended_checkpoint e
    where e.origin = split_part(old.note, E'\n', 1) and e.tree_size = old.tree_size and e.note = old.note) then
    return old;
  end if;
  raise exception 'svc.checkpoint is append-only: % refused', tg_op using errcode = 'insufficient_privilege';
end $$;
create trigger is_kept before update or delete on svc.checkpoint for each row execute function svc.checkpoint_is_kept();

-- A second log under one origin would be a fork.
create function svc.log_has_not_ended() returns trigger language plpgsql as $$
begin
  if exists (select from svc.ended_log where origin = split_part(new.note, E'\n', 1)) then
    raise exception 'the log % is retired: no checkpoint may be stored for it', split_part(new.note, E'\n', 1)
      using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger has_not_ended before insert on svc.checkpoint for each row execute function svc.log_has_not_ended();

create function svc.end_log(ending text, why text) returns bigint language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  signed bigint;
begin
  -- The publisher holds this lock while it leads.
  if not pg_try_advisory_xact_lock(7566947, 1) then
    raise exception 'a publisher is running on this database: stop it first' using errcode = 'object_in_use';
  end if;
  select max(tree_size) into signed from svc.checkpoint where split_part(note, E'\n', 1) = ending;
  if signed is null or exists (select from svc.checkpoint where split_part(note, E'\n', 1) <> ending) then
    raise exception 'the log of this database is not %', ending using errcode = 'no_data_found';
  end if;
  insert into svc.ended_log (origin, tree_size, reason) values (ending, signed, why);
  insert into svc.ended_checkpoint (origin, tree_size, root, note, created_at)
    select ending, tree_size, root, note, created_at from svc.checkpoint;
  delete from svc.checkpoint;
  return signed;
end $$;

-- Admissions -----------------------------------------------------------------------------------

create trigger keeps_its_number before update of tenant_no on svc.tenant
  for each row execute function svc.refuse_change();
create trigger keeps_its_id before update of proof_id, tenant_no, policy_digest, approves on svc.intake
  for each row execute function svc.refuse_change();

-- Replaces foreign keys: referenced rows never disappear, so no lock is needed.
create function svc.intake_references_exist() returns trigger language plpgsql as $$
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
  return null;
end $$;
create trigger references_exist after insert on svc.intake referencing new table as added
  for each statement execute function svc.intake_references_exist();

-- An admission with an outcome is never pending again, and is not rejected once it is proved.
create function svc.pending_has_no_outcome() returns trigger language plpgsql as $$
declare
  wrong uuid;
begin
  select proof_id into wrong from added a
    where (select true from svc.intake i where i.proof_id = a.proof_id) is null limit 1;
  if found then
    raise exception 'admission % was never accepted', wrong using errcode = 'foreign_key_violation';
  end if;
  select proof_id into wrong from added a
    where (select true from svc.log_entry e where e.proof_id = a.proof_id)
      or (select true from svc.refusal r where r.proof_id = a.proof_id) limit 1;
  if found then
    raise exception 'admission % has an outcome', wrong using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;
create trigger has_no_outcome after insert on svc.intake_pending referencing new table as added
  for each statement execute function svc.pending_has_no_outcome();

-- A chunk is pending from the transaction that accepts its admissions, which cannot have outcomes yet.
create function svc.chunk_is_new() returns trigger language plpgsql as $$
declare
  listed integer;
  accepted integer;
begin
  select count(*), count(*) filter (where (select true from svc.intake i where i.proof_id = u.proof_id
      and i.tenant_no = new.tenant_no and i.accepted_at = new.accepted_at
      and i.xmin = pg_current_xact_id()::xid))
    into listed, accepted
    from svc.batch_part p cross join unnest(p.proof_ids, p.replayed) as u(proof_id, replayed)
    where p.batch_id = new.batch_id and p.first_index = new.first_index
      and u.proof_id is not null and u.replayed is not true;
  if listed <> new.admissions or accepted <> new.admissions then
    raise exception 'chunk % of batch % is not new', new.first_index, new.batch_id
      using errcode = 'insufficient_privilege';
  end if;
  return null;
end $$;
create trigger is_new after insert on svc.chunk_pending for each row execute function svc.chunk_is_new();

create function svc.refused_has_no_proof() returns trigger language plpgsql as $$
begin
  if not new.refused or exists (select from svc.log_entry where proof_id = new.proof_id)
     or not exists (select from svc.refusal where proof_id = new.proof_id) then
    raise exception 'admission % is not refused', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger has_no_proof before update of refused on svc.intake for each row execute function svc.refused_has_no_proof();

-- Pending items only get outcomes: no item is counted twice or lost.
create function svc.progress_only_counts() returns trigger language plpgsql as $$
begin
  if new.admitted < old.admitted or new.denied < old.denied or new.refused < old.refused
     or new.approval_required < old.approval_required
     or new.pending + new.admitted + new.denied + new.approval_required + new.refused
       <> old.pending + old.admitted + old.denied + old.approval_required + old.refused
     or (new.batch_id, new.tenant_no, new.awaited, new.invalid, new.replayed)
       is distinct from (old.batch_id, old.tenant_no, old.awaited, old.invalid, old.replayed)
     or old.completed_at is not null then
    raise exception 'the counts of batch % may only advance', old.batch_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_counts before update on svc.batch_progress for each row execute function svc.progress_only_counts();

-- Revocations, statuses and shares ---------------------------------------------------------------

-- A request is closed once, and not while it is pending or after its entry was appended.
create function svc.request_only_closes() returns trigger language plpgsql as $$
begin
  if old.refused is not null or new.refused is null
     or to_jsonb(new) - 'refused' <> to_jsonb(old) - 'refused'
     or exists (select from svc.revocation_pending where request_id = old.request_id)
     or exists (select from svc.log_entry e where e.kind = 2 and e.revokes = old.proof_id
       and convert_from(e.body, 'UTF8')::jsonb ->> 'reason_hash' = encode(old.reason_hash, 'hex')) then
    raise exception 'revocation request % may only be closed', old.request_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_closes before update on svc.revocation_request for each row
  when (old.document is not distinct from new.document) execute function svc.request_only_closes();

-- Triggers list the exceptions, so that no program can change a status without listing the proof.
create function svc.list_status_exception() returns trigger language plpgsql as $$
begin
  insert into svc.status_exception (tenant_no, leaf_index)
  select e.tenant_no, e.leaf_index from svc.log_entry e
  where e.proof_id = (to_jsonb(new) ->> tg_argv[0])::uuid
    and not exists (select from svc.status_exception x
      where x.tenant_no = e.tenant_no and x.leaf_index = e.leaf_index);
  return null;
end $$;
create trigger lists_exception after insert on svc.log_entry for each row
  when (new.kind = 2) execute function svc.list_status_exception('revokes');
create trigger lists_exception after insert on svc.erasure for each row
  when (new.leaf_index is not null) execute function svc.list_status_exception('proof_id');

create function svc.list_verdict_exceptions() returns trigger language plpgsql as $$
begin
  insert into svc.status_exception (tenant_no, leaf_index)
  select e.tenant_no, e.leaf_index from svc.log_entry e
  where e.leaf_index between new.first_index and new.last_index and e.kind = 1
    and not exists (select from svc.status_exception x
      where x.tenant_no = e.tenant_no and x.leaf_index = e.leaf_index);
  return null;
end $$;
create trigger lists_exceptions after insert on svc.verdict for each row
  when (not new.frontier or new.outcome <> 'pass' or new.expired <> '{}')
  execute function svc.list_verdict_exceptions();

-- Runs as the owner: no program can skip a change of shares or forge one.
create function svc.number_grant_change() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  next bigint;
begin
  update svc.grant_head set change_no = change_no + 1 returning change_no into strict next;
  if tg_table_name = 'trust_package' then
    insert into svc.grant_change (change_no, package_id) values (next, new.package_id);
  else
    insert into svc.grant_change (change_no, token_hash) values (next, new.token_hash);
  end if;
  return null;
end $$;

-- Deferred to the commit: no transaction holds the counter while it waits for its client, and a
-- package has its members by then.
do $$
declare
  name text;
begin
  foreach name in array array['share_expiry', 'share_revocation', 'share_token', 'trust_package'] loop
    execute format('create constraint trigger numbered after insert on svc.%I deferrable initially deferred
      for each row execute function svc.number_grant_change()', name);
  end loop;
end $$;

create function svc.grows_by_one() returns trigger language plpgsql as $$
begin
  if new.change_no <> old.change_no + 1 then
    raise exception 'the number of svc.% may only grow by one', tg_table_name using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger counts before update on svc.grant_head for each row execute function svc.grows_by_one();

create function svc.remember_share_end() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  insert into svc.share_due (token_hash, expires_at) values (new.token_hash, new.expires_at);
  return null;
end $$;
create trigger remembered after insert on svc.share_token for each row
  when (new.expires_at is not null) execute function svc.remember_share_end();
