import type { AgentRun } from '../../adapters/run.js';
import type { Connection } from './message.js';
import { openRelay, type RelayOptions } from './relay.js';

export interface ProxyOptions extends Omit<RelayOptions, 'run' | 'toHost' | 'toServer'> {
  /** Opens a connection to the server. */
  connect: () => Promise<Connection>;
  /** Opens the run of a session; undefined if sessions have no run. */
  openRun: (() => AgentRun) | undefined;
}

/** Serves one host until the host or the server ends. Returns which one ended. */
export async function serveHost(
  host: Connection,
  { connect, openRun, ...options }: ProxyOptions,
): Promise<'host' | 'server'> {
  const server = await connect();
  const run = openRun?.();
  const relay = openRelay({ ...options, run, toHost: host.send, toServer: server.send });
  const ended = await Promise.race([
    host.read(relay.host).then(() => 'host' as const),
    server.read(relay.server).then(() => 'server' as const),
  ]);
  if (ended === 'host') relay.stopAdmitting();
  // Results that arrive while the server ends still count.
  await server.close();
  await relay.close();
  await run
    ?.close()
    .catch((error: Error) => options.log(`run ${run.id} is open: ${error.message}`));
  await host.close();
  return ended;
}
