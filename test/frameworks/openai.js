import { tool } from '@openai/agents-core';
import { admitTool } from '@svc-proofs/sdk/openai';
import * as z from 'zod';
import { functions, options, report } from './options.js';

const admitted = admitTool(tool, options);
const description = 'A tool.';
const bookTable = z.object({ seats: z.number() });
const tools = {
  book_table: { parameters: bookTable, execute: functions.book_table },
  deleteAuditLog: { parameters: z.object({}), execute: functions.deleteAuditLog },
};
await report((name, args) => {
  const one = admitted({ name, description, ...tools[name] });
  return one.invoke({}, JSON.stringify(args), { toolCall: { callId: 'call-1' } });
});
