-- Tenants apart, and what their lists ask for.

-- Whose rows --------------------------------------------------------------------------------

-- Every query of the engine names the tenants that it speaks for; this stands behind it for the day
-- when one does not. The engine's role sees the rows of the tenants in `svc.tenants`, which is set
-- for one transaction at a time, and without it none. The other programs serve the whole registry.
--
-- FORCE, so that even the owner is shown nothing. A later migration that has to read or change rows
-- of these tables takes it off first and puts it on again.

-- What is unset is null, or empty once a transaction of the session has set it: nobody's rows.
create function svc.tenants_in_scope() returns integer[] language sql stable as $$
  select nullif(current_setting('svc.tenants', true), '')::integer[]
$$;

do $$
declare
  tenants_table text;
begin
  foreach tenants_table in array array['intake', 'intake_pending', 'refusal', 'idempotency_key', 'proof',
    'revocation_request', 'revocation_pending', 'trust_package', 'package_member', 'share_token',
    'share_revocation'] loop
    execute format('alter table svc.%I enable row level security', tenants_table);
    execute format('alter table svc.%I force row level security', tenants_table);
    -- Their grants say what they may do; they do it for every tenant.
    execute format('create policy whole_registry on svc.%I
      to svc_worker, svc_verifier, svc_publisher, svc_admin using (true)', tenants_table);
  end loop;
end $$;

-- The scope is in a subquery of its own, so that it is read once a statement and not once a row.

create policy own_tenants on svc.intake to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]));
create policy own_tenants on svc.idempotency_key to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]));
create policy own_tenants on svc.proof to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]));
create policy own_tenants on svc.trust_package to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]));

-- Foreign keys look past policies. What a row points to must be the same tenant's, or a tenant could
-- revoke, bundle or share what it cannot see.
create policy own_tenants on svc.revocation_request to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (tenant_no = any ((select svc.tenants_in_scope())::integer[])
    and exists (select from svc.proof p
      where p.proof_id = revocation_request.proof_id and p.tenant_no = revocation_request.tenant_no));
create policy own_tenants on svc.share_token to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (tenant_no = any ((select svc.tenants_in_scope())::integer[])
    and (proof_id is null or exists (select from svc.proof p
      where p.proof_id = share_token.proof_id and p.tenant_no = share_token.tenant_no))
    and (package_id is null or exists (select from svc.trust_package k
      where k.package_id = share_token.package_id and k.tenant_no = share_token.tenant_no)));

-- Rows without a tenant of their own belong to whoever their parent belongs to, whose own policy
-- decides. A statement does not see what it inserts itself: parent first, then these.
create policy own_tenants on svc.intake_pending to svc_engine
  using (exists (select from svc.intake i where i.proof_id = intake_pending.proof_id));
create policy own_tenants on svc.refusal to svc_engine
  using (exists (select from svc.intake i where i.proof_id = refusal.proof_id));
create policy own_tenants on svc.revocation_pending to svc_engine
  using (exists (select from svc.revocation_request r where r.request_id = revocation_pending.request_id));
create policy own_tenants on svc.package_member to svc_engine
  using (exists (select from svc.trust_package k where k.package_id = package_member.package_id))
  with check (exists (select from svc.trust_package k join svc.proof p using (tenant_no)
    where k.package_id = package_member.package_id and p.proof_id = package_member.proof_id));
create policy own_tenants on svc.share_revocation to svc_engine
  using (exists (select from svc.share_token t where t.token_hash = share_revocation.token_hash));

-- What a list asks for ------------------------------------------------------------------------

-- How long the log was at a time: a list that begins there reads back no further.
create index checkpoint_created on svc.checkpoint (created_at);

-- Who may what -------------------------------------------------------------------------------

revoke all on all functions in schema svc from public;
grant execute on function svc.tenants_in_scope() to svc_engine;
