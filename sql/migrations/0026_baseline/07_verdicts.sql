-- Verdicts, the status exceptions that follow from them, and the positions of the verifier.

-- Rows with `frontier` extend the verified prefix: they cover the log in order without a gap. Each other row is about
-- one leaf and overrides them. Of several rows about a leaf, the one with the largest tree_size is effective, then the
-- one with the largest verdict_id.
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
create index verdict_expired on svc.verdict (verified_at) where not frontier and expired <> '{}';
call svc.keep_rows('update or delete', 'verdict');

-- Lists that filter by status read these proofs only. A verified proof that is absent is VALID; one
-- that is listed may be VALID too. Rows may repeat, so that writers never wait for each other.
create table svc.status_exception (
  tenant_no  integer not null,
  leaf_index bigint not null
);
create index status_exception_of_tenant on svc.status_exception (tenant_no, leaf_index);
call svc.keep_rows('update or delete', 'status_exception');
call svc.secure_rows('status_exception', 'svc_worker, svc_verifier, svc_admin, svc_erase', is_own => true);

-- No list of a tenant has an adopted proof whose tenant is lost.
create trigger has_tenant before insert on svc.status_exception for each row
  when (new.tenant_no is null) execute function svc.skip_row();

-- Triggers list the exceptions, so that no program can change a status without listing the proof.
create function svc.list_status_exception() returns trigger language plpgsql as $$
begin
  insert into svc.status_exception (tenant_no, leaf_index)
  select e.tenant_no, e.leaf_index from svc.log_entry e
  where e.proof_id = (to_jsonb(new) ->> tg_argv[0])::uuid
    and not exists (select from svc.status_exception x
      where x.tenant_no = e.tenant_no and x.leaf_index = e.leaf_index);
  return null;
end $$;
create trigger lists_exception after insert on svc.log_entry for each row
  when (new.kind = 2) execute function svc.list_status_exception('revokes');

create function svc.list_verdict_exceptions() returns trigger language plpgsql as $$
begin
  insert into svc.status_exception (tenant_no, leaf_index)
  select e.tenant_no, e.leaf_index from svc.log_entry e
  where e.leaf_index between new.first_index and new.last_index and e.kind = 1
    and not exists (select from svc.status_exception x
      where x.tenant_no = e.tenant_no and x.leaf_index = e.leaf_index);
  return null;
end $$;
create trigger lists_exceptions after insert on svc.verdict for each row
  when (not new.frontier or new.outcome <> 'pass' or new.expired <> '{}')
  execute function svc.list_verdict_exceptions();

-- Coming expiries that the verifier has not recorded yet.
create table svc.expiry (
  leaf_index    bigint not null,
  artifact_kind text not null,
  expires_at    timestamptz(3) not null,
  primary key (leaf_index, artifact_kind)
);
create index expiry_at on svc.expiry (expires_at);

-- The position of the scrubber, which verifies old leaves again and again.
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
