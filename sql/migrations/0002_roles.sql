-- One role per program, never owner, never superuser. Roles belong to the cluster, so they may be
-- there already; a deployment gives them passwords (NOLOGIN until then).

do $$
declare
  program text;
begin
  foreach program in array array['svc_engine', 'svc_worker', 'svc_verifier', 'svc_publisher', 'svc_admin'] loop
    begin
      execute format('create role %I nologin', program);
    exception when duplicate_object or unique_violation then
      null;
    end;
  end loop;
end $$;

revoke all on schema svc from public;
revoke all on all functions in schema svc from public;
grant usage on schema svc to svc_engine, svc_worker, svc_verifier, svc_publisher, svc_admin;

-- engine: takes in, and reads for its tenants. Cannot append, sign or judge.
grant select on svc.tenant, svc.lane, svc.api_key, svc.policy_set, svc.policy_activation, svc.fixture,
  svc.intake, svc.intake_pending, svc.refusal, svc.idempotency_key, svc.log_head, svc.log_entry,
  svc.proof, svc.tile, svc.checkpoint, svc.verdict to svc_engine;
grant insert on svc.intake, svc.intake_pending, svc.idempotency_key to svc_engine;

-- worker: settles what was taken in. Cannot accept, cannot write verdicts.
grant select on svc.tenant, svc.lane, svc.policy_set, svc.policy_activation, svc.fixture, svc.intake,
  svc.intake_pending, svc.policy_input, svc.refusal, svc.log_head, svc.log_entry, svc.proof,
  svc.tile to svc_worker;
grant insert on svc.log_entry, svc.proof, svc.tile, svc.refusal, svc.policy_input to svc_worker;
grant delete on svc.intake_pending to svc_worker;
grant update (tree_size) on svc.log_head to svc_worker;
grant update (hashes) on svc.tile to svc_worker;
grant update (refused) on svc.intake to svc_worker;

-- verifier: reads everything it judges; the only writer of verdicts.
grant select on svc.tenant, svc.intake, svc.log_head, svc.log_entry, svc.proof, svc.tile, svc.verdict,
  svc.expiry, svc.scrub to svc_verifier;
grant insert on svc.verdict, svc.expiry to svc_verifier;
grant update (next_index, urgent_until, epoch) on svc.scrub to svc_verifier;
grant delete on svc.expiry to svc_verifier;
grant update (expires_at) on svc.expiry to svc_verifier; -- what FOR UPDATE asks for

-- publisher: reads commitments and verdicts, never a payload.
grant select on svc.log_head, svc.log_entry, svc.tile, svc.checkpoint, svc.verdict to svc_publisher;
grant select (proof_id, leaf_index, effect, environment, key_id) on svc.proof to svc_publisher;
grant insert on svc.checkpoint to svc_publisher;

-- admin: tenants, keys, lanes, policies, fixtures, and the log entries that are not proofs.
grant select on all tables in schema svc to svc_admin;
grant insert on svc.tenant, svc.api_key, svc.policy_set, svc.policy_activation, svc.fixture,
  svc.log_entry, svc.revocation_reason, svc.tile to svc_admin;
grant update (allowlisted, validity) on svc.tenant to svc_admin;
grant update (open, changed_at) on svc.lane to svc_admin;
grant update (expires_at, revoked_at) on svc.api_key to svc_admin;
grant update (tree_size) on svc.log_head to svc_admin;
grant update (hashes) on svc.tile to svc_admin;
