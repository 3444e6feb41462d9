-- fsck compares activations with the audit and with the proofs, and status exceptions with the log, the erasures and
-- the verdicts.
grant select on svc.policy_activation, svc.status_exception to svc_fsck;
create policy checked on svc.status_exception for select to svc_fsck using (true);
