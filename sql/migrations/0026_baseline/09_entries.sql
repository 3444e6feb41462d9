-- Key, erasure, verdict and snapshot entries. Programs append them through functions that can append nothing
-- else: a role with INSERT on the log could append anything.

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

-- Extends the tree of `leaf` leaves by leaf hashes that all belong to its last level-0 tile. Tiles have 256 hashes of
-- 32 bytes; the root of a full tile is a hash of the level above (protocol/tiles.ts).
create function svc.extend_tiles(leaf bigint, hashes bytea) returns void language plpgsql as $$
declare
  place bigint := leaf;
  tile bytea;
begin
  for of_level in 0..7 loop
    tile := coalesce((select t.hashes from svc.tile t where t.level = of_level and t.tile_index = place / 256), '');
    perform svc.require(length(tile) = place % 256 * 32,
      format('tile %s/%s does not match the log of %s leaves', of_level, place / 256, leaf));
    tile := tile || hashes;
    insert into svc.tile (level, tile_index, hashes) values (of_level, place / 256, tile)
      on conflict (level, tile_index) do update set hashes = excluded.hashes;
    exit when length(tile) < 8192;
    while length(tile) > 32 loop
      tile := (select string_agg(sha256('\x01' || substring(tile from n for 64)), '' order by n)
        from generate_series(1, length(tile), 64) as n);
    end loop;
    hashes := tile;
    place := place / 256;
  end loop;
end $$;

-- Appends one leaf under the append lock and returns its index.
create function svc.append_entry(of_kind integer, at timestamptz, body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  leaf constant bigint := svc.hold_appends();
begin
  perform svc.require(length(body) <= 65535, 'a log entry has at most 65535 bytes');
  insert into svc.log_entry (leaf_index, at, kind, body) values (leaf, at, of_kind, body);
  perform svc.extend_tiles(leaf, sha256('\x00' || body));
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

-- The bounds of a range are read once: within the condition on svc.erasure they would be read for each of its rows,
-- and an entry with many ranges would exceed the statement timeout.
create function svc.append_erasure(body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  entry constant jsonb := svc.members_of(body, 'erasure');
  range jsonb;
  first bigint;
  last bigint := 0;
begin
  perform svc.require(entry ->> 'cause' in ('erased', 'lost'), 'expected the cause `erased` or `lost`'),
    svc.require(jsonb_array_length(entry -> 'ranges') between 1 and 1000, 'expected 1 to 1000 ranges');
  for range in select jsonb_build_object('from', pair -> 0, 'to', pair -> 1, 'more', pair -> 2)
      from jsonb_array_elements(entry -> 'ranges') as pair loop
    perform svc.require(range -> 'more' = 'null', 'a range has more than two indexes');
    first := svc.index_in(range, 'from');
    perform svc.require(first >= last and first < svc.index_in(range, 'to'), 'the ranges are not ascending and disjoint');
    last := svc.index_in(range, 'to');
    perform svc.require((select count(*) from svc.erasure where leaf_index >= first and leaf_index < last) = last - first,
      'a range has a leaf without a record of its erasure'),
      svc.require(entry ->> 'cause' = 'erased' or exists (select from svc.adoption
        where from_index <= first and to_index >= last), 'a range has a leaf that was not lost');
  end loop;
  return svc.append_entry(4, svc.time_in(entry, 'time'), body);
end $$;

-- Workers append activations of AEP keys that a root key delegates. The database cannot verify Ed25519: the verifier
-- and every reader do, and a key without a valid delegation signs nothing that counts. The limits bound what a
-- worker's key can sign after it was stolen, and are such that no reader has to count its proofs. The bound on the
-- rate keeps a compromised worker from filling the log.
create function svc.append_delegation(body bytea) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  leaf constant bigint := svc.hold_appends();
  entry constant jsonb := svc.members_of(body, 'key');
  until_index constant bigint := svc.index_in(entry -> 'delegation', 'until_index');
  max_proofs constant bigint := svc.index_in(entry -> 'delegation', 'max_proofs');
  root constant text := entry #>> '{delegation,root_key_id}';
  sig constant text := entry #>> '{delegation,sig}';
  public_key constant text := entry ->> 'public_key';
  -- RFC 7638
  id constant text := rtrim(translate(encode(sha256(convert_to(
    format('{"crv":"Ed25519","kty":"OKP","x":"%s"}', public_key), 'UTF8')), 'base64'), '+/', '-_'), '=');
begin
  perform svc.require(public_key ~ '^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$' and sig ~ '^[A-Za-z0-9+/]{85}[AQgw]==$',
      'a key or signature is malformed'),
    svc.require(convert_from(body, 'UTF8') = format('{"change":"activate","delegation":{"max_proofs":%s,'
      '"root_key_id":"%s","sig":"%s","until_index":%s},"key_id":"%s","public_key":"%s",'
      '"schema_version":"svc.registry.entry/1.1","time":"%s","type":"key","use":"aep"}', max_proofs, root, sig,
      until_index, id, public_key, entry ->> 'time'), 'not the canonical entry of a delegation'),
    svc.require(max_proofs <= 1000000 and until_index > leaf + 1 and until_index - leaf - 1 <= max_proofs,
      'the limits of the delegation are too wide, or used up'),
    svc.require((select array_agg(key ->> 'change' order by leaf_index) from (
        select e.leaf_index, convert_from(e.body, 'UTF8')::jsonb as key from svc.log_entry e
        where e.kind = 3 and position('"use":"aep_root"' in e.body) > 0) as roots
      where key ->> 'key_id' = root) = array['activate'], 'the root key is not active in the log'),
    svc.require(not exists (select from svc.log_entry e
      where e.kind = 3 and position(convert_to(id, 'UTF8') in e.body) > 0), 'the key is already in the log');
  if (select e.at from svc.log_entry e where e.kind = 3 and position('"delegation"' in e.body) > 0
      order by e.leaf_index desc limit 1 offset 59) > clock_timestamp() - interval '1 minute' then
    raise exception 'the log has 60 delegations of the last minute' using errcode = 'program_limit_exceeded';
  end if;
  return svc.append_entry(3, svc.time_in(entry, 'time'), body);
end $$;
