-- Counts the leaves that fail for another cause than a compromised key, without reading all that one voids.
-- outside a transaction: the table is large
create index concurrently verdict_failed_otherwise on svc.verdict (first_index)
  where not frontier and outcome = 'fail'
    and jsonb_path_query_array(checks, '$[*] ? (@.result == "fail")')
      <> '[{"name": "signing_key", "result": "fail", "detail": "by the log the key is compromised at this position"}]';
