-- Trace contexts of sampled admissions, which worker, verifier and publisher continue. Kept for an hour; empty
-- without tracing. No payload and no tenant.
create table svc.trace (
  proof_id    uuid primary key,
  traceparent text not null check (length(traceparent) = 55),
  created_at  timestamptz(3) not null default clock_timestamp()
);
create index trace_created_at on svc.trace (created_at);

grant insert, delete on svc.trace to svc_engine;
grant select (created_at) on svc.trace to svc_engine; -- for the condition of the deletion
grant select on svc.trace to svc_worker, svc_verifier, svc_publisher;
