import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import * as z from 'zod';

/** A server without tools, and a client that `connect` brings to it within this process. */
export function mcpPair(): { server: McpServer; client: Client; connect(): Promise<void> } {
  const server = new McpServer({ name: 'tools', version: '1.0.0' });
  const client = new Client({ name: 'agent', version: '1.0.0' });
  return { server, client, connect: () => joined(server, client) };
}

interface Connects {
  connect(transport: Transport): Promise<void>;
}

export async function joined(server: Connects, client: Connects): Promise<void> {
  const [one, other] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(one), client.connect(other)]);
}

/** Tools that note in `ran` that they ran. */
export function registerTools(server: McpServer, ran: string[]): void {
  const text = (said: string) => ({ content: [{ type: 'text' as const, text: said }] });
  server.registerTool('book_table', { inputSchema: { seats: z.number() } }, ({ seats }) => {
    ran.push('book_table');
    return { ...text(`a table for ${String(seats)}`), _meta: { kitchen: 'open' } };
  });
  server.registerTool('deleteAuditLog', {}, () => {
    ran.push('deleteAuditLog');
    return text('done');
  });
  server.registerTool('fail', {}, () => {
    ran.push('fail');
    throw new Error('no table is free');
  });
  server.registerTool('wait', {}, ({ signal }) => {
    ran.push('wait');
    return new Promise((resolve) => {
      signal.addEventListener('abort', () => resolve(text('stopped')));
    });
  });
}
