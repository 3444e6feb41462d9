// Tools of LangChain.js, admitted before they run: node examples/adapters/langchain.mjs [ready.json]
import { tool } from '@langchain/core/tools';
import { isNotAdmitted } from '@svc-proofs/sdk';
import { admitTool } from '@svc-proofs/sdk/langchain';
import * as z from 'zod';
import { options } from './connect.mjs';

const tools = [
  tool(async ({ seats }) => `a table for ${seats}`, {
    name: 'book_table',
    description: 'Books a table.',
    schema: z.object({ seats: z.int() }),
  }),
  // The shipped policy forbids DELETE_AUDIT_LOG: the adapter derives this action from the name of the tool.
  tool(async () => 'this is never said', {
    name: 'delete_audit_log',
    description: 'Covers the traces.',
    schema: z.object({}),
  }),
].map((one) => admitTool(one, options));

// An agent executes the tool calls of its model in the same way.
for (const call of [
  { type: 'tool_call', id: 'call-1', name: 'book_table', args: { seats: 2 } },
  { type: 'tool_call', id: 'call-2', name: 'delete_audit_log', args: {} },
]) {
  const asked = tools.find(({ name }) => name === call.name);
  try {
    const message = await asked.invoke(call);
    console.log(`${call.name}: ${message.content}`);
  } catch (error) {
    if (!isNotAdmitted(error)) throw error;
    console.log(`${call.name}: ${error.message}`);
  }
}
