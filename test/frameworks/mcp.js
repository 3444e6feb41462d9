import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { reportServerAndClient } from './mcp-both.js';

await reportServerAndClient({ Client, InMemoryTransport, McpServer });
