-- A log whose published leaves are lost for good has ended. What the database still has goes on as
-- another log, under another origin. What was signed for the one that ended is kept apart.

create table svc.ended_log (
  origin    text primary key check (origin <> ''),
  tree_size bigint not null check (tree_size > 0),                 -- of the last checkpoint that the database knows
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

create trigger append_only before update or delete on svc.ended_log for each row execute function svc.refuse_change();
create trigger append_only before update or delete on svc.ended_checkpoint for each row execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.ended_log execute function svc.refuse_change();
create trigger no_truncate before truncate on svc.ended_checkpoint execute function svc.refuse_change();
create trigger audited after insert on svc.ended_log for each row execute function svc.record_act();

-- A checkpoint goes only where it stays.
create function svc.checkpoint_is_kept() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and exists (select from svc.ended_checkpoint e
    where e.origin = split_part(old.note, E'\n', 1) and e.tree_size = old.tree_size and e.note = old.note) then
    return old;
  end if;
  raise exception 'svc.checkpoint is append-only: % refused', tg_op using errcode = 'insufficient_privilege';
end $$;
create trigger is_kept before update or delete on svc.checkpoint for each row execute function svc.checkpoint_is_kept();
drop trigger append_only on svc.checkpoint;

-- Two logs of one name are a fork to everybody who follows it.
create function svc.log_has_not_ended() returns trigger language plpgsql as $$
begin
  if exists (select from svc.ended_log where origin = split_part(new.note, E'\n', 1)) then
    raise exception 'the log % has ended: nothing is signed for it', split_part(new.note, E'\n', 1)
      using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
create trigger has_not_ended before insert on svc.checkpoint for each row execute function svc.log_has_not_ended();

-- As the owner: nobody else may take a checkpoint away, and this is the only way in which one goes.
create function svc.end_log(ending text, why text) returns bigint language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  signed bigint;
begin
  -- The publisher's: it holds it as long as it leads.
  if not pg_try_advisory_xact_lock(7566947, 1) then
    raise exception 'a publisher is running on this database: stop it first' using errcode = 'object_in_use';
  end if;
  select max(tree_size) into signed from svc.checkpoint where split_part(note, E'\n', 1) = ending;
  if signed is null or exists (select from svc.checkpoint where split_part(note, E'\n', 1) <> ending) then
    raise exception 'the log of this database is not %', ending using errcode = 'no_data_found';
  end if;
  insert into svc.ended_log (origin, tree_size, reason) values (ending, signed, why);
  insert into svc.ended_checkpoint (origin, tree_size, root, note, created_at)
    select ending, tree_size, root, note, created_at from svc.checkpoint;
  delete from svc.checkpoint;
  return signed;
end $$;

revoke all on function svc.checkpoint_is_kept(), svc.log_has_not_ended(), svc.end_log(text, text) from public;
grant execute on function svc.end_log(text, text) to svc_admin;
grant select on svc.ended_log to svc_publisher, svc_admin, svc_fsck;
grant select on svc.ended_checkpoint to svc_admin, svc_fsck;
