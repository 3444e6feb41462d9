-- For wrk, in one thread: posts unique execute bodies and prints the result as one line of JSON. Called as
--   wrk ... -s wrk-executes.lua <url> -- <templates> <run>
-- with a file of templates, in which a unique text replaces each @ (`executeTemplates` in items.ts).

local threads = {}
local templates = {}
local run, head
local sent = 0

-- Answers by status. Global, so that `done` can read it from the thread.
answers = {}

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  run = args[2]
  for line in io.lines(args[1]) do
    local parts = {}
    for part in (line .. "@"):gmatch("([^@]*)@") do
      parts[#parts + 1] = part
    end
    templates[#templates + 1] = parts
  end
  local lines = { "POST " .. wrk.path .. " HTTP/1.1" }
  for name, value in pairs(wrk.headers) do
    lines[#lines + 1] = name .. ": " .. value
  end
  head = table.concat(lines, "\r\n") .. "\r\nContent-Length: "
end

function request()
  local body = table.concat(templates[sent % #templates + 1], run .. "." .. sent)
  sent = sent + 1
  return head .. #body .. "\r\n\r\n" .. body
end

function response(status)
  answers[status] = (answers[status] or 0) + 1
end

-- Latencies are in microseconds, as the middles of a thousand quantiles; os.clock is wrk's own CPU time.
function done(summary, latency)
  local counts, quantiles, errors = {}, {}, summary.errors
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("answers")) do
      counts[#counts + 1] = string.format('"%d":%d', status, count)
    end
  end
  for i = 1, 1000 do
    quantiles[i] = string.format("%d", latency:percentile((i - 0.5) / 10))
  end
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"answers":{%s},"failed":%d,"cpuSeconds":%.3f,"quantiles":[%s]}\n',
    summary.requests, summary.duration / 1e6, table.concat(counts, ","),
    errors.connect + errors.read + errors.write + errors.timeout, os.clock(),
    table.concat(quantiles, ",")))
end
