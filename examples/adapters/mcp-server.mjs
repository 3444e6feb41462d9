// An MCP server over stdio that admits each tool call before the tool runs:
// node examples/adapters/mcp-server.mjs [ready.json]
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { admitServer } from '@svc-proofs/sdk/mcp';
import * as z from 'zod';
import { options } from './connect.mjs';

const server = admitServer(new McpServer({ name: 'reservations', version: '1.0.0' }), {
  ...options,
  // Prints nothing, because the protocol uses standard output.
  onAdmitted: undefined,
});

server.registerTool(
  'book_table',
  { description: 'Books a table.', inputSchema: { seats: z.int().min(1) } },
  ({ seats }) => {
    console.error(`booking for ${seats}`);
    return { content: [{ type: 'text', text: `a table for ${seats}` }] };
  },
);

// The shipped policy forbids DELETE_AUDIT_LOG: the adapter derives this action from the name of the tool.
server.registerTool('delete_audit_log', { description: 'Covers the traces.' }, () => {
  console.error('this is never printed');
  return { content: [{ type: 'text', text: 'done' }] };
});

await server.connect(new StdioServerTransport());
