-- `admin log end` retires a log that lost published leaves. As after an adoption, workers then reject requests that
-- depend on lost runs, counters or second decisions. They sign under no delegation for a retired log.
-- A view, because old workers refuse to start with a right on a table that they know and did not read.
create view svc.retired_log as select origin, ended_at from svc.ended_log;
grant select on svc.retired_log to svc_worker;
