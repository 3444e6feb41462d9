-- One role per program, never owner or superuser. Roles belong to the cluster, so they may exist; a
-- deployment gives them passwords.

do $$
declare
  program text;
begin
  foreach program in array array['svc_engine', 'svc_worker', 'svc_verifier', 'svc_publisher', 'svc_admin',
    'svc_fsck', 'svc_erase'] loop
    begin
      execute format('create role %I nologin', program);
    exception when duplicate_object or unique_violation then
      null;
    end;
  end loop;
end $$;

-- Functions for roles that must not read the rows ----------------------------------------------

create function svc.tenants_in_scope() returns integer[] language sql stable as $$
  select nullif(current_setting('svc.tenants', true), '')::integer[]
$$;

-- The engine sees one tenant at a time, but rejects all of them when the queue is full, so it may learn
-- this number. Counting stops at `most`, in physical order: an index scan takes ten times as long.
create function svc.pending_depth(most integer) returns integer language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = on as $$
  select (select count(*) from (select from svc.intake_pending limit most) as single)::integer
    + (select coalesce(sum(admissions), 0) from (select admissions from svc.chunk_pending limit most) as chunk)::integer
$$;

create function svc.batch_pending(of_tenant integer, out everybodys integer, out own integer)
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select coalesce(sum(pending), 0)::integer,
    coalesce(sum(pending) filter (where tenant_no = of_tenant), 0)::integer
  from svc.batch_progress where pending > 0
$$;

-- Records a heartbeat under the login role, so that no program reports for another. Deletes instances
-- of the role that were silent for a day.
create function svc.record_heartbeat(of uuid, is_ready jsonb) returns void language sql security definer
  set search_path = pg_catalog, pg_temp as $$
  insert into svc.heartbeat (role, instance, readiness) values (session_user, of, is_ready)
    on conflict (role, instance) do update set beat_at = clock_timestamp(), readiness = excluded.readiness;
  delete from svc.heartbeat where role = session_user and beat_at < clock_timestamp() - interval '1 day';
$$;

-- The engine changes keys only by the two functions below, for a key that manages the keys of its tenant.
-- `for share` makes a concurrent revocation wait, so it also revokes the new key.
create function svc.lock_managing_key(managing integer, act text, scope text default 'keys') returns svc.api_key
  language plpgsql as $$
declare
  manager svc.api_key;
begin
  select * into manager from svc.api_key k where k.key_no = managing
    and k.tenant_no = any (svc.tenants_in_scope()) and k.scopes && array['admin', scope]
    and k.revoked_at is null and (k.expires_at is null or k.expires_at > clock_timestamp()) for share;
  perform set_config('svc.actor', 'key ' || manager.key_id, true), set_config('svc.act', act, true);
  return manager;
end $$;

-- Returns false if the managing key is inactive, or lacks a wanted scope. The expiry of the managing key
-- limits the new key at creation only; revocation cascades.
create function svc.create_api_key(managing integer, id text, hash bytea, wanted text[], restriction jsonb,
    until timestamptz) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  manager constant svc.api_key := svc.lock_managing_key(managing, 'key create');
begin
  insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref, expires_at, created_by,
    agent_id, actions, tools, environment)
  select id, manager.tenant_no, hash, wanted, manager.review_ref, least(until, manager.expires_at),
    manager.key_id, r.agent_id, r.actions, r.tools, r.environment
  from jsonb_to_record(restriction) as r(agent_id text, actions text[], tools text[], environment text)
  where manager.scopes @> wanted or 'admin' = any (manager.scopes);
  return found;
end $$;

-- Returns false if the managing key is inactive or lacks the scope.
create function svc.revoke_api_key(managing integer, id text) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  manager svc.api_key;
begin
  -- Workers check keys under the append lock: they sign nothing for a revoked key.
  perform svc.hold_appends();
  manager := svc.lock_managing_key(managing, 'key revoke');
  update svc.api_key k set revoked_at = clock_timestamp()
    where k.key_id = id and k.tenant_no = manager.tenant_no and k.revoked_at is null;
  return manager.key_id is not null;
