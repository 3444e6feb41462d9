// An MCP client that starts the server in mcp-server.mjs and calls its tools:
// node examples/adapters/mcp-client.mjs [ready.json]
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { NOT_ADMITTED_META, PROOF_ID_META } from '@svc-proofs/sdk/mcp';

// The server requests the admissions. For servers that do not, wrap the client with
// `admitClient(client, options)`.
const client = new Client({ name: 'concierge', version: '1.0.0' });
await client.connect(
  new StdioClientTransport({
    command: process.execPath,
    args: [fileURLToPath(new URL('mcp-server.mjs', import.meta.url)), ...process.argv.slice(2)],
    stderr: 'inherit',
  }),
);

for (const call of [
  { name: 'book_table', arguments: { seats: 2 } },
  { name: 'delete_audit_log', arguments: {} },
]) {
  const { content, _meta } = await client.callTool(call);
  const decided = _meta?.[NOT_ADMITTED_META] ?? 'admitted';
  console.log(`${call.name}: ${decided}, proof ${_meta?.[PROOF_ID_META]}: ${content[0].text}`);
}
await client.close();
