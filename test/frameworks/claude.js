// Runs Claude Code with a model on this machine. Second argument: `sdk`, or the command of a hook.
import { query } from '@anthropic-ai/claude-agent-sdk';
import { once } from 'node:events';
import { existsSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { admitHooks } from '@svc-proofs/sdk/claude';
import { options, ran, report } from './options.js';

const [, , , hook] = process.argv;
const { engineUrl, apiKey, tenantId } = options.engine;
// `svc hook` derives the action from the name of the tool; with these options, the SDK takes it from the arguments.
const describe = (call) => ({
  ...options.describe(call),
  action: call.arguments.command.includes('deleteAuditLog') ? 'DELETE_AUDIT_LOG' : 'BOOK_TABLE',
});

/** Serves the Messages API: the model requests the command, and then answers with the result of the tool. */
async function modelThatRuns(command) {
  const usage = { input_tokens: 1, output_tokens: 1 };
  const server = createServer(async (request, response) => {
    const { messages = [], model, tools = [] } = JSON.parse(await buffer(request));
    const results = messages.flatMap(({ content }) => (Array.isArray(content) ? content : []));
    const result = results.find(({ type }) => type === 'tool_result');
    const runs = result === undefined && tools.some(({ name }) => name === 'Bash');
    const [block, delta] = runs
      ? [
          { type: 'tool_use', id: 'toolu_1', name: 'Bash', input: {} },
          { type: 'input_json_delta', partial_json: JSON.stringify({ command }) },
        ]
      : [
          { type: 'text', text: '' },
          { type: 'text_delta', text: JSON.stringify(result?.content ?? null) },
        ];
    const message = { id: 'msg_1', type: 'message', role: 'assistant', model, content: [], usage };
    const events = [
      { type: 'message_start', message: { ...message, stop_reason: null } },
      { type: 'content_block_start', index: 0, content_block: block },
      { type: 'content_block_delta', index: 0, delta },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: runs ? 'tool_use' : 'end_turn' }, usage },
      { type: 'message_stop' },
    ];
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for (const event of events) {
      response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    }
    response.end();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return server;
}

const commandHook = (command) => ({
  PreToolUse: [{ hooks: [{ type: 'command', command, onFailure: 'block' }] }],
  PostToolUse: [{ hooks: [{ type: 'command', command }] }],
});

await report(async (name) => {
  const file = resolve(name);
  rmSync(file, { force: true });
  const server = await modelThatRuns(`echo done > ${file}`);
  const env = {
    ...{ PATH: `${resolve('node_modules/.bin')}:${process.env.PATH}`, HOME: resolve('.') },
    ...{ ANTHROPIC_BASE_URL: `http://127.0.0.1:${server.address().port}` },
    ...{ ANTHROPIC_API_KEY: 'none', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1' },
    ...{ SVC_ENGINE_URL: engineUrl, SVC_API_KEY: apiKey, SVC_TENANT_ID: tenantId },
  };
  const guard =
    hook === 'sdk'
      ? { hooks: admitHooks({ ...options, describe }) }
      : { settings: { hooks: commandHook(hook) } };
  const stream = query({
    prompt: 'go',
    options: { ...guard, env, cwd: resolve('.'), allowedTools: ['Bash'], settingSources: [] },
  });
  let read = '';
  for await (const message of stream) if (message.type === 'result') read = message.result;
  server.closeAllConnections();
  server.close();
  if (existsSync(file)) ran.push(name);
  return read;
});