end $$;

revoke all on schema svc from public;
revoke all on all functions in schema svc from public;
grant usage on schema svc
  to svc_engine, svc_worker, svc_verifier, svc_publisher, svc_admin, svc_fsck, svc_erase;
grant execute on function svc.tenants_in_scope(), svc.pending_depth(integer), svc.batch_pending(integer),
  svc.create_api_key(integer, text, bytea, text[], jsonb, timestamptz), svc.revoke_api_key(integer, text) to svc_engine;
grant execute on function svc.record_heartbeat(uuid, jsonb) to svc_engine, svc_worker, svc_verifier, svc_publisher;
grant execute on function svc.end_log(text, text) to svc_admin;

-- Grants; sql/db/roles.ts lists the same, and programs refuse to start with more -----------------

-- engine: accepts admissions and reads for its tenants. It cannot append, sign or write verdicts.
grant select on svc.api_key, svc.batch, svc.batch_part, svc.batch_progress, svc.batch_watch, svc.checkpoint,
  svc.chunk_pending, svc.fixture, svc.idempotency_key, svc.intake, svc.intake_pending, svc.lane, svc.log_entry,
  svc.log_head, svc.package_member, svc.policy_activation, svc.policy_set, svc.refusal,
  svc.revocation_pending, svc.revocation_request, svc.share_revocation, svc.share_token, svc.status_exception,
  svc.tenant, svc.tile, svc.trust_package, svc.verdict to svc_engine;
grant select (proof_id, erased_at) on svc.erasure to svc_engine;
grant insert on svc.batch, svc.batch_part, svc.batch_progress, svc.batch_watch, svc.chunk_pending,
  svc.idempotency_key, svc.intake, svc.intake_pending, svc.package_member, svc.revocation_pending,
  svc.revocation_request, svc.share_revocation, svc.share_token, svc.trust_package to svc_engine;

-- worker: commits outcomes. It cannot accept admissions or write verdicts, and sees no key's hash.
grant select on svc.batch_part, svc.batch_progress, svc.batch_watch, svc.chunk_lease, svc.chunk_pending,
  svc.fixture, svc.intake, svc.intake_pending, svc.lane, svc.log_entry, svc.log_head, svc.policy_activation,
  svc.policy_set, svc.refusal, svc.revocation_pending, svc.revocation_request, svc.status_exception,
  svc.tenant, svc.tile to svc_worker;
grant select (key_id, tenant_no, key_no, expires_at, revoked_at, agent_id) on svc.api_key to svc_worker;
grant insert on svc.chunk_lease, svc.log_entry, svc.refusal, svc.revocation_reason,
  svc.status_exception, svc.tile to svc_worker;
grant insert on svc.intake_pending to svc_worker; -- for chunks that it splits
grant update (pending, admitted, denied, approval_required, refused, completed_at) on svc.batch_progress to svc_worker;
grant update (lease_no) on svc.chunk_lease to svc_worker;
grant update (leased_at) on svc.chunk_pending to svc_worker;
grant update (refused) on svc.intake, svc.revocation_request to svc_worker;
grant update (tree_size) on svc.log_head to svc_worker;
grant update (hashes) on svc.tile to svc_worker;
grant delete on svc.batch_watch, svc.chunk_pending, svc.intake_pending, svc.revocation_pending to svc_worker;

-- verifier: the only writer of verdicts.
grant select on svc.erasure_due, svc.expiry, svc.intake, svc.log_entry, svc.log_head, svc.scrub,
  svc.share_due, svc.status_exception, svc.tenant, svc.tile, svc.upkeep, svc.verdict to svc_verifier;
