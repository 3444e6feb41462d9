-- breaking: workers of earlier versions do not set is_outcome

-- An outcome has only its proof: no passport, certificate or trust. The publisher must know an outcome
-- from an admission and may not read actions, and an erased proof has no action left to tell by.

alter table svc.proof add column is_outcome boolean not null default false;
alter table svc.proof no force row level security;
alter table svc.proof disable trigger only_erases;
update svc.proof set is_outcome = true where lane = 2 and action is null and aep is not null;
alter table svc.proof enable trigger only_erases;
alter table svc.proof force row level security;

grant select (is_outcome) on svc.proof to svc_publisher;
