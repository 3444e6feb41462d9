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

-- No statement of admin and worker uses these rights.
revoke select on svc.adoption, svc.batch_watch, svc.ended_checkpoint, svc.expiry, svc.package_member,
  svc.share_revocation, svc.share_token, svc.trust_package from svc_admin;
revoke select on svc.fixture from svc_worker;
