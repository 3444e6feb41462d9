import { tool } from '@langchain/core/tools';
import { admitTool } from '@svc-proofs/sdk/langchain';
import * as z from 'zod';
import { functions, options, report } from './options.js';

const schemas = { book_table: z.object({ seats: z.number() }), deleteAuditLog: z.object({}) };
await report((name, args) => {
  const fields = { name, description: 'A tool.', schema: schemas[name] };
  const one = admitTool(
    tool(async (input) => functions[name](input), fields),
    options,
  );
  return one.invoke(args);
});
