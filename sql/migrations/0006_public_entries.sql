-- Erasure, verdict and snapshot entries. Programs append them through functions that can append nothing
-- else: a role with INSERT on the log could append anything.

create index log_entry_latest on svc.log_entry (kind, leaf_index) where kind > 3;
-- Verdict entries that list leaves; few do.
create index log_entry_listing on svc.log_entry (leaf_index)
  where kind = 5 and (position('"failed":[]' in body) = 0 or position('"restored":[]' in body) = 0);
create index erasure_leaf on svc.erasure (leaf_index);
create index verdict_expired on svc.verdict (verified_at) where not frontier and expired <> '{}';

create function svc.require(is_met boolean, problem text) returns void language plpgsql as $$
begin
  if is_met is not true then
    raise exception '%', problem using errcode = 'check_violation';
  end if;
end $$;

create function svc.time_in(entry jsonb, name text) returns timestamptz language plpgsql as $$
begin
  perform svc.require(entry ->> name ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$', format('`%s` is not a time', name));
  return (entry ->> name)::timestamptz;
end $$;

create function svc.index_in(entry jsonb, name text) returns bigint language plpgsql as $$
begin
  perform svc.require(jsonb_typeof(entry -> name) = 'number' and entry ->> name ~ '^\d{1,15}$',
    format('`%s` is not an index', name));
  return (entry ->> name)::bigint;
end $$;

-- The members of an entry that is about to be appended.
create function svc.members_of(body bytea, of_type text) returns jsonb language plpgsql as $$
declare
  entry constant jsonb := convert_from(body, 'UTF8')::jsonb;
begin
  perform svc.require(entry ->> 'schema_version' = 'svc.registry.entry/1.1' and entry ->> 'type' = of_type,
    format('expected an entry of type %s', of_type));
  perform svc.require(abs(extract(epoch from clock_timestamp() - svc.time_in(entry, 'time'))) <= 60,
    '`time` is more than 60 seconds from the clock of the database');
  return entry;
end $$;

-- Appends one leaf under the append lock and returns its index. Tiles have 256 hashes of 32 bytes; the
-- root of a full tile is a hash of the level above (protocol/tiles.ts).
create function svc.append_entry(of_kind integer, at timestamptz, body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  leaf constant bigint := svc.hold_appends();
  node bytea := sha256('\x00' || body);
  place bigint := leaf;
  tile bytea;
begin
  perform svc.require(length(body) <= 65535, 'a log entry has at most 65535 bytes');
  insert into svc.log_entry (leaf_index, at, kind, body) values (leaf, at, of_kind, body);
  for of_level in 0..7 loop
    tile := coalesce((select hashes from svc.tile where level = of_level and tile_index = place / 256), '');
    perform svc.require(length(tile) = place % 256 * 32,
      format('tile %s/%s does not match the log of %s leaves', of_level, place / 256, leaf));
    tile := tile || node;
    insert into svc.tile (level, tile_index, hashes) values (of_level, place / 256, tile)
      on conflict (level, tile_index) do update set hashes = excluded.hashes;
    exit when length(tile) < 8192;
    while length(tile) > 32 loop
      tile := (select string_agg(sha256('\x01' || substring(tile from n for 64)), '' order by n)
        from generate_series(1, length(tile), 64) as n);
    end loop;
    node := tile;
    place := place / 256;
  end loop;
  update svc.log_head set tree_size = leaf + 1;
  return leaf;
end $$;

-- The verifier's key signs, so only the verifier knows which verdict entries count: `previous` is the last
-- of those, and `latest` the last verdict entry that the caller has read.
create function svc.append_verdict(body bytea, latest bigint) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  size constant bigint := svc.hold_appends();
  entry constant jsonb := svc.members_of(body, 'verdict');
  at constant timestamptz := svc.time_in(entry, 'time');
  expired_through constant timestamptz := svc.time_in(entry, 'expired_through');
  previous jsonb;
begin
  if (select max(leaf_index) from svc.log_entry where kind = 5) is distinct from latest then
    raise exception 'another verdict entry was appended meanwhile' using errcode = 'serialization_failure';
  end if;
  perform svc.require(svc.index_in(entry, 'to') <= size, '`to` exceeds the log'),
    svc.require(expired_through <= at, '`expired_through` is after `time`'),
    svc.require(jsonb_typeof(entry -> 'failed') = 'array' and jsonb_typeof(entry -> 'restored') = 'array'
      and jsonb_array_length(entry -> 'failed') + jsonb_array_length(entry -> 'restored') <= 1000,
      'expected lists of at most 1000 leaves together'),
    svc.require((select array_agg(key ->> 'change' order by leaf_index) from (
        select leaf_index, convert_from(e.body, 'UTF8')::jsonb as key from svc.log_entry e where kind = 3) as keys
      where key ->> 'use' = 'verifier' and key ->> 'key_id' = entry ->> 'key_id') = array['activate'],
      'the verifier key is not active in the log');
  if jsonb_typeof(entry -> 'previous') is distinct from 'null' then
    previous := (select convert_from(e.body, 'UTF8')::jsonb from svc.log_entry e
      where kind = 5 and leaf_index = svc.index_in(entry, 'previous'));
    perform svc.require(previous is not null, '`previous` is not a verdict entry'),
      svc.require(svc.index_in(entry, 'to') >= svc.index_in(previous, 'to'), '`to` is less than before'),
      svc.require(expired_through >= svc.time_in(previous, 'expired_through')
        or entry ->> 'key_id' <> previous ->> 'key_id', '`expired_through` is less than before');
  end if;
  return svc.append_entry(5, at, body);
end $$;

-- To be called on the connection that holds the publisher's lease, so that no other publisher appends.
create function svc.append_snapshot(body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  size constant bigint := svc.hold_appends();
  entry constant jsonb := svc.members_of(body, 'snapshot');
  at constant timestamptz := svc.time_in(entry, 'time');
  tree constant jsonb := entry #> '{logs,0}';
  previous constant jsonb := (select convert_from(e.body, 'UTF8')::jsonb #> '{logs,0}' from svc.log_entry e
    where kind = 6 order by leaf_index desc limit 1);
begin
  perform svc.require(exists (select from pg_locks where locktype = 'advisory' and classid = 7566947 and objid = 1
      and objsubid = 2 and pid = pg_backend_pid() and granted), 'this connection does not hold the publisher''s lease'),
    svc.require(svc.time_in(entry, 'valid_until') > at
      and svc.time_in(entry, 'valid_until') <= at + interval '24 hours', '`valid_until` is not within 24 hours of `time`'),
    svc.require(svc.index_in(tree, 'shard') = 0 and svc.index_in(tree, 'size') <= size, '`size` exceeds the log'),
    svc.require(previous is null or svc.index_in(tree, 'size') >= svc.index_in(previous, 'size'),
      '`size` is less than before');
  return svc.append_entry(6, at, body);
end $$;

create function svc.append_erasure(body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  entry constant jsonb := svc.members_of(body, 'erasure');
  range jsonb;
  last bigint := 0;
begin
  perform svc.require(entry ->> 'cause' = 'erased', 'expected the cause `erased`'),
    svc.require(jsonb_array_length(entry -> 'ranges') between 1 and 1000, 'expected 1 to 1000 ranges');
  for range in select jsonb_build_object('from', pair -> 0, 'to', pair -> 1, 'more', pair -> 2)
      from jsonb_array_elements(entry -> 'ranges') as pair loop
    perform svc.require(range -> 'more' = 'null', 'a range has more than two indexes');
    perform svc.require(svc.index_in(range, 'from') >= last
      and svc.index_in(range, 'from') < svc.index_in(range, 'to'), 'the ranges are not ascending and disjoint');
    last := svc.index_in(range, 'to');
    perform svc.require((select count(*) from svc.erasure
        where leaf_index >= svc.index_in(range, 'from') and leaf_index < last) = last - svc.index_in(range, 'from'),
      'a range has a leaf without a record of its erasure');
  end loop;
  return svc.append_entry(4, svc.time_in(entry, 'time'), body);
end $$;

revoke all on function svc.require(boolean, text), svc.time_in(jsonb, text), svc.index_in(jsonb, text),
  svc.members_of(bytea, text), svc.append_entry(integer, timestamptz, bytea), svc.append_verdict(bytea, bigint),
  svc.append_snapshot(bytea), svc.append_erasure(bytea) from public;
grant execute on function svc.append_verdict(bytea, bigint) to svc_verifier;
grant select on svc.checkpoint, svc.ended_log to svc_verifier; -- for the origin of the log
grant execute on function svc.append_snapshot(bytea) to svc_publisher;
grant execute on function svc.append_erasure(bytea) to svc_erase;

-- For these functions, which run as the owner. Only proofs belong to tenants.
create policy appended on svc.log_entry for insert to current_user with check (kind > 3);
create policy appended_to on svc.log_entry for select to current_user using (kind > 1);
create policy appended on svc.erasure for select to current_user using (true);
