-- The rights of each role. sql/schema.txt lists the same, and programs refuse to start with further rights on these
-- tables.

drop procedure svc.keep_rows, svc.secure_rows;

revoke all on schema svc from public;
revoke all on all functions in schema svc from public;
grant usage on schema svc
  to svc_engine, svc_worker, svc_verifier, svc_publisher, svc_admin, svc_fsck, svc_erase;
grant execute on function svc.record_heartbeat to svc_engine, svc_worker, svc_verifier, svc_publisher;
grant execute on function svc.record_maintenance to svc_admin, svc_fsck;

-- engine: accepts admissions and reads for its tenants. It cannot sign or write verdicts, and appends only key entries
-- of approvers, through functions.
grant select on svc.api_key, svc.approver, svc.batch, svc.batch_part, svc.batch_progress, svc.batch_watch,
  svc.checkpoint, svc.chunk_pending, svc.fixture, svc.idempotency_key, svc.intake, svc.intake_pending, svc.lane,
  svc.log_entry, svc.log_head, svc.outcome, svc.overlay, svc.overlay_set, svc.package_member, svc.policy_activation,
  svc.policy_set, svc.refusal, svc.revocation_pending, svc.revocation_request, svc.share_revocation, svc.share_token,
  svc.status_exception, svc.tenant, svc.tile, svc.trust_package, svc.verdict to svc_engine;
-- Delegations are signed for the name that the log had then: without it, proofs under them do not verify.
grant select (origin) on svc.ended_log to svc_engine;
grant select (proof_id, erased_at) on svc.erasure to svc_engine;
grant select (created_at) on svc.trace to svc_engine; -- for the condition of the deletion
grant insert on svc.batch, svc.batch_part, svc.batch_progress, svc.batch_watch, svc.chunk_pending,
  svc.idempotency_key, svc.intake, svc.intake_pending, svc.package_member, svc.revocation_pending,
  svc.revocation_request, svc.share_revocation, svc.share_token, svc.trace, svc.trust_package to svc_engine;
grant delete on svc.trace to svc_engine;
grant execute on function svc.activate_overlay, svc.batch_pending, svc.create_api_key, svc.digest_of,
  svc.pending_depth, svc.policies_in_use, svc.policy_in_force, svc.read_outcomes, svc.register_approver,
  svc.retire_approver, svc.revoke_api_key, svc.store_admissions, svc.store_overlay, svc.tenants_in_scope to svc_engine;

-- worker: commits outcomes. It cannot accept admissions or write verdicts, and sees no key's hash.
grant select on svc.adoption, svc.batch_part, svc.batch_progress, svc.batch_watch, svc.chunk_lease,
  svc.chunk_pending, svc.counter, svc.intake, svc.intake_pending, svc.lane, svc.log_entry, svc.log_head,
  svc.overlay_set, svc.policy_activation, svc.policy_set, svc.refusal, svc.retired_log, svc.revocation_pending,
  svc.revocation_request, svc.status_exception, svc.tenant, svc.tile, svc.trace to svc_worker;
grant select (key_id, tenant_no, key_no, expires_at, revoked_at, agent_id) on svc.api_key to svc_worker;
grant insert on svc.chunk_lease, svc.counter, svc.log_entry, svc.refusal, svc.revocation_reason,
  svc.status_exception, svc.tile to svc_worker;
grant insert on svc.intake_pending to svc_worker; -- for chunks that it splits
grant update (pending, admitted, denied, approval_required, refused, completed_at) on svc.batch_progress to svc_worker;
grant update (lease_no) on svc.chunk_lease to svc_worker;
grant update (leased_at) on svc.chunk_pending to svc_worker;
grant update (value, leaf_index) on svc.counter to svc_worker;
grant update (refused) on svc.intake, svc.revocation_request to svc_worker;
grant update (tree_size) on svc.log_head to svc_worker;
grant update (hashes) on svc.tile to svc_worker;
grant delete on svc.batch_watch, svc.chunk_pending, svc.intake_pending, svc.revocation_pending to svc_worker;
grant execute on function svc.append_delegation to svc_worker;

-- verifier: the only writer of verdicts. Checkpoints and retired logs give the origin of the log.
grant select on svc.checkpoint, svc.ended_log, svc.erasure_due, svc.expiry, svc.intake, svc.log_entry, svc.log_head,
  svc.scrub, svc.share_due, svc.status_exception, svc.tenant, svc.tile, svc.trace, svc.upkeep, svc.verdict
  to svc_verifier;
