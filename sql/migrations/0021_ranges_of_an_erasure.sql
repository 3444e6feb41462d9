-- The bounds of a range are read once: within the condition on svc.erasure they were read again for each of its rows,
-- so that an entry with many ranges exceeded the statement timeout of an adoption or of a tenant's erasure.
create or replace function svc.append_erasure(body bytea) returns bigint
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
