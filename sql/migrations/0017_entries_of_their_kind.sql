-- Readers of the log see the body of an entry only. Administrators may append status and key entries, and
-- could append any other entry as one of them, for example a proof or an erasure.
create or replace function svc.entry_follows_head() returns trigger language plpgsql as $$
declare
  said jsonb;
begin
  if (current_user = 'svc_worker' and new.kind = 3) or (current_user = 'svc_admin' and new.kind = 1)
     or (current_user in ('svc_worker', 'svc_admin') and new.kind > 3) then
    raise exception '% may not append entries of kind %', current_user, new.kind using errcode = 'insufficient_privilege';
  end if;
  if current_user in ('svc_worker', 'svc_admin') and new.kind > 1 then
    said := convert_from(new.body, 'UTF8')::jsonb;
  end if;
  if current_user = 'svc_admin' and (
      said ->> 'type' is distinct from (case new.kind when 2 then 'status' else 'key' end)
      or (new.kind = 2 and said ->> 'proof_id' is distinct from replace(new.revokes::text, '-', ''))) then
    raise exception 'the body is not an entry of kind %', new.kind using errcode = 'insufficient_privilege';
  end if;
  if current_user = 'svc_worker' and new.kind = 2 then
    if not exists (
      select from svc.revocation_request r where r.proof_id = new.revokes and r.refused is null
        and said ->> 'proof_id' = replace(r.proof_id::text, '-', '')
        and said ->> 'artifact_kind' = r.artifact_kind
        and said ->> 'reason_hash' = encode(r.reason_hash, 'hex')) then
      raise exception 'no tenant requested the revocation of %', new.revokes using errcode = 'insufficient_privilege';
    end if;
    if exists (
      select from svc.log_entry e where e.kind = 2 and e.revokes = new.revokes
        and convert_from(e.body, 'UTF8')::jsonb ->> 'artifact_kind' = said ->> 'artifact_kind') then
      raise exception 'the % of % is revoked already', said ->> 'artifact_kind', new.revokes using errcode = 'insufficient_privilege';
    end if;
  end if;
  if new.leaf_index < (select tree_size from svc.log_head) then
    raise exception 'leaf % is behind the head of the log', new.leaf_index using errcode = 'insufficient_privilege';
  end if;
  return new;
end $$;
