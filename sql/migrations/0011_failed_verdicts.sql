-- How many leaves do not verify is asked every few seconds, and verdicts on single leaves are mostly
-- about validities that are over.
create index verdict_failed on svc.verdict (first_index) where not frontier and outcome = 'fail';
