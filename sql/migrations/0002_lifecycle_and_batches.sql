-- Revocations, packages, share tokens, batches, erasures and operation.

-- Revocations, packages and shares -------------------------------------------------------------

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

-- Requests without an outcome; deleting the row is the claim.
create table svc.revocation_pending (
  request_id   uuid primary key references svc.revocation_request,
  requested_at timestamptz(3) not null
);
create index revocation_pending_age on svc.revocation_pending (requested_at, request_id);

create table svc.trust_package (
  package_id   uuid primary key,
  tenant_no    integer not null references svc.tenant,
  key_no       integer not null,
  members_hash bytea not null check (length(members_hash) = 32),  -- of the proof ids in order
  created_at   timestamptz(3) not null default clock_timestamp(),
  unique (tenant_no, members_hash)
);
create index trust_package_of_tenant on svc.trust_package (tenant_no, created_at, package_id);

create table svc.package_member (
  package_id uuid not null references svc.trust_package,
  position   smallint not null check (position >= 0),
  proof_id   uuid not null references svc.log_entry (proof_id),
  primary key (package_id, position),
  unique (package_id, proof_id)
);

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

create table svc.share_revocation (
  token_hash bytea primary key references svc.share_token,
  key_no     integer not null,
  revoked_at timestamptz(3) not null default clock_timestamp()
);

-- Expiries to come, so that the verifier need not read every token.
create table svc.share_due (
  token_hash bytea primary key references svc.share_token,
  expires_at timestamptz(3) not null
);
create index share_due_at on svc.share_due (expires_at);

-- Expiries that the verifier recorded; the public reads no clock.
create table svc.share_expiry (
  token_hash bytea primary key references svc.share_token,
  expired_at timestamptz(3) not null default clock_timestamp()
);

-- The publisher reads changes after the last one that it saw, so a change must never appear behind a
-- later one. The row lock of the counter is held until the commit, and a rollback leaves no gap.
create table svc.grant_head (
  one       boolean primary key default true check (one),
  change_no bigint not null default 0 check (change_no >= 0)
);
insert into svc.grant_head default values;

create table svc.grant_change (
  change_no  bigint primary key check (change_no > 0),
  token_hash bytea references svc.share_token,
  package_id uuid references svc.trust_package,
  check ((token_hash is null) <> (package_id is null))
);

-- Batches --------------------------------------------------------------------------------------

create table svc.batch (
  batch_id    uuid primary key,
  tenant_no   integer not null references svc.tenant,
  key_no      integer not null,
  items_hash  bytea check (length(items_hash) = 32),              -- of the items in order
  total       integer not null check (total > 0),
  request_id  text not null,
  accepted_at timestamptz(3) not null,
  unique (tenant_no, items_hash)
);
create index batch_of_tenant on svc.batch (tenant_no, accepted_at, batch_id);

-- A chunk of its items in order: 16 bytes an item, where a row each would take a hundred.
create table svc.batch_part (
  batch_id    uuid not null references svc.batch,
  first_index integer not null check (first_index >= 0),
  proof_ids   uuid[] not null check (cardinality(proof_ids) > 0), -- null for an invalid item
  replayed    boolean[] check (cardinality(replayed) = cardinality(proof_ids)), -- null: no item is replayed
  problems    bytea,                                              -- JSON by item index
  primary key (batch_id, first_index)
);
alter table svc.batch_part alter column proof_ids set storage external;

-- Counted in the transactions that commit outcomes, so that reading it costs one row.
create table svc.batch_progress (
  batch_id     uuid primary key references svc.batch,
  tenant_no    integer not null references svc.tenant,
  awaited      integer not null check (awaited >= 0),             -- pending at acceptance
  pending      integer not null check (pending between 0 and awaited),
  admitted     integer not null check (admitted >= 0),
  denied       integer not null check (denied >= 0),
  approval_required integer not null check (approval_required >= 0),
  refused      integer not null check (refused >= 0),
  invalid      integer not null check (invalid >= 0),
  replayed     integer not null check (replayed >= 0),
  completed_at timestamptz(3),
  check ((pending = 0) = (completed_at is not null))
);
create index batch_unfinished on svc.batch_progress (tenant_no) include (pending) where pending > 0;

-- Chunks whose new admissions have no outcome. Deleting the row claims all of them.
create table svc.chunk_pending (
  chunk_id    uuid primary key,                                   -- the proof id of its first new admission
  batch_id    uuid not null,
  first_index integer not null,
  tenant_no   integer not null references svc.tenant,
  accepted_at timestamptz(3) not null,
  admissions  smallint not null check (admissions > 0),           -- new ones
  answers     smallint[],                                         -- items of the batch that each answers; null: one each
  leased_at   timestamptz,
  foreign key (batch_id, first_index) references svc.batch_part
);
create index chunk_pending_next on svc.chunk_pending (tenant_no, batch_id, first_index) where leased_at is null;
create index chunk_pending_age on svc.chunk_pending (leased_at) where leased_at is not null;

-- Numbers the last chunk lease of each tenant: the lowest number is next.
create table svc.chunk_lease (
  tenant_no integer primary key references svc.tenant,
  lease_no  bigint generated always as identity
);

-- Items that point to an earlier pending admission, to be counted with its outcome.
create table svc.batch_watch (
  proof_id uuid not null references svc.intake,
  batch_id uuid not null references svc.batch,
  items    smallint not null check (items > 0),
  primary key (proof_id, batch_id)
);

-- Erasure, audit and operation -----------------------------------------------------------------

create table svc.erasure (
  proof_id   uuid primary key,                                    -- of the admission, proved or rejected
  leaf_index bigint,                                              -- null when it was rejected
  erased_at  timestamptz(3) not null default clock_timestamp(),
  actor      text not null check (actor <> ''),
  reason_ref text not null check (reason_ref <> '')               -- a case number, kept forever: never its words
);

-- Erased leaves without an ERASED verdict.
create table svc.erasure_due (
  leaf_index bigint primary key
);

create table svc.audit (
  audit_id  bigint generated always as identity primary key,
  at        timestamptz(3) not null default clock_timestamp(),
  db_role   text not null,
  actor     text,                                                 -- as the command reported
  act       text,                                                 -- the command
  object    text not null,                                        -- the table
  operation text not null,
  before    jsonb,
  after     jsonb
);

create table svc.heartbeat (
  role       name not null,
  instance   uuid not null,
  started_at timestamptz(3) not null default clock_timestamp(),
  beat_at    timestamptz(3) not null default clock_timestamp(),
  readiness  jsonb not null,                                      -- the body of /readyz
  primary key (role, instance)
);
