-- The core tables: tenants, policies, admissions, the log and its verdicts. 0003 and 0004 hold the rules
-- over rows, 0005 the roles. Everything belongs to the owner; programs have grants.

create schema svc;

-- Tenants, keys and policies -------------------------------------------------------------------

create table svc.tenant (
  tenant_no   integer generated always as identity primary key,
  tenant_id   text not null unique check (tenant_id ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$'),
  environment text not null check (environment in ('sandbox', 'live')),
  allowlisted boolean not null default false,
  -- {"proof": seconds|null, "certificate": …, "passport": …, "trust": …}; "approval": seconds for an
  -- approval, absent for the default
  validity    jsonb not null default '{"proof":null,"certificate":null,"passport":null,"trust":null}',
  created_at  timestamptz(3) not null default now(),
  rate_limit  integer check (rate_limit > 0)                      -- requests per second; null: the engine's default
);

create table svc.lane (
  environment text primary key check (environment in ('sandbox', 'live')),
  open        boolean not null default false,
  changed_at  timestamptz(3) not null default now()
);
insert into svc.lane (environment) values ('sandbox'), ('live');

create table svc.api_key (
  key_id      text primary key,
  tenant_no   integer not null references svc.tenant,
  secret_hash bytea not null check (length(secret_hash) = 32),
  scopes      text[] not null,
  review_ref  text not null check (review_ref <> ''),
  created_at  timestamptz(3) not null default now(),
  expires_at  timestamptz(3),
  revoked_at  timestamptz(3),
  key_no      integer generated always as identity unique,
  replaces    text references svc.api_key,                        -- rotation: the predecessor
  created_by  text references svc.api_key,                        -- the key that created it by API
  -- The restriction of the key: all null if unrestricted. `*` in a pattern matches any characters.
  agent_id    text check (agent_id <> ''),
  actions     text[] check (cardinality(actions) > 0),            -- patterns
  tools       text[] check (cardinality(tools) > 0),              -- patterns
  environment text check (environment in ('sandbox', 'live')),
  constraint restricted_key_manages_no_keys check (
    num_nonnulls(agent_id, actions, tools, environment) = 0 or not scopes && array['admin', 'keys', 'policy'])
);
create index api_key_of_tenant on svc.api_key (tenant_no, created_at, key_id);
create index api_key_created on svc.api_key (created_by) where created_by is not null;

create table svc.policy_set (
  digest     bytea primary key check (length(digest) = 32),
  manifest   text not null,
  files      jsonb not null,
  created_at timestamptz(3) not null default now()
);

create table svc.policy_activation (
  activation_id bigint generated always as identity primary key,
  digest        bytea not null references svc.policy_set,
  active_from   timestamptz(3) not null default now()
);

create table svc.fixture (
  fixture_ref  text primary key,
  fixture_hash bytea not null check (length(fixture_hash) = 32),
  content      bytea not null,
  created_at   timestamptz(3) not null default now()
);

-- Admissions -----------------------------------------------------------------------------------

-- One row pins every input of one decision except the counter values, which svc.log_entry records.
-- Triggers replace the foreign keys, which would look up and lock each row. Erasure nulls the payload.
create table svc.intake (
  proof_id      uuid primary key,
  tenant_no     integer not null,
  lane          smallint not null check (lane in (1, 2)),         -- 1 execute, 2 agent
  environment   text not null check (environment in ('sandbox', 'live')),
  request       bytea,                                            -- RFC 8785 form
  request_hash  bytea check (length(request_hash) = 32),
  accepted_at   timestamptz(3) not null,
  seed          bytea check (length(seed) = 32),                  -- HMAC key of the salts of the AEP
  policy_digest bytea not null,
  fixture_hash  bytea,
  validity      jsonb,                                            -- null: unlimited
  refused       boolean not null default false,
  key_no        integer,                                          -- revoking the key also rejects its pending admissions
  bound         boolean not null default false,                   -- the API key is restricted to the agent of the request
  -- The place in a run, null outside of runs. An erasure keeps it, so that no other request gets its number.
  run_key       bytea check (length(run_key) = 32),               -- hash of agent id and run id
  run_seq       bigint check (run_seq >= 0),
  run_closes    boolean,                                          -- the request ends the run
  approves      uuid,                                             -- second decision: the pending proof
  approval      bytea,                                            -- second decision: approval, registration and reasons of the pending proof
  check (num_nulls(run_key, run_seq, run_closes) in (0, 3)),
  check (approval is null or approves is not null)
);
-- The deduplication key. A rejected admission releases it.
create unique index intake_identity on svc.intake (tenant_no, lane, request_hash) where not refused and approves is null;
-- A pending proof has one second decision. A rejected approval releases it.
create unique index intake_approves on svc.intake (approves) where not refused and approves is not null;
-- A number in a run belongs to one request, and to its second decision. Requests outside of runs cost nothing.
create unique index intake_run on svc.intake (tenant_no, run_key, run_seq, approves) nulls not distinct
  where run_key is not null and not refused;
create index intake_close on svc.intake (tenant_no, run_key) where run_closes and not refused;

-- Single admissions without an outcome. Deleting the row is the claim, so only one transaction can append.
-- The admissions of a batch are pending in svc.chunk_pending until their chunk is split.
create table svc.intake_pending (
  proof_id    uuid primary key,
  accepted_at timestamptz(3) not null,
  batch_id    uuid,
  batch_items smallint check (batch_items > 0)                    -- items of the batch that it answers
);
create index intake_pending_age on svc.intake_pending (accepted_at, proof_id);

-- Accepted, and rejected by a gate or an error before a signature.
create table svc.refusal (
  proof_id   uuid primary key references svc.intake,
  code       text not null,
  detail     text not null,
  refused_at timestamptz(3) not null default now()
);

create table svc.idempotency_key (
  tenant_no    integer not null references svc.tenant,
  lane         smallint not null,                                 -- 3 for batches
  key          text not null,
  request_hash bytea not null,
  created_at   timestamptz(3) not null default now(),
  primary key (tenant_no, lane, key)
);

-- The log --------------------------------------------------------------------------------------

-- The lock of this row is the append lock.
create table svc.log_head (
  one       boolean primary key default true check (one),
  tree_size bigint not null default 0 check (tree_size >= 0)
);
insert into svc.log_head default values;

-- One row per leaf. The canonical bytes of a proof's entry follow from its columns; `body` has those of
-- the other kinds. With the intake row, the payload columns of a proof give its AEP again, which must
-- then have the hash `aep_hash`. The other columns repeat parts of it for lists and the publisher.
create table svc.log_entry (
  leaf_index        bigint primary key check (leaf_index >= 0),
  at                timestamptz(3) not null,
  tenant_no         integer,
  -- 1 proof, 2 status, 3 key, 4 erasure, 5 verdict, 6 snapshot
  kind              smallint not null check (kind between 1 and 6),
  lane              smallint check (lane in (1, 2)),
  is_outcome        boolean,
  proof_id          uuid unique,
  revokes           uuid,                                         -- status: the proof
  effect            text check (effect in ('ADMIT', 'DENY', 'REQUIRE_APPROVAL')),
  environment       text,
  key_id            text,
  aep_hash          bytea,
  proof_record_hash bytea,
  body              bytea,
  engine_version    text,
  validity          jsonb,                                        -- as in svc.intake; null: unlimited
  -- Payload, which can be erased.
  signature         bytea,
  reasons           jsonb,                                        -- policy ids, fact.<name>, budget.<counter>
  budgets           jsonb,                                        -- {counter: {window, before, after}}; null: none
  action            text,                                         -- null for an outcome
  intent_id         text collate "C",                             -- null for the agent request type
  parent            uuid,                                         -- the proof that an agent request follows from
  check (case kind
    when 1 then num_nulls(proof_id, tenant_no, lane, is_outcome, effect, environment, key_id, aep_hash,
        proof_record_hash, engine_version) = 0
      and length(aep_hash) = 32 and length(proof_record_hash) = 32 and num_nonnulls(revokes, body) = 0
    else body is not null and (revokes is not null) = (kind = 2)
      and num_nonnulls(proof_id, tenant_no, lane, is_outcome, effect, environment, key_id, aep_hash,
        proof_record_hash, engine_version, validity, signature, reasons, budgets, action, intent_id, parent) = 0
        end)
);
create index log_entry_status on svc.log_entry (revokes) where kind = 2;
create index log_entry_key on svc.log_entry (leaf_index) where kind = 3;
create index log_entry_of_tenant on svc.log_entry (tenant_no, leaf_index) where tenant_no is not null;
-- Not on a hash: row-level security keeps conditions with functions away from an index.
create index log_entry_intent on svc.log_entry (tenant_no, intent_id, leaf_index) where intent_id is not null;
create index log_entry_parent on svc.log_entry (tenant_no, parent, leaf_index) where parent is not null;

-- The log has only the hash; the salt in the document prevents guessing.
create table svc.revocation_reason (
  reason_hash bytea primary key check (length(reason_hash) = 32),
  document    bytea,
  created_at  timestamptz(3) not null default now()
);

create table svc.tile (
  level      smallint not null check (level >= 0),
  tile_index bigint not null check (tile_index >= 0),
  hashes     bytea not null check (length(hashes) between 32 and 8192 and length(hashes) % 32 = 0),
  primary key (level, tile_index)
);
alter table svc.tile alter column hashes set storage external;

create table svc.checkpoint (
  tree_size  bigint primary key check (tree_size > 0),
  root       bytea not null check (length(root) = 32),
  note       text not null,
  created_at timestamptz(3) not null default now()
);
create index checkpoint_created on svc.checkpoint (created_at);

-- A retired log: published leaves were lost. The leaves continue under another origin.
create table svc.ended_log (
  origin    text primary key check (origin <> ''),
  tree_size bigint not null check (tree_size > 0),                -- of its last checkpoint in the database
  reason    text not null check (reason <> ''),
  ended_at  timestamptz(3) not null default clock_timestamp()
);

create table svc.ended_checkpoint (
  origin     text not null references svc.ended_log,
  tree_size  bigint not null,
  root       bytea not null,
  note       text not null,
  created_at timestamptz(3) not null,
  primary key (origin, tree_size)
);

-- Verdicts -------------------------------------------------------------------------------------

-- Frontier rows cover the log in order without a gap; each other row covers one leaf and overrides
-- them. Of several rows the largest tree_size is effective, then the largest verdict_id.
create table svc.verdict (
  verdict_id  bigint generated always as identity primary key,
  frontier    boolean not null,
  first_index bigint not null,
  last_index  bigint not null check (last_index >= first_index),
  tree_size   bigint not null check (tree_size > last_index),
  root        bytea not null check (length(root) = 32),
  subtrees    bytea,                                              -- frontier: the compact range, 32 bytes a subtree
  keys_digest bytea,                                              -- frontier: chain over the key entries
  outcome     text not null check (outcome in ('pass', 'fail', 'erased')),
  expired     text[] not null default '{}',                       -- artifact kinds
  checks      jsonb not null,
  verified_at timestamptz(3) not null default now(),
  check (case when frontier then subtrees is not null and length(keys_digest) = 32 else first_index = last_index end)
);
create unique index verdict_frontier on svc.verdict (last_index) where frontier;
create index verdict_leaf on svc.verdict (first_index) where not frontier;
create index verdict_failed on svc.verdict (first_index) where not frontier and outcome = 'fail';
-- Counts failures with another cause than a compromised key, which may void very many leaves.
create index verdict_failed_otherwise on svc.verdict (first_index)
  where not frontier and outcome = 'fail'
    and jsonb_path_query_array(checks, '$[*] ? (@.result == "fail")')
      <> '[{"name": "signing_key", "result": "fail", "detail": "by the log the key is compromised at this position"}]';

-- Lists that filter by status read these proofs only. A verified proof that is absent is VALID; one
-- that is listed may be VALID too. Rows may repeat, so that writers never wait for each other.
create table svc.status_exception (
  tenant_no  integer not null,
  leaf_index bigint not null
);
create index status_exception_of_tenant on svc.status_exception (tenant_no, leaf_index);

create table svc.expiry (
  leaf_index    bigint not null,
  artifact_kind text not null,
  expires_at    timestamptz(3) not null,
  primary key (leaf_index, artifact_kind)
);
create index expiry_at on svc.expiry (expires_at);

create table svc.scrub (
  one          boolean primary key default true check (one),
  next_index   bigint not null default 0,
  epoch        bigint not null default 0,                         -- incremented each time leaves are made urgent
  urgent_until bigint not null default 0                          -- leaves from next_index up to it come first
);
insert into svc.scrub default values;

-- The start of the last finished expiry scan; null: none.
create table svc.upkeep (
  one     boolean primary key default true check (one),
  done_at timestamptz(3)
);
insert into svc.upkeep default values;
