export { NOT_ADMITTED_META, PROOF_ID_META } from './mcp-call.js';
export { admitClient, type AnyMcpClient } from './mcp-client.js';
export { admitServer, type AnyMcpServer, type LowLevelServer } from './mcp-server.js';
