import { Client } from '@modelcontextprotocol/client';
import { InMemoryTransport, McpServer } from '@modelcontextprotocol/server';
import { reportServerAndClient } from './mcp-both.js';

await reportServerAndClient({ Client, InMemoryTransport, McpServer });
