-- What tenants list, revoke, share and bundle, which key asked for it, and a record of every
-- administrative act.

-- Which key asked ----------------------------------------------------------------------------

alter table svc.api_key
  add column key_no   integer generated always as identity unique,
  add column replaces text references svc.api_key;                -- rotation: the key that this one follows
alter table svc.tenant
  add column rate_limit integer check (rate_limit > 0);            -- requests a second; null: the engine's default

-- Pinned, so that revoking a key holds for what it asked and nobody has signed yet. Null only for
-- what was accepted before keys were pinned.
alter table svc.intake add column key_no integer;

-- What a tenant lists by ---------------------------------------------------------------------

-- Beside the AEP, which says the same: a list must not open every AEP of the registry.
alter table svc.proof
  add column tenant_no integer,
  add column lane      smallint check (lane in (1, 2)),
  add column action    text,                                       -- null for an outcome, which has none
  add column intent_id text collate "C";                           -- null on the agent lane, which has none
alter table svc.proof disable trigger append_only;
update svc.proof p set
  tenant_no = i.tenant_no,
  lane = i.lane,
  action = convert_from(p.aep, 'UTF8')::json -> 'subject' ->> 'action',
  intent_id = convert_from(p.aep, 'UTF8')::json -> 'subject' ->> 'intent_id'
from svc.intake i where i.proof_id = p.proof_id;
alter table svc.proof enable trigger append_only;
alter table svc.proof
  alter column tenant_no set not null,
  alter column lane set not null;
create index proof_of_tenant on svc.proof (tenant_no, leaf_index);
-- Of the text itself, which has a greatest length: row-level security lets no condition on a hash of
-- it reach an index.
create index proof_intent on svc.proof (tenant_no, intent_id, leaf_index) where intent_id is not null;

-- Revocations that tenants ask for -----------------------------------------------------------

-- The engine cannot append. It writes down what was asked, and a worker appends the status entry.
create table svc.revocation_request (
  request_id    uuid primary key,
  tenant_no     integer not null references svc.tenant,
  key_no        integer not null,
  proof_id      uuid not null references svc.proof,
  artifact_kind text not null check (artifact_kind in ('proof', 'passport', 'certificate', 'trust')),
  reason_hash   bytea not null unique check (length(reason_hash) = 32),
  document      bytea not null,                                    -- the salted reason, as its hash was made
  requested_at  timestamptz(3) not null default clock_timestamp(),
  refused       text check (refused in ('api_key_revoked', 'processing_failed')) -- why no worker appended it
);
-- What is revoked is revoked for ever, so asking once is enough. A refused request gives way.
create unique index revocation_identity on svc.revocation_request (proof_id, artifact_kind)
  where refused is null;
create index revocation_latest on svc.revocation_request (proof_id, artifact_kind, requested_at);

-- Asked for and not yet in the log; whoever deletes the row appends, and nobody else can.
create table svc.revocation_pending (
  request_id   uuid primary key references svc.revocation_request,
  requested_at timestamptz(3) not null
);
create index revocation_pending_age on svc.revocation_pending (requested_at, request_id);

-- Packages and share tokens ------------------------------------------------------------------

create table svc.trust_package (
  package_id   uuid primary key,
  tenant_no    integer not null references svc.tenant,
  key_no       integer not null,
  members_hash bytea not null check (length(members_hash) = 32),   -- of the proof ids in their order
  created_at   timestamptz(3) not null default clock_timestamp(),
  unique (tenant_no, members_hash)                                 -- asked for again, it is the same package
);
create index trust_package_of_tenant on svc.trust_package (tenant_no, created_at, package_id);

create table svc.package_member (
  package_id uuid not null references svc.trust_package,
  position   smallint not null check (position >= 0),
  proof_id   uuid not null references svc.proof,
  primary key (package_id, position),
  unique (package_id, proof_id)
);

create table svc.share_token (
  token_hash    bytea primary key check (length(token_hash) = 32), -- the token itself is nowhere
  tenant_no     integer not null references svc.tenant,
  key_no        integer not null,
  artifact_kind text not null check (artifact_kind in ('proof', 'passport', 'certificate', 'trust', 'package')),
  proof_id      uuid references svc.proof,
  package_id    uuid references svc.trust_package,
  created_at    timestamptz(3) not null default clock_timestamp(),
  expires_at    timestamptz(3) check (expires_at > created_at),
  check ((artifact_kind = 'package') = (package_id is not null)),
  check ((package_id is null) <> (proof_id is null))
);
create index share_token_of_tenant on svc.share_token (tenant_no, created_at, token_hash);

create table svc.share_revocation (
  token_hash bytea primary key references svc.share_token,
  key_no     integer not null,
  revoked_at timestamptz(3) not null default clock_timestamp()
);

-- Every administrative act -------------------------------------------------------------------

create table svc.audit (
  audit_id  bigint generated always as identity primary key,
  at        timestamptz(3) not null default clock_timestamp(),
  db_role   text not null,
  actor     text,                                                  -- who, as far as the command knew
  act       text,                                                  -- the command
  object    text not null,                                         -- the table
  operation text not null,
  before    jsonb,
  after     jsonb
);