grant select (proof_id, leaf_index) on svc.erasure to svc_verifier;
grant insert on svc.expiry, svc.share_expiry, svc.status_exception, svc.verdict to svc_verifier;
grant update (expires_at) on svc.expiry to svc_verifier; -- for FOR UPDATE
grant update (next_index, urgent_until, epoch) on svc.scrub to svc_verifier;
grant update (done_at) on svc.upkeep to svc_verifier;
grant delete on svc.erasure_due, svc.expiry, svc.share_due to svc_verifier;

-- publisher: reads log entries and shares; no payload and no tenant of a share.
grant select on svc.checkpoint, svc.ended_log, svc.grant_change, svc.log_head, svc.package_member, svc.tile
  to svc_publisher;
grant select (leaf_index, at, kind, is_outcome, proof_id, revokes, effect, environment, key_id, aep_hash,
  proof_record_hash, validity, body) on svc.log_entry to svc_publisher;
grant select (token_hash, artifact_kind, proof_id, package_id) on svc.share_token to svc_publisher;
grant select (token_hash) on svc.share_revocation, svc.share_expiry to svc_publisher;
grant select (package_id, members_hash) on svc.trust_package to svc_publisher;
grant insert on svc.checkpoint to svc_publisher;

-- admin: tenants, keys, environments, policies, fixtures, and the log entries that are not proofs.
grant select on svc.api_key, svc.audit, svc.batch, svc.batch_part, svc.batch_progress, svc.batch_watch,
  svc.checkpoint, svc.chunk_pending, svc.ended_checkpoint, svc.ended_log, svc.erasure, svc.expiry, svc.fixture,
  svc.heartbeat, svc.idempotency_key, svc.intake, svc.intake_pending, svc.lane, svc.log_entry, svc.log_head,
  svc.package_member, svc.policy_activation, svc.policy_set, svc.refusal,
  svc.revocation_pending, svc.revocation_reason, svc.revocation_request, svc.scrub, svc.share_revocation,
  svc.share_token, svc.status_exception, svc.tenant, svc.tile, svc.trust_package, svc.verdict to svc_admin;
grant insert on svc.api_key, svc.fixture, svc.log_entry, svc.policy_activation, svc.policy_set,
  svc.revocation_reason, svc.status_exception, svc.tenant, svc.tile to svc_admin;
grant update (expires_at, revoked_at) on svc.api_key to svc_admin;
grant update (open, changed_at) on svc.lane to svc_admin;
grant update (tree_size) on svc.log_head to svc_admin;
grant update (allowlisted, validity, rate_limit) on svc.tenant to svc_admin;
grant update (hashes) on svc.tile to svc_admin;

-- erase: nulls payload.
grant select on svc.batch, svc.batch_part, svc.erasure, svc.idempotency_key, svc.intake, svc.log_entry,
  svc.refusal, svc.revocation_pending, svc.revocation_reason,
  svc.revocation_request, svc.status_exception, svc.tenant to svc_erase;
grant insert on svc.erasure, svc.status_exception to svc_erase;
grant update (items_hash) on svc.batch to svc_erase;
grant update (problems) on svc.batch_part to svc_erase;
grant update (request, request_hash, seed, approval) on svc.intake to svc_erase;
grant update (signature, reasons, budgets, action, intent_id, parent) on svc.log_entry to svc_erase;
grant update (detail) on svc.refusal to svc_erase;
grant update (document) on svc.revocation_request, svc.revocation_reason to svc_erase;
grant delete on svc.idempotency_key to svc_erase;

-- fsck: reads everything but API keys and changes nothing.
grant select on svc.audit, svc.batch, svc.batch_part, svc.batch_progress, svc.batch_watch, svc.checkpoint,
  svc.chunk_pending, svc.ended_checkpoint, svc.ended_log, svc.erasure, svc.erasure_due, svc.expiry, svc.fixture,
  svc.grant_change, svc.grant_head, svc.intake, svc.intake_pending, svc.log_entry, svc.log_head,
  svc.package_member, svc.policy_set, svc.refusal, svc.revocation_pending,
  svc.revocation_reason, svc.revocation_request, svc.scrub, svc.share_due, svc.share_expiry,
  svc.share_revocation, svc.share_token, svc.tenant, svc.tile, svc.trust_package, svc.upkeep, svc.verdict
  to svc_fsck;

