import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { registerTools } from './mcp-tools.js';

/** A server over stdio that asks nobody. It says on standard error which tools ran. */
const ran = { push: (name: string) => process.stderr.write(`ran ${name}\n`) };
const server = new McpServer({ name: 'tools', version: '1.0.0' });
registerTools(server, ran as unknown as string[]);
await server.connect(new StdioServerTransport());
