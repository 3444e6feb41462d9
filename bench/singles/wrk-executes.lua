-- For wrk, in one thread: posts execute bodies, each one of its own, and says in the end what came of it as
-- one line of JSON. Called as
--   wrk ... -s wrk-executes.lua <url> -- <templates> <run> <pause> <receipts> <one in>
-- with a file of templates (execute-bodies.ts has the same rule), the mean pause of a connection between an
-- answer and its next request in milliseconds, and the file that one answer in so many is written to.

local threads = {}
local templates = {}
local run, head, receipts, one_in
local sent = 0

-- Answers by status. Global, so that it can be read from outside the thread.
answers = {}

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  run, one_in = args[2], tonumber(args[5])
  for line in io.lines(args[1]) do
    local parts = {}
    for part in (line .. "@"):gmatch("([^@]*)@") do
      parts[#parts + 1] = part
    end
    templates[#templates + 1] = parts
  end
  local pause = tonumber(args[3])
  if pause > 0 then
    -- Not all of one length, or connections that begin together would stay together.
    delay = function()
      return math.random(math.floor(pause / 2), math.ceil(pause * 3 / 2))
    end
  end
  receipts = io.open(args[4], "w")
  math.randomseed(os.time())
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

function response(status, _, body)
  answers[status] = (answers[status] or 0) + 1
  if math.random(one_in) == 1 then
    receipts:write(body, "\n")
    receipts:flush()
  end
end

-- Latencies are in microseconds, as a thousand quantiles in their middles; os.clock is wrk's own CPU time.
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
