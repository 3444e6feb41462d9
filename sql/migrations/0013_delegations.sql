-- Workers append activations of AEP keys that a root key delegates.

-- The database cannot verify Ed25519: the verifier and every reader do, and a key without a valid delegation signs
-- nothing that counts. The limits bound what a worker's key can sign after it was stolen, and are such that no reader
-- has to count its proofs. The bound on the rate keeps a compromised worker from filling the log.
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

revoke all on function svc.append_delegation(bytea) from public;
grant execute on function svc.append_delegation(bytea) to svc_worker;
