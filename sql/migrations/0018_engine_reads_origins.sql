-- Delegations are signed for the name that the log had then: without it, proofs under them do not verify.
grant select (origin) on svc.ended_log to svc_engine;