grant select (proof_id, leaf_index) on svc.erasure to svc_verifier;
grant insert on svc.expiry, svc.share_expiry, svc.status_exception, svc.verdict to svc_verifier;
grant update (expires_at) on svc.expiry to svc_verifier; -- for FOR UPDATE
grant update (next_index, urgent_until, epoch) on svc.scrub to svc_verifier;
grant update (done_at) on svc.upkeep to svc_verifier;
grant delete on svc.erasure_due, svc.expiry, svc.share_due to svc_verifier;
grant execute on function svc.append_verdict to svc_verifier;

-- publisher: reads log entries and shares; no payload and no tenant of a share.
grant select on svc.checkpoint, svc.ended_log, svc.grant_change, svc.log_head, svc.maintenance, svc.package_member,
  svc.tile, svc.trace to svc_publisher;
grant select (leaf_index, at, kind, is_outcome, proof_id, revokes, effect, environment, key_id, aep_hash,
  proof_record_hash, validity, body) on svc.log_entry to svc_publisher;
grant select (token_hash, artifact_kind, proof_id, package_id) on svc.share_token to svc_publisher;
grant select (token_hash) on svc.share_revocation, svc.share_expiry to svc_publisher;
grant select (package_id, members_hash) on svc.trust_package to svc_publisher;
grant insert on svc.checkpoint to svc_publisher;
grant execute on function svc.append_snapshot to svc_publisher;

-- admin: tenants, keys, environments, policies, fixtures, and the log entries that are not proofs.
grant select on svc.api_key, svc.approver, svc.audit, svc.batch, svc.batch_part, svc.batch_progress, svc.checkpoint,
  svc.chunk_pending, svc.ended_log, svc.erasure, svc.fixture, svc.heartbeat, svc.idempotency_key, svc.intake,
  svc.intake_pending, svc.lane, svc.log_entry, svc.log_head, svc.maintenance, svc.overlay, svc.overlay_set,
  svc.policy_activation, svc.policy_set, svc.refusal, svc.revocation_pending, svc.revocation_reason,
  svc.revocation_request, svc.scrub, svc.status_exception, svc.tenant, svc.tile, svc.verdict to svc_admin;
grant insert on svc.api_key, svc.approver, svc.fixture, svc.log_entry, svc.overlay_set, svc.policy_activation,
  svc.policy_set, svc.revocation_reason, svc.status_exception, svc.tenant, svc.tile to svc_admin;
grant update (expires_at, revoked_at) on svc.api_key to svc_admin;
grant update (open, changed_at) on svc.lane to svc_admin;
grant update (tree_size) on svc.log_head to svc_admin;
grant update (allowlisted, validity, rate_limit) on svc.tenant to svc_admin;
grant update (hashes) on svc.tile to svc_admin;
grant execute on function svc.append_approver, svc.end_log to svc_admin;

-- erase: nulls payload, and adopts lost leaves.
grant select on svc.batch, svc.batch_part, svc.erasure, svc.idempotency_key, svc.intake, svc.log_entry, svc.refusal,
  svc.revocation_pending, svc.revocation_reason, svc.revocation_request, svc.status_exception, svc.tenant, svc.tile
  to svc_erase;
grant insert on svc.erasure, svc.status_exception to svc_erase;
grant update (items_hash) on svc.batch to svc_erase;
grant update (problems) on svc.batch_part to svc_erase;
grant update (request, request_hash, seed, approval) on svc.intake to svc_erase;
grant update (signature, reasons, budgets, action, intent_id, parent) on svc.log_entry to svc_erase;
grant update (detail) on svc.refusal to svc_erase;
grant update (document) on svc.revocation_request, svc.revocation_reason to svc_erase;
grant delete on svc.idempotency_key to svc_erase;
grant execute on function svc.adopt_entries, svc.append_erasure, svc.begin_adoption, svc.finish_adoption to svc_erase;

-- fsck: reads what it checks, and changes only the record of its runs.
grant select on svc.adoption, svc.approver, svc.audit, svc.batch, svc.batch_part, svc.batch_progress, svc.batch_watch,
  svc.checkpoint, svc.chunk_pending, svc.counter, svc.ended_checkpoint, svc.ended_log, svc.erasure, svc.erasure_due,
  svc.expiry, svc.fixture, svc.grant_change, svc.grant_head, svc.intake, svc.intake_pending, svc.log_entry,
  svc.log_head, svc.overlay, svc.overlay_set, svc.package_member, svc.policy_activation, svc.policy_set, svc.refusal,
  svc.revocation_pending, svc.revocation_reason, svc.revocation_request, svc.scrub, svc.share_due, svc.share_expiry,
  svc.share_revocation, svc.share_token, svc.status_exception, svc.tenant, svc.tile, svc.trust_package, svc.upkeep,
  svc.verdict to svc_fsck;
grant execute on function svc.record_fsck to svc_fsck;
