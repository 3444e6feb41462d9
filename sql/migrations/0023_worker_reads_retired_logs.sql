-- `admin log end` retires a log that lost published leaves. As after an adoption, workers then reject requests that
-- depend on lost runs, counters or second decisions. They sign under no delegation for a retired log.
grant select (origin, ended_at) on svc.ended_log to svc_worker;
