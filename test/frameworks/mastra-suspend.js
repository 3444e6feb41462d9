// A call that is suspended, and resumed with the answer of a person.
import { createTool } from '@mastra/core/tools';
import { admitTool } from '@svc-proofs/sdk/mastra';
import * as z from 'zod';
import { calls, functions, options, ran } from './options.js';

const inputSchema = z.object({ seats: z.number() });
const resumeSchema = z.object({ ok: z.boolean() });
const tool = admitTool(
  createTool,
  options,
)({
  ...{ id: 'book_table', description: 'A tool.', inputSchema, resumeSchema },
  execute: async (input, { resumeData, suspend }) =>
    resumeData === undefined ? suspend({}) : functions.book_table(input),
});
const suspend = async () => undefined;
await tool.execute(calls.book_table, { suspend });
const read = await tool.execute(calls.book_table, { suspend, resumeData: { ok: true } });
console.log(JSON.stringify({ ran, read: { book_table: read } }));
