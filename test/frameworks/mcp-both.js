import { admitClient, admitServer } from '@svc-proofs/sdk/mcp';
import { functions, options, report } from './options.js';

/** Calls the first tool through a guarded client, and the second tool at a guarded server. */
export async function reportServerAndClient({ Client, InMemoryTransport, McpServer }) {
  const info = { name: 'tools', version: '1.0.0' };
  await report(async (name, args) => {
    const server = new McpServer(info);
    const client = new Client(info);
    if (name === 'book_table') admitClient(client, options);
    else admitServer(server, options);
    const handler = () => ({ content: [{ type: 'text', text: functions[name](args) }] });
    // 1.12 lacks registerTool.
    if (server.registerTool === undefined) server.tool(name, handler);
    else server.registerTool(name, {}, handler);
    const [near, far] = InMemoryTransport.createLinkedPair();
    await Promise.all([server.connect(near), client.connect(far)]);
    const result = await client.callTool({ name });
    await client.close();
    return result.content[0].text;
  });
}
