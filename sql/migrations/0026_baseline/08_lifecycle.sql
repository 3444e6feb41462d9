-- Revocations, packages and share tokens.

-- The engine may not append, so a worker appends the status entry of a request.
create table svc.revocation_request (
  request_id    uuid primary key,
  tenant_no     integer not null references svc.tenant,
  key_no        integer not null,
  proof_id      uuid not null references svc.log_entry (proof_id),
  artifact_kind text not null check (artifact_kind in ('proof', 'passport', 'certificate', 'trust')),
  reason_hash   bytea not null unique check (length(reason_hash) = 32),
  document      bytea,                                            -- the salted reason, as hashed
  requested_at  timestamptz(3) not null default clock_timestamp(),
  refused       text check (refused in ('api_key_revoked', 'processing_failed'))
);
-- Revocation is permanent, so one request is enough. A rejected request can be repeated.
create unique index revocation_identity on svc.revocation_request (proof_id, artifact_kind)
  where refused is null;
create index revocation_latest on svc.revocation_request (proof_id, artifact_kind, requested_at);
call svc.keep_rows('delete', 'revocation_request');

call svc.secure_rows('revocation_request');
-- Foreign keys ignore policies. A referenced row must belong to the same tenant, or a tenant could
-- revoke, bundle or share what it cannot see.
create policy own_tenants on svc.revocation_request to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (tenant_no = any ((select svc.tenants_in_scope())::integer[])
    and exists (select from svc.log_entry p
      where p.proof_id = revocation_request.proof_id and p.tenant_no = revocation_request.tenant_no));
create policy erasing on svc.revocation_request to svc_erase using (true);

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

-- Requests without an outcome; deleting the row is the claim.
create table svc.revocation_pending (
  request_id   uuid primary key references svc.revocation_request,
  requested_at timestamptz(3) not null
);
create index revocation_pending_age on svc.revocation_pending (requested_at, request_id);
call svc.secure_rows('revocation_pending');
create policy own_tenants on svc.revocation_pending to svc_engine
  using (exists (select from svc.revocation_request r where r.request_id = revocation_pending.request_id));
create policy erasing on svc.revocation_pending to svc_erase using (true);

-- The log has only the hash; the salt in the document prevents guessing.
create table svc.revocation_reason (
  reason_hash bytea primary key check (length(reason_hash) = 32),
  document    bytea,
  created_at  timestamptz(3) not null default now()
);
call svc.keep_rows('delete', 'revocation_reason');

-- Packages and shares --------------------------------------------------------------------------

create table svc.trust_package (
  package_id   uuid primary key,
  tenant_no    integer not null references svc.tenant,
  key_no       integer not null,
  members_hash bytea not null check (length(members_hash) = 32),  -- of the proof ids in order
  created_at   timestamptz(3) not null default clock_timestamp(),
  unique (tenant_no, members_hash)
);
create index trust_package_of_tenant on svc.trust_package (tenant_no, created_at, package_id);
call svc.secure_rows('trust_package', is_own => true);

create table svc.package_member (
  package_id uuid not null references svc.trust_package,
  position   smallint not null check (position >= 0),
  proof_id   uuid not null references svc.log_entry (proof_id),
  primary key (package_id, position),
  unique (package_id, proof_id)
);
call svc.secure_rows('package_member');
create policy own_tenants on svc.package_member to svc_engine
  using (exists (select from svc.trust_package k where k.package_id = package_member.package_id))
  with check (exists (select from svc.trust_package k join svc.log_entry p using (tenant_no)
    where k.package_id = package_member.package_id and p.proof_id = package_member.proof_id));

create table svc.share_token (
  token_hash    bytea primary key check (length(token_hash) = 32), -- the token itself is never stored
  tenant_no     integer not null references svc.tenant,
  key_no        integer not null,
  artifact_kind text not null check (artifact_kind in ('proof', 'passport', 'certificate', 'trust', 'package')),
  proof_id      uuid references svc.log_entry (proof_id),
  package_id    uuid references svc.trust_package,
  created_at    timestamptz(3) not null default clock_timestamp(),
  expires_at    timestamptz(3) check (expires_at > created_at),
  check ((artifact_kind = 'package') = (package_id is not null)),
  check ((package_id is null) <> (proof_id is null))
);
create index share_token_of_tenant on svc.share_token (tenant_no, created_at, token_hash);
call svc.secure_rows('share_token');
create policy own_tenants on svc.share_token to svc_engine
  using (tenant_no = any ((select svc.tenants_in_scope())::integer[]))
  with check (tenant_no = any ((select svc.tenants_in_scope())::integer[])
    and (proof_id is null or exists (select from svc.log_entry p
      where p.proof_id = share_token.proof_id and p.tenant_no = share_token.tenant_no))
    and (package_id is null or exists (select from svc.trust_package k
      where k.package_id = share_token.package_id and k.tenant_no = share_token.tenant_no)));

create table svc.share_revocation (
  token_hash bytea primary key references svc.share_token,
  key_no     integer not null,
  revoked_at timestamptz(3) not null default clock_timestamp()
);
call svc.secure_rows('share_revocation');
create policy own_tenants on svc.share_revocation to svc_engine
  using (exists (select from svc.share_token t where t.token_hash = share_revocation.token_hash));

-- Expiries to come, so that the verifier need not read every token.
create table svc.share_due (
  token_hash bytea primary key references svc.share_token,
  expires_at timestamptz(3) not null
);
create index share_due_at on svc.share_due (expires_at);
call svc.secure_rows('share_due', 'svc_verifier, svc_publisher');
create policy recorded on svc.share_due for insert to current_user with check (true);

create function svc.remember_share_end() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  insert into svc.share_due (token_hash, expires_at) values (new.token_hash, new.expires_at);
  return null;
end $$;
create trigger remembered after insert on svc.share_token for each row
  when (new.expires_at is not null) execute function svc.remember_share_end();

-- Expiries that the verifier recorded; the public reads no clock.
create table svc.share_expiry (
  token_hash bytea primary key references svc.share_token,
  expired_at timestamptz(3) not null default clock_timestamp()
);
call svc.secure_rows('share_expiry', 'svc_verifier, svc_publisher');

-- Numbered changes of shares -------------------------------------------------------------------

-- The publisher reads changes after the last one that it saw, so a change must never appear behind a
-- later one. The row lock of the counter is held until the commit, and a rollback leaves no gap.
create table svc.grant_head (
  one       boolean primary key default true check (one),
  change_no bigint not null default 0 check (change_no >= 0)
);
insert into svc.grant_head default values;
call svc.keep_rows('delete', 'grant_head');

create function svc.grows_by_one() returns trigger language plpgsql as $$
begin
  if new.change_no <> old.change_no + 1 then
    raise exception 'the number of svc.% may only grow by one', tg_table_name using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger counts before update on svc.grant_head for each row execute function svc.grows_by_one();

create table svc.grant_change (
  change_no  bigint primary key check (change_no > 0),
  token_hash bytea references svc.share_token,
  package_id uuid references svc.trust_package,
  check ((token_hash is null) <> (package_id is null))
);
call svc.secure_rows('grant_change', 'svc_verifier, svc_publisher');
create policy recorded on svc.grant_change for insert to current_user with check (true);

call svc.keep_rows('update or delete', 'grant_change', 'package_member', 'share_expiry', 'share_revocation',
  'share_token', 'trust_package');

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
