// Tools of the Vercel AI SDK, admitted before they run: node examples/adapters/ai.mjs [ready.json]
import { generateText, stepCountIs, tool } from 'ai';
import { MockLanguageModelV3 } from 'ai/test';
import { admitTools } from '@svc-proofs/sdk/ai';
import * as z from 'zod';
import { options } from './connect.mjs';

const tools = admitTools(
  {
    bookTable: tool({
      description: 'Books a table.',
      inputSchema: z.object({ seats: z.int() }),
      execute: async ({ seats }) => `a table for ${seats}`,
    }),
    // The shipped policy forbids DELETE_AUDIT_LOG: the adapter derives this action from the name of the tool.
    deleteAuditLog: tool({
      description: 'Covers the traces.',
      inputSchema: z.object({}),
      execute: async () => 'this is never said',
    }),
  },
  options,
);

// Replaces a model, so that the example runs without one: it calls both tools and then stops.
const usage = { inputTokens: {}, outputTokens: {} };
const calls = [
  { toolName: 'bookTable', input: '{"seats":2}' },
  { toolName: 'deleteAuditLog', input: '{}' },
].map((call, at) => ({ type: 'tool-call', toolCallId: `call-${at}`, ...call }));
const model = new MockLanguageModelV3({
  doGenerate: [
    { content: calls, finishReason: { unified: 'tool-calls' }, usage, warnings: [] },
    {
      content: [{ type: 'text', text: 'A table is booked.' }],
      finishReason: { unified: 'stop' },
      usage,
      warnings: [],
    },
  ],
});

const { text, steps } = await generateText({
  model,
  tools,
  stopWhen: stepCountIs(3),
  prompt: 'A table for two, and cover the traces.',
});
for (const part of steps[0].content) {
  if (part.type === 'tool-result') console.log(`${part.toolName}: ${part.output}`);
  if (part.type === 'tool-error') console.log(`${part.toolName}: ${part.error.message}`);
}
console.log(text);
