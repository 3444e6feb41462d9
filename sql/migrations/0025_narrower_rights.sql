-- The digest of a set with an overlay covers its base and the overlay's policies. Workers look up the base of a digest
-- to learn whether the set may decide, so a row with another base would let a superseded set decide.
create function svc.overlay_set_is_of_its_base() returns trigger language plpgsql as $$
begin
  if (new.digest = sha256(convert_to(new.manifest, 'UTF8')) and new.manifest::jsonb = (
      select jsonb_set(b.manifest::jsonb, '{policies_sha256}', b.manifest::jsonb -> 'policies_sha256' || (
        select jsonb_object_agg(key, encode(sha256(convert_to(value, 'UTF8')), 'hex'))
        from jsonb_each_text(new.policies)))
      from svc.policy_set b where b.digest = new.base)) is not true then
    raise exception 'the digest is not that of the base with these policies' using errcode = 'check_violation';
  end if;
  return new;
end $$;
revoke all on function svc.overlay_set_is_of_its_base() from public;
create trigger is_of_its_base before insert on svc.overlay_set
  for each row execute function svc.overlay_set_is_of_its_base();

-- Workers cannot read a larger number, and every group with such an admission would fail. Not validated, because
-- validation would scan the table. Workers can still reject, and erasures still erase, an older row.
alter table svc.intake add check (run_seq <= 9007199254740991 or refused or request is null) not valid;

-- No honest verifier appends a verdict entry before the time up to which the last one reports expiries. With a time
-- ahead, the false verdicts of a compromised `svc_erase` would therefore stay published until that time.
create function svc.adopted_time_is_not_ahead() returns trigger language plpgsql as $$
declare
  stated constant timestamptz := greatest(new.at,
    (convert_from(new.body, 'UTF8')::jsonb ->> 'expired_through')::timestamptz);
begin
  if stated > clock_timestamp() + interval '60 seconds' then
    raise exception 'leaf % has the time %, more than 60 seconds ahead of the clock of the database: correct the clock, or repeat the command after this time',
      new.leaf_index, to_char(stated at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  return new;
end $$;
revoke all on function svc.adopted_time_is_not_ahead() from public;
create trigger is_not_ahead before insert on svc.log_entry for each row
  when (new.kind <> 1 and current_setting('svc.adopts', true) = 'on')
  execute function svc.adopted_time_is_not_ahead();

-- The new code names the row as the fault. With the code for a missing right, workers deferred every admission in the
-- group of an admission of a batch with false counts.
create or replace function svc.progress_only_counts() returns trigger language plpgsql as $$
begin
  if new.admitted < old.admitted or new.denied < old.denied or new.refused < old.refused
     or new.approval_required < old.approval_required
     or new.pending + new.admitted + new.denied + new.approval_required + new.refused
       <> old.pending + old.admitted + old.denied + old.approval_required + old.refused
     or (new.batch_id, new.tenant_no, new.awaited, new.invalid, new.replayed)
       is distinct from (old.batch_id, old.tenant_no, old.awaited, old.invalid, old.replayed)
     or old.completed_at is not null then
    raise exception 'the counts of batch % may only advance', old.batch_id using errcode = 'check_violation';
  end if;
  return new;
end $$;

-- No statement of admin and worker uses these rights.
revoke select on svc.adoption, svc.batch_watch, svc.ended_checkpoint, svc.expiry, svc.package_member,
  svc.share_revocation, svc.share_token, svc.trust_package from svc_admin;
revoke select on svc.fixture from svc_worker;
