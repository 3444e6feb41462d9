-- For wrk: requests random paths of a file and prints the result as one line of JSON. Called as
-- `wrk ... -s wrk-paths.lua <url> -- <file> <seed>`.

local requests = {}

function init(args)
  math.randomseed(tonumber(args[2]))
  for path in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("GET", path)
  end
end

function request()
  return requests[math.random(#requests)]
end

-- Latencies and the duration are in microseconds; the last figure is the CPU time of wrk itself.
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p99":%d,"rejected":%d,"failed":%d,"cpuSeconds":%.3f}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, os.clock()))
end
