-- Share tokens and packages on their way to the public, and when the verifier last looked for what
-- is over.

-- In which order they changed ----------------------------------------------------------------

-- The publisher takes up what changed since it last looked, so a change must never appear behind
-- one that it has seen. The counter's row lock is held from the number to the commit: whoever sees
-- change n sees all before it, and one that is rolled back leaves no gap.
create table svc.grant_head (
  one       boolean primary key default true check (one),
  change_no bigint not null default 0 check (change_no >= 0)
);
insert into svc.grant_head default values;

create table svc.grant_change (
  change_no  bigint primary key check (change_no > 0),
  token_hash bytea references svc.share_token,                     -- made, revoked or over: which one, its own tables say
  package_id uuid references svc.trust_package,                    -- made; that is all that becomes of one
  check ((token_hash is null) <> (package_id is null))
);

-- Tokens that are over -----------------------------------------------------------------------

-- When a token ends, so that the verifier finds it without reading them all.
create table svc.share_due (
  token_hash bytea primary key references svc.share_token,
  expires_at timestamptz(3) not null
);
create index share_due_at on svc.share_due (expires_at);

-- What the verifier found to be over. The public is told by it, never by a clock of its own.
create table svc.share_expiry (
  token_hash bytea primary key references svc.share_token,
  expired_at timestamptz(3) not null default clock_timestamp()
);

-- When the verifier last began a look at everything that may be over, and finished it; null: never.
create table svc.upkeep (
  one     boolean primary key default true check (one),
  done_at timestamptz(3)
);
insert into svc.upkeep default values;

-- Which packages a proof is in: they are to be told of anew when it is.
create index package_member_proof on svc.package_member (proof_id);

-- What is there already ----------------------------------------------------------------------

-- With FORCE, the owner that this runs as would be shown none of it.
alter table svc.trust_package no force row level security;
alter table svc.share_token no force row level security;
alter table svc.share_revocation no force row level security;

insert into svc.grant_change (change_no, token_hash, package_id)
select row_number() over (order by at, of, token_hash, package_id), token_hash, package_id
from (
  select created_at as at, 1 as of, null::bytea as token_hash, package_id from svc.trust_package
  union all
  select created_at, 2, token_hash, null from svc.share_token
  union all
  select revoked_at, 3, token_hash, null from svc.share_revocation
) as there;
update svc.grant_head set change_no = (select count(*) from svc.grant_change);
insert into svc.share_due (token_hash, expires_at)
select token_hash, expires_at from svc.share_token where expires_at is not null;

alter table svc.trust_package force row level security;
alter table svc.share_token force row level security;
alter table svc.share_revocation force row level security;

-- What comes from now on ---------------------------------------------------------------------

-- Written as the owner: nobody who makes a token or a package can read these tables, leave a change
-- out or write one that did not happen.
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

-- At the commit: the lock is not held while a transaction waits for its client, and a package has
-- its members by then.
create constraint trigger numbered after insert on svc.trust_package deferrable initially deferred
  for each row execute function svc.number_grant_change();
create constraint trigger numbered after insert on svc.share_token deferrable initially deferred
  for each row execute function svc.number_grant_change();
create constraint trigger numbered after insert on svc.share_revocation deferrable initially deferred
  for each row execute function svc.number_grant_change();
create constraint trigger numbered after insert on svc.share_expiry deferrable initially deferred
  for each row execute function svc.number_grant_change();

create function svc.remember_share_end() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  insert into svc.share_due (token_hash, expires_at) values (new.token_hash, new.expires_at);
  return null;
end $$;
create trigger remembered after insert on svc.share_token for each row
  when (new.expires_at is not null) execute function svc.remember_share_end();

-- What may not change ------------------------------------------------------------------------

create function svc.changes_by_one() returns trigger language plpgsql as $$
begin
  if new.change_no <> old.change_no + 1 then
    raise exception 'svc.% counts one by one', tg_table_name using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger counts before update on svc.grant_head for each row execute function svc.changes_by_one();
create trigger append_only before delete on svc.grant_head for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.grant_change for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.share_expiry for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.grant_head execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.grant_change execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.share_expiry execute function svc.refuse_change();

-- Whose rows --------------------------------------------------------------------------------

-- Rows here belong to the tenant of what they point to, and the engine is shown none of them.
do $$
declare
  tenants_table text;
begin
  foreach tenants_table in array array['grant_change', 'share_due', 'share_expiry'] loop
    execute format('alter table svc.%I enable row level security', tenants_table);
    execute format('alter table svc.%I force row level security', tenants_table);
    execute format('create policy whole_registry on svc.%I to svc_verifier, svc_publisher using (true)',
      tenants_table);
  end loop;
end $$;
-- For what is written as the owner, above.
create policy recorded on svc.grant_change for insert to current_user with check (true);
create policy recorded on svc.share_due for insert to current_user with check (true);

-- Who may what -------------------------------------------------------------------------------

revoke all on all functions in schema svc from public;

-- verifier: says which tokens are over, and that it looked.
grant select, delete on svc.share_due to svc_verifier;
grant insert on svc.share_expiry to svc_verifier;
grant select, update (done_at) on svc.upkeep to svc_verifier;

-- publisher: what a token shows, which proofs a package has, and no tenant of either.
grant select on svc.grant_change, svc.package_member, svc.upkeep to svc_publisher;
grant select (token_hash, artifact_kind, proof_id, package_id) on svc.share_token to svc_publisher;
grant select (token_hash) on svc.share_revocation, svc.share_expiry to svc_publisher;
grant select (package_id, members_hash) on svc.trust_package to svc_publisher;