-- Row-level security ---------------------------------------------------------------------------

-- Backs up the tenant predicate of every query of the engine: its role sees only the rows of the tenants
-- in `svc.tenants`, set for one transaction; none without it. Forced on the owner too, so a migration
-- that changes rows of these tables must disable it first.
do $$
declare
  name text;
begin
  foreach name in array array['api_key', 'batch', 'batch_part', 'batch_progress', 'batch_watch', 'chunk_lease',
    'chunk_pending', 'erasure', 'grant_change', 'idempotency_key', 'intake', 'intake_pending', 'log_entry',
    'package_member', 'refusal', 'revocation_pending', 'revocation_request', 'share_due', 'share_expiry', 'share_revocation',
    'share_token', 'status_exception', 'trust_package'] loop
    execute format('alter table svc.%I enable row level security', name);
    execute format('alter table svc.%I force row level security', name);
    if name not in ('api_key', 'chunk_lease', 'idempotency_key', 'status_exception') then
      execute format('create policy checked on svc.%I for select to svc_fsck using (true)', name);
    end if;
  end loop;
  -- The other programs serve every tenant; their grants limit them.
  foreach name in array array['api_key', 'batch', 'batch_part', 'batch_progress', 'batch_watch', 'chunk_pending',
    'idempotency_key', 'intake', 'intake_pending', 'log_entry', 'package_member', 'refusal',
    'revocation_pending', 'revocation_request', 'share_revocation', 'share_token', 'trust_package'] loop
    execute format('create policy whole_registry on svc.%I
      to svc_worker, svc_verifier, svc_publisher, svc_admin using (true)', name);
  end loop;
  foreach name in array array['grant_change', 'share_due', 'share_expiry'] loop
    execute format('create policy whole_registry on svc.%I to svc_verifier, svc_publisher using (true)', name);
  end loop;
  foreach name in array array['intake', 'refusal', 'log_entry', 'revocation_request', 'revocation_pending',
    'batch', 'batch_part'] loop
    execute format('create policy erasing on svc.%I to svc_erase using (true)', name);
  end loop;
  -- The scope is a subquery, so that it is read once per statement and not once per row.
  foreach name in array array['batch', 'idempotency_key', 'intake', 'status_exception', 'trust_package'] loop
    execute format('create policy own_tenants on svc.%I to svc_engine
      using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))', name);
  end loop;
end $$;
-- Authentication, which precedes the scope, finds the keys of every tenant by their ids.
create policy own_tenants on svc.api_key to svc_engine
  using ((select svc.tenants_in_scope()) is null or tenant_no = any ((select svc.tenants_in_scope())::integer[]));
-- Status and key entries are public.
create policy own_tenants on svc.log_entry to svc_engine
  using (kind <> 1 or tenant_no = any ((select svc.tenants_in_scope())::integer[]));
create policy whole_registry on svc.chunk_lease to svc_worker using (true);
create policy whole_registry on svc.erasure to svc_verifier, svc_admin, svc_erase using (true);
create policy whole_registry on svc.status_exception
  to svc_worker, svc_verifier, svc_admin, svc_erase using (true);

-- Foreign keys ignore policies. A referenced row must belong to the same tenant, or a tenant could
-- revoke, bundle or share what it cannot see.
create policy own_tenants on svc.revocation_request to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (tenant_no = any ((select svc.tenants_in_scope())::integer[])
    and exists (select from svc.log_entry p
      where p.proof_id = revocation_request.proof_id and p.tenant_no = revocation_request.tenant_no));
