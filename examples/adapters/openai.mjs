// Tools of the OpenAI Agents SDK: node examples/adapters/openai.mjs [ready.json]
import { tool } from '@openai/agents-core';
import { admitTool } from '@svc-proofs/sdk/openai';
import * as z from 'zod';
import { options } from './connect.mjs';

const admitted = admitTool(tool, options);
const bookTable = admitted({
  name: 'book_table',
  description: 'Books a table.',
  parameters: z.object({ seats: z.number() }),
  execute: async ({ seats }) => `a table for ${seats}`,
});
// The shipped policy forbids DELETE_AUDIT_LOG.
const tidyUp = admitted({
  name: 'deleteAuditLog',
  description: 'Deletes the log.',
  parameters: z.object({}),
  execute: async () => console.log('this is never printed'),
});

// An agent of the SDK invokes its tools like this.
console.log(`book_table: ${await bookTable.invoke({}, '{"seats":2}')}`);
console.log(`deleteAuditLog: ${await tidyUp.invoke({}, '{}')}`);
