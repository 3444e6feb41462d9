import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { UsageError } from '../config.js';
import type { MonitorPass } from './run.js';

export const READINGS = {
  svc_monitor_alarms: 'Alarms of the last pass, and lasting alarms of earlier passes',
  svc_monitor_reachable: '1 when the last pass reached every source, else 0',
  svc_monitor_log_leaves: 'Leaves of the followed log',
  svc_monitor_rebuilt_leaves: 'Leaves whose entries are in the rebuilt map',
  svc_monitor_last_pass_seconds: 'Time of the last pass',
} as const;

/** @param at milliseconds since 1970 */
export const readingsOf = (
  pass: MonitorPass,
  at: number,
): Record<keyof typeof READINGS, number> => ({
  svc_monitor_alarms: pass.alarms.length,
  svc_monitor_reachable: pass.isReachable ? 1 : 0,
  svc_monitor_log_leaves: pass.size,
  svc_monitor_rebuilt_leaves: pass.rebuilt,
  svc_monitor_last_pass_seconds: at / 1000,
});

/** Serves the readings on the loopback address, in Prometheus' text format. @throws UsageError */
export async function serveMetrics(port: number) {
  let readings: Record<string, number> = {};
  const server = createServer((_request, response) => {
    const lines = Object.entries(readings).map(
      ([name, value]) =>
        `# HELP ${name} ${READINGS[name as keyof typeof READINGS]}\n# TYPE ${name} gauge\n${name} ${String(value)}\n`,
    );
    response.writeHead(200, { 'Content-Type': 'text/plain; version=0.0.4' }).end(lines.join(''));
  });
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch (cause) {
    throw new UsageError(`--metrics-port ${String(port)}: ${(cause as Error).message}`, { cause });
  }
  return {
    port: (server.address() as AddressInfo).port,
    passed: (pass: MonitorPass) => (readings = readingsOf(pass, Date.now())),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
