import type { Gate } from '../../adapters/gate.js';
import { openCalls } from './calls.js';
import type { Mapping } from './mapping.js';
import type { Connection } from './message.js';
import { openRelay } from './relay.js';

export interface ProxyOptions {
  gate: Gate;
  mapping: Mapping;
  observe: boolean;
  /** Opens a connection to the server. */
  connect: () => Promise<Connection>;
  howToApprove: (proofId: string) => string;
  log: (text: string) => void;
}

/** Serves one host until it or the server ends. Returns which one ended, after the last outcome. */
export async function serveHost(
  host: Connection,
  { connect, ...options }: ProxyOptions,
): Promise<'host' | 'server'> {
  const server = await connect();
  const calls = openCalls(options);
  const relay = openRelay({ ...options, calls, toHost: host.send, toServer: server.send });
  const reading = server.read(relay.server).then(() => 'server' as const);
  const ended = await Promise.race([host.read(relay.host).then(() => 'host' as const), reading]);
  if (ended === 'host') relay.stopAdmitting();
  // Results that arrive while the server ends are still recorded.
  await server.close();
  await relay.close();
  await host.close();
  await calls.close();
  return ended;
}
