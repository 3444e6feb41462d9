-- The registry: who may admit, what was accepted, the append-only log, and what the verifier found.
-- Runs as the schema's owner. The programs never own anything: they get the grants of 0002.

create schema svc;

-- Who may admit ------------------------------------------------------------------------------

create table svc.tenant (
  tenant_no   integer generated always as identity primary key,
  tenant_id   text not null unique check (tenant_id ~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$'),
  environment text not null check (environment in ('sandbox', 'live')),
  allowlisted boolean not null default false,
  -- {"proof": seconds|null, "certificate": …, "passport": …, "trust": …}: how long each may assert
  validity    jsonb not null default '{"proof":null,"certificate":null,"passport":null,"trust":null}',
  created_at  timestamptz(3) not null default now()
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
  revoked_at  timestamptz(3)
);

-- What decides -------------------------------------------------------------------------------

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

-- The exact inputs that were evaluated, by hash. Equal inputs are common, so this stays small.
create table svc.policy_input (
  input_hash bytea primary key check (length(input_hash) = 32),
  input      bytea not null
);

create table svc.fixture (
  fixture_ref  text primary key,
  fixture_hash bytea not null check (length(fixture_hash) = 32),
  content      bytea not null,
  created_at   timestamptz(3) not null default now()
);

-- What was accepted --------------------------------------------------------------------------

-- One row pins every input of one admission, so that processing it is a pure function of the row.
create table svc.intake (
  proof_id      uuid primary key,
  tenant_no     integer not null references svc.tenant,
  lane          smallint not null check (lane in (1, 2)),         -- 1 execute, 2 agent
  environment   text not null check (environment in ('sandbox', 'live')),
  request       bytea not null,
  request_hash  bytea not null check (length(request_hash) = 32),
  accepted_at   timestamptz(3) not null,
  salt          bytea not null check (length(salt) = 32),
  policy_digest bytea not null references svc.policy_set,
  fixture_hash  bytea,
  validity      jsonb not null,
  refused       boolean not null default false
);
-- The identity of an admission. A refused one gives its identity back.
create unique index intake_identity on svc.intake (tenant_no, lane, request_hash) where not refused;

-- Accepted and not yet settled. The append transaction takes the row away, and that is the claim:
-- whoever deletes it appends, and nobody else can.
create table svc.intake_pending (
  proof_id    uuid primary key references svc.intake,
  accepted_at timestamptz(3) not null
);
create index intake_pending_age on svc.intake_pending (accepted_at, proof_id);

-- Accepted, but closed by a gate or set aside as a culprit before it was signed.
create table svc.refusal (
  proof_id   uuid primary key references svc.intake,
  code       text not null,
  detail     text not null,
  refused_at timestamptz(3) not null default now()
);

create table svc.idempotency_key (
  tenant_no    integer not null references svc.tenant,
  lane         smallint not null,
  key          text not null,
  request_hash bytea not null,
  created_at   timestamptz(3) not null default now(),
  primary key (tenant_no, lane, key)
);

-- The log ------------------------------------------------------------------------------------

-- Its one row is the append lock.
create table svc.log_head (
  one       boolean primary key default true check (one),
  tree_size bigint not null default 0 check (tree_size >= 0)
);
insert into svc.log_head default values;

create table svc.log_entry (
  leaf_index        bigint primary key check (leaf_index >= 0),
  kind              smallint not null check (kind in (1, 2, 3)),  -- 1 proof, 2 status, 3 key
  proof_id          uuid,
  at                timestamptz(3) not null,
  aep_hash          bytea,
  proof_record_hash bytea,
  body              bytea,                                        -- canonical bytes; null for a proof, whose entry follows from the columns
  check (case kind
    when 1 then proof_id is not null and length(aep_hash) = 32 and length(proof_record_hash) = 32 and body is null
    when 2 then proof_id is not null and body is not null
    else body is not null end)
);
create index log_entry_status on svc.log_entry (proof_id) where kind = 2;
create index log_entry_key on svc.log_entry (leaf_index) where kind = 3;

create table svc.proof (
  proof_id    uuid primary key references svc.intake,
  leaf_index  bigint not null,
  effect      text not null check (effect in ('ADMIT', 'DENY')),
  environment text not null,
  key_id      text not null,
  aep         bytea,                                              -- erasable payload; the commitments stay in the log
  signature   bytea
);

-- Why an artifact was revoked. The log has only the hash; the salt in the document keeps it from
-- being guessed.
create table svc.revocation_reason (
  reason_hash bytea primary key check (length(reason_hash) = 32),
  document    bytea not null,
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

-- What the verifier found --------------------------------------------------------------------

-- Frontier rows cover the log in order without a gap; the others speak of one leaf each and
-- override it. Of the rows that cover a leaf the one with the largest tree_size wins, then the
-- largest verdict_id.
create table svc.verdict (
  verdict_id  bigint generated always as identity primary key,
  frontier    boolean not null,
  first_index bigint not null,
  last_index  bigint not null check (last_index >= first_index),
  tree_size   bigint not null check (tree_size > last_index),
  root        bytea not null check (length(root) = 32),
  subtrees    bytea,                                              -- frontier: the verifier's own compact range, 32 bytes a subtree
  keys_digest bytea,                                              -- frontier: chain over the key entries it saw
  outcome     text not null check (outcome in ('pass', 'fail')),
  expired     text[] not null default '{}',                       -- artifact kinds whose validity is over
  checks      jsonb not null,
  verified_at timestamptz(3) not null default now(),
  check (case when frontier then subtrees is not null and length(keys_digest) = 32 else first_index = last_index end)
);
create unique index verdict_frontier on svc.verdict (last_index) where frontier;
create index verdict_leaf on svc.verdict (first_index) where not frontier;

-- When a published validity ends, so that the verifier finds it without reading the registry.
create table svc.expiry (
  leaf_index    bigint not null,
  artifact_kind text not null,
  expires_at    timestamptz(3) not null,
  primary key (leaf_index, artifact_kind)
);
create index expiry_at on svc.expiry (expires_at);

create table svc.scrub (
  one        boolean primary key default true check (one),
  next_index bigint not null default 0,
  epoch        bigint not null default 0,                         -- counts how often it was sent elsewhere
  urgent_until bigint not null default 0                          -- leaves below it, from next_index on, cannot wait their turn
);
insert into svc.scrub default values;

-- The log only grows, whoever asks -----------------------------------------------------------

create function svc.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'svc.% is append-only: % refused', tg_table_name, tg_op using errcode = 'insufficient_privilege';
end $$;

create function svc.tile_only_extends() returns trigger language plpgsql as $$
begin
  if new.level <> old.level or new.tile_index <> old.tile_index
     or length(new.hashes) <= length(old.hashes)
     or substring(new.hashes from 1 for length(old.hashes)) <> old.hashes then
    raise exception 'svc.tile % % may only be extended', old.level, old.tile_index using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;

create function svc.head_only_grows() returns trigger language plpgsql as $$
begin
  if new.tree_size <= old.tree_size then
    raise exception 'svc.log_head may only grow' using errcode = 'insufficient_privilege';
  end if;
  if (select count(*) from svc.log_entry where leaf_index >= old.tree_size and leaf_index < new.tree_size)
     <> new.tree_size - old.tree_size then
    raise exception 'the log has no % leaves', new.tree_size using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;

-- The append lock is the only way in: entries follow the head without a gap, and the head follows them.
create function svc.entry_follows_head() returns trigger language plpgsql as $$
begin
  if (current_user = 'svc_worker' and new.kind <> 1) or (current_user = 'svc_admin' and new.kind = 1) then
    raise exception '% may not append entries of kind %', current_user, new.kind using errcode = 'insufficient_privilege';
  end if;
  if new.leaf_index < (select tree_size from svc.log_head) then
    raise exception 'leaf % is behind the head of the log', new.leaf_index using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;

-- What is settled stays settled: it is neither pending again, nor refused once it is proved.
create function svc.pending_is_unsettled() returns trigger language plpgsql as $$
begin
  if exists (select from svc.proof where proof_id = new.proof_id)
     or exists (select from svc.refusal where proof_id = new.proof_id) then
    raise exception 'admission % is settled', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;

create function svc.refused_is_unproved() returns trigger language plpgsql as $$
begin
  if not new.refused or exists (select from svc.proof where proof_id = new.proof_id)
     or not exists (select from svc.refusal where proof_id = new.proof_id) then
    raise exception 'admission % is not refused', new.proof_id using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;

create trigger follows_head before insert on svc.log_entry for each row execute function svc.entry_follows_head();
create trigger is_unsettled before insert on svc.intake_pending for each row execute function svc.pending_is_unsettled();
create trigger is_unproved before update of refused on svc.intake for each row execute function svc.refused_is_unproved();
create trigger append_only before update or delete on svc.log_entry for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.proof for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.checkpoint for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.verdict for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.policy_set for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.policy_activation for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.policy_input for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.revocation_reason for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.fixture for each row execute function svc.refuse_change();
create trigger only_extends before update on svc.tile for each row execute function svc.tile_only_extends();
create trigger append_only before delete on svc.tile for each row execute function svc.refuse_change();
create trigger only_grows before update on svc.log_head for each row execute function svc.head_only_grows();
create trigger append_only before delete on svc.log_head for each row execute function svc.refuse_change();

create trigger no_truncate before truncate on svc.log_entry execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.proof execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.checkpoint execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.verdict execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.tile execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.log_head execute function svc.refuse_change();
