import { tool } from 'ai';
import { admitTools } from '@svc-proofs/sdk/ai';
import * as z from 'zod';
import { functions, options, report } from './options.js';

const tools = admitTools(
  {
    book_table: tool({
      inputSchema: z.object({ seats: z.number() }),
      execute: async (input) => functions.book_table(input),
    }),
    deleteAuditLog: tool({
      inputSchema: z.object({}),
      execute: async () => functions.deleteAuditLog(),
    }),
  },
  options,
);
await report((name, args) => tools[name].execute(args, { toolCallId: 'call-1', messages: [] }));
