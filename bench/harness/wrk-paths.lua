-- For wrk: requests paths of a file and prints the result as one line of JSON. Called as
-- `wrk ... -s wrk-paths.lua <url> -- <file> <seed> <order>`. Orders: random; cyclic, each path after
-- all others; unique, random with a query that no other request has.

local paths, requests = {}, {}
local seed, order
local sent = 0

function init(args)
  seed, order = args[2], args[3]
  math.randomseed(tonumber(seed))
  for path in io.lines(args[1]) do
    paths[#paths + 1] = path
    requests[#requests + 1] = wrk.format("GET", path)
  end
end

function request()
  sent = sent + 1
  if order == "cyclic" then return requests[(sent - 1) % #requests + 1] end
  local n = math.random(#requests)
  if order == "unique" then return wrk.format("GET", paths[n] .. "?" .. seed .. "." .. sent) end
  return requests[n]
end

-- Latencies and the duration are in microseconds; the last figure is the CPU time of wrk itself.
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p99":%d,"rejected":%d,"failed":%d,"cpuSeconds":%.3f}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, os.clock()))
end
