-- A role that reads the registry back, every row of it, and can change nothing: for a check from
-- the outside. It sees no secret of an API key, not even its hash.

do $$
begin
  create role svc_fsck nologin;
exception when duplicate_object or unique_violation then
  null; -- roles belong to the cluster
end $$;

grant usage on schema svc to svc_fsck;
grant select on svc.audit, svc.batch, svc.batch_part, svc.batch_progress, svc.batch_turn,
  svc.batch_watch, svc.checkpoint, svc.expiry, svc.fixture, svc.grant_change, svc.grant_head,
  svc.intake, svc.intake_pending, svc.log_entry, svc.log_head, svc.package_member, svc.policy_input,
  svc.policy_set, svc.proof, svc.refusal, svc.revocation_pending, svc.revocation_reason,
  svc.revocation_request, svc.scrub, svc.share_due, svc.share_expiry, svc.share_revocation,
  svc.share_token, svc.tenant, svc.tile, svc.trust_package, svc.upkeep, svc.verdict to svc_fsck;

do $$
declare
  tenants_table text;
begin
  foreach tenants_table in array array['batch', 'batch_part', 'batch_progress', 'batch_turn',
    'batch_watch', 'grant_change', 'intake', 'intake_pending', 'package_member', 'proof', 'refusal',
    'revocation_pending', 'revocation_request', 'share_due', 'share_expiry', 'share_revocation',
    'share_token', 'trust_package'] loop
    execute format('create policy checked on svc.%I for select to svc_fsck using (true)', tenants_table);
  end loop;
end $$;
