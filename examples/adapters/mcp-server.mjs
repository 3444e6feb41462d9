// An MCP server over stdio, each of whose tools is admitted before it runs:
// node examples/adapters/mcp-server.mjs [ready.json]
import { readFile } from 'node:fs/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { admitServer } from 'svc-sdk/mcp';
import * as z from 'zod';

const ready = JSON.parse(await readFile(process.argv[2] ?? '.data/ready.json', 'utf8'));

const server = admitServer(new McpServer({ name: 'reservations', version: '1.0.0' }), {
  engine: {
    engineUrl: ready.engine_url,
    apiKey: ready.api_key,
    tenantId: ready.tenant_id,
  },
  agent: { id: 'concierge-7' },
  // Standard output belongs to the protocol.
  onOutcomeError: ({ tool, error }) => console.error(`${tool}: no outcome recorded:`, error),
});

server.registerTool(
  'book_table',
  { description: 'Books a table.', inputSchema: { seats: z.int().min(1) } },
  ({ seats }) => {
    console.error(`booking for ${seats}`);
    return { content: [{ type: 'text', text: `a table for ${seats}` }] };
  },
);

// The shipped policy forbids DELETE_AUDIT_LOG, which is what this name stands for.
server.registerTool('delete_audit_log', { description: 'Covers the traces.' }, () => {
  console.error('this is never printed');
  return { content: [{ type: 'text', text: 'done' }] };
});

await server.connect(new StdioServerTransport());
