import { readFileSync } from 'node:fs';
import { readFile, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '#runtime/process/files';
import { sumOf } from '../harness/statistics.js';
import { launchNginx } from './servers.js';

const shipped = (name: string): string =>
  readFileSync(join(packageRoot, 'deploy/nginx', name), 'utf8');

/** The configuration with these local ports instead of the names that nginx resolves at run time. */
export function withLocalServers(config: string, ports: readonly number[]): string {
  const local = (server: string): string =>
    ports.map((port) => server.replace(/\S+ resolve/, `127.0.0.1:${String(port)}`)).join('\n');
  return config.replace(/^ *resolver .*\n/m, '').replace(/^ *server \S+ resolve.*;$/gm, local);
}

const inForeground = (config: string, dir: string): string =>
  `daemon off;\nmaster_process off;\n${config}`
    .replaceAll('/dev/stdout', join(dir, 'access.log'))
    .replaceAll('/var/cache/nginx', dir)
    .replaceAll('/tmp/nginx.pid', join(dir, 'nginx.pid'));

/** The cache of deploy/nginx in front of public API servers, with its paths and ports replaced. */
export function shippedCache(dir: string, port: number, ...publicApiPorts: number[]): string {
  const config = shipped('nginx.conf')
    .replace('include /etc/nginx/facades.conf;', shipped('facades.conf'))
    .replace('include /etc/nginx/real_ip.conf;', shipped('real_ip.conf'))
    .replace('listen 8081;', `listen 127.0.0.1:${String(port)};`);
  return inForeground(withLocalServers(config, publicApiPorts), dir);
}

/** The balancer of deploy/nginx in front of engines, with its paths and ports replaced. */
export function shippedBalancer(dir: string, port: number, ...enginePorts: number[]): string {
  const config = shipped('balancer.conf').replace(
    'listen 8080;',
    `listen 127.0.0.1:${String(port)};`,
  );
  return inForeground(withLocalServers(config, enginePorts), dir);
}

type CacheStatus = 'HIT' | 'REVALIDATED' | 'EXPIRED' | 'MISS';

/** Share of the responses of a load that must have the intended cache status. */
const MIN_SHARE = 0.9;

/** Starts {@link shippedCache} with raised limits per address, because all load has one address. */
export async function startShippedCache(dir: string, publicApiUrl: string) {
  const publicApiPort = Number(new URL(publicApiUrl).port);
  const nginx = await launchNginx(dir, (port) =>
    shippedCache(dir, port, publicApiPort)
      .replace('rate=50r/s', 'rate=1000000r/s')
      // nginx reads its clock once per round of events, in which it may serve more than 100 requests.
      .replace('burst=100 ', 'burst=100000 ')
      .replace('limit_conn connections 50', 'limit_conn connections 1000'),
  );
  const log = join(dir, 'access.log');
  return {
    ...nginx,
    clearLog: () => truncate(log),
    /** Clears the access log. @throws Error when fewer than 90 % of its responses had one of these cache statuses */
    requireStatus: async (...statuses: CacheStatus[]): Promise<void> => {
      const counts = new Map<string, number>();
      const lines = (await readFile(log, 'latin1')).trimEnd().split('\n');
      await truncate(log);
      for (const line of lines) {
        const found = line.slice(line.lastIndexOf(' ') + 1);
        counts.set(found, (counts.get(found) ?? 0) + 1);
      }
      const expected = sumOf(statuses, (status) => counts.get(status) ?? 0);
      if (expected >= MIN_SHARE * lines.length) return;
      const found = [...counts].map(([name, count]) => `${String(count)} × ${name}`).join(', ');
      throw new Error(
        `fewer than 90 % of the cache's responses were ${statuses.join(' or ')}: ${found}`,
      );
    },
  };
}