create policy own_tenants on svc.share_token to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (tenant_no = any ((select svc.tenants_in_scope())::integer[])
    and (proof_id is null or exists (select from svc.log_entry p
      where p.proof_id = share_token.proof_id and p.tenant_no = share_token.tenant_no))
    and (package_id is null or exists (select from svc.trust_package k
      where k.package_id = share_token.package_id and k.tenant_no = share_token.tenant_no)));
create policy own_tenants on svc.batch_progress to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (exists (select from svc.batch b
    where b.batch_id = batch_progress.batch_id and b.tenant_no = batch_progress.tenant_no));
create policy own_tenants on svc.chunk_pending to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (exists (select from svc.batch b
    where b.batch_id = chunk_pending.batch_id and b.tenant_no = chunk_pending.tenant_no));

-- Rows without a tenant belong to the tenant of their parent, whose policy decides. A statement does
-- not see its own inserts, so the parent is inserted by an earlier statement.
create policy own_tenants on svc.intake_pending to svc_engine
  using (exists (select from svc.intake i where i.proof_id = intake_pending.proof_id))
  with check (batch_id is null and exists (select from svc.intake i where i.proof_id = intake_pending.proof_id));
create policy own_tenants on svc.refusal to svc_engine
  using (exists (select from svc.intake i where i.proof_id = refusal.proof_id));
create policy own_tenants on svc.erasure to svc_engine
  using (exists (select from svc.intake i where i.proof_id = erasure.proof_id));
create policy own_tenants on svc.revocation_pending to svc_engine
  using (exists (select from svc.revocation_request r where r.request_id = revocation_pending.request_id));
create policy own_tenants on svc.package_member to svc_engine
  using (exists (select from svc.trust_package k where k.package_id = package_member.package_id))
  with check (exists (select from svc.trust_package k join svc.log_entry p using (tenant_no)
    where k.package_id = package_member.package_id and p.proof_id = package_member.proof_id));
create policy own_tenants on svc.share_revocation to svc_engine
  using (exists (select from svc.share_token t where t.token_hash = share_revocation.token_hash));
create policy own_tenants on svc.batch_part to svc_engine
  using (exists (select from svc.batch b where b.batch_id = batch_part.batch_id));
create policy own_tenants on svc.batch_watch to svc_engine
  using (exists (select from svc.batch b where b.batch_id = batch_watch.batch_id))
  with check (exists (select from svc.batch b join svc.intake i using (tenant_no)
    where b.batch_id = batch_watch.batch_id and i.proof_id = batch_watch.proof_id));

-- For the functions and triggers that run as the owner.
create policy managed on svc.api_key to current_user using (true);
create policy counted on svc.intake_pending for select to current_user using (true);
create policy counted on svc.chunk_pending for select to current_user using (true);
create policy counted on svc.batch_progress for select to current_user using (true);
create policy recorded on svc.grant_change for insert to current_user with check (true);
create policy recorded on svc.share_due for insert to current_user with check (true);

-- The eraser may delete a key only when its body was erased: payload and batch hashes go before keys.
-- Other keys are invisible to the deletion, because the same body may exist again.
create policy erasing on svc.idempotency_key for select to svc_erase using (true);
create policy erased on svc.idempotency_key for delete to svc_erase using (case lane
  when 3 then (select true from svc.batch b
    where b.tenant_no = idempotency_key.tenant_no and b.items_hash = idempotency_key.request_hash) is null
  else (select true from svc.intake i where i.tenant_no = idempotency_key.tenant_no
      and i.lane = idempotency_key.lane and i.request_hash = idempotency_key.request_hash
      and not i.refused) is null
    -- No index finds rejected admissions by hash: evaluated once per statement.
    and (tenant_no, lane, request_hash) not in (
      select i.tenant_no, i.lane, i.request_hash from svc.refusal join svc.intake i using (proof_id)
      where i.request_hash is not null) end);