-- Written by the database itself, as its owner: no program can leave an act out or write one that
-- did not happen. Secrets and large texts stay where they are.
create function svc.record_act() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  hidden constant text[] := array['secret_hash', 'manifest', 'files', 'content'];
begin
  insert into svc.audit (db_role, actor, act, object, operation, before, after)
  values (session_user, nullif(current_setting('svc.actor', true), ''),
    nullif(current_setting('svc.act', true), ''), tg_table_name, tg_op,
    case when tg_op = 'UPDATE' then to_jsonb(old) - hidden end, to_jsonb(new) - hidden);
  return null;
end $$;

create trigger audited after insert or update on svc.tenant for each row execute function svc.record_act();
create trigger audited after insert or update on svc.lane for each row execute function svc.record_act();
create trigger audited after insert or update on svc.api_key for each row execute function svc.record_act();
create trigger audited after insert on svc.policy_set for each row execute function svc.record_act();
create trigger audited after insert on svc.policy_activation for each row execute function svc.record_act();
create trigger audited after insert on svc.fixture for each row execute function svc.record_act();
create trigger audited after insert on svc.log_entry for each row when (new.kind <> 1) execute function svc.record_act();

-- What may not change ------------------------------------------------------------------------

create trigger append_only before update or delete on svc.audit for each row execute function svc.refuse_change();
create trigger append_only before delete on svc.revocation_request for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.trust_package for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.package_member for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.share_token for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.share_revocation for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.audit execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.revocation_request execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.trust_package execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.package_member execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.share_token execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.share_revocation execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.policy_set execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.policy_activation execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.policy_input execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.fixture execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.revocation_reason execute function svc.refuse_change();

-- What a tenant asked to have revoked can be closed, once, and never while it waits to be appended
-- or when it was.
create function svc.request_only_closes() returns trigger language plpgsql as $$
begin
  if old.refused is not null or new.refused is null
     or to_jsonb(new) - 'refused' <> to_jsonb(old) - 'refused'
     or exists (select from svc.revocation_pending where request_id = old.request_id)
     or exists (select from svc.log_entry e where e.kind = 2 and e.proof_id = old.proof_id
       and convert_from(e.body, 'UTF8')::jsonb ->> 'reason_hash' = encode(old.reason_hash, 'hex')) then
    raise exception 'revocation request % may only be closed', old.request_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger only_closes before update on svc.revocation_request for each row execute function svc.request_only_closes();

-- A worker appends proofs, and of the status entries only those that a tenant asked for, each once.
create or replace function svc.entry_follows_head() returns trigger language plpgsql as $$
declare
  said jsonb;
begin
  if (current_user = 'svc_worker' and new.kind = 3) or (current_user = 'svc_admin' and new.kind = 1) then
    raise exception '% may not append entries of kind %', current_user, new.kind using errcode = 'insufficient_privilege';
  end if;
  if current_user = 'svc_worker' and new.kind = 2 then
    said := convert_from(new.body, 'UTF8')::jsonb;
    if not exists (
      select from svc.revocation_request r where r.proof_id = new.proof_id and r.refused is null
        and said ->> 'proof_id' = replace(r.proof_id::text, '-', '')
        and said ->> 'artifact_kind' = r.artifact_kind
        and said ->> 'reason_hash' = encode(r.reason_hash, 'hex')) then
      raise exception 'nobody asked for this revocation of %', new.proof_id using errcode = 'insufficient_privilege';
    end if;
    if exists (
      select from svc.log_entry e where e.kind = 2 and e.proof_id = new.proof_id
        and convert_from(e.body, 'UTF8')::jsonb ->> 'artifact_kind' = said ->> 'artifact_kind') then
      raise exception 'the % of % is revoked already', said ->> 'artifact_kind', new.proof_id using errcode = 'insufficient_privilege';
    end if;
  end if;
  if new.leaf_index < (select tree_size from svc.log_head) then
    raise exception 'leaf % is behind the head of the log', new.leaf_index using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;

-- How deep the queue is ----------------------------------------------------------------------

-- An engine sees the rows of one tenant at a time, and is to refuse all of them when the workers
-- cannot keep up. So it may learn one number, counted no further than it needs, and in the order of
-- the file: by an index, which the programs' sessions prefer, it takes ten times as long.
create policy counted on svc.intake_pending for select to current_user using (true);
create function svc.pending_depth(most integer) returns integer language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = on as $$
  select count(*)::integer from (select from svc.intake_pending limit most) as pending
$$;

-- Who may what -------------------------------------------------------------------------------

revoke all on all functions in schema svc from public;

grant execute on function svc.pending_depth(integer) to svc_engine;
grant select on svc.revocation_request, svc.revocation_pending, svc.trust_package,
  svc.package_member, svc.share_token, svc.share_revocation to svc_engine;
grant insert on svc.revocation_request, svc.revocation_pending, svc.trust_package,
  svc.package_member, svc.share_token, svc.share_revocation to svc_engine;

grant select (key_id, tenant_no, key_no, expires_at, revoked_at) on svc.api_key to svc_worker; -- never a secret's hash
grant select on svc.revocation_request, svc.revocation_pending to svc_worker;
grant insert on svc.revocation_reason to svc_worker;
grant update (refused) on svc.revocation_request to svc_worker;
grant delete on svc.revocation_pending to svc_worker;

grant select on svc.revocation_request, svc.revocation_pending, svc.trust_package,
  svc.package_member, svc.share_token, svc.share_revocation, svc.audit to svc_admin;
grant update (rate_limit) on svc.tenant to svc_admin;
