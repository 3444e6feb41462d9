import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { admitTool } from '@svc-proofs/sdk/mastra';
import * as z from 'zod';
import { calls, functions, options, report } from './options.js';

const create = admitTool(createTool, options);
const description = 'A tool.';
const tools = {
  book_table: create({
    ...{ id: 'book_table', description, inputSchema: z.object({ seats: z.number() }) },
    execute: async (input) => functions.book_table(input),
  }),
  deleteAuditLog: create({
    ...{ id: 'deleteAuditLog', description, inputSchema: z.object({}) },
    execute: async () => functions.deleteAuditLog(),
  }),
};

const usage = { inputTokens: 1, outputTokens: 1, totalTokens: 2 };
/** A model that calls one tool, and then answers with what it read. */
const modelThatCalls = (toolName) => {
  const answer = ({ prompt }) => {
    const last = prompt.at(-1);
    return last.role === 'tool'
      ? { text: JSON.stringify(last.content[0].output), finishReason: 'stop' }
      : { finishReason: 'tool-calls' };
  };
  const parts = (given) => {
    const { text, finishReason } = answer(given);
    const input = JSON.stringify(calls[toolName]);
    const content =
      text === undefined
        ? [{ type: 'tool-call', toolCallId: 'call-1', toolName, input }]
        : [
            { type: 'text-start', id: '1' },
            { type: 'text-delta', id: '1', delta: text },
            { type: 'text-end', id: '1' },
          ];
    return [
      { type: 'stream-start', warnings: [] },
      ...content,
      { type: 'finish', finishReason, usage },
    ];
  };
  return {
    ...{ specificationVersion: 'v2', provider: 'fake', modelId: 'fake', supportedUrls: {} },
    doGenerate: () => Promise.reject(new Error('not used')),
    doStream: async (given) => ({
      stream: new ReadableStream({
        start(controller) {
          for (const part of parts(given)) controller.enqueue(part);
          controller.close();
        },
      }),
    }),
  };
};

await report(async (name) => {
  const model = modelThatCalls(name);
  const agent = new Agent({ id: 'agent', name: 'agent', instructions: 'Book.', model, tools });
  return await (
    await agent.stream('A table for two')
  ).text;
});
