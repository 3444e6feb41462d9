import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort, startInstalled } from '../harness/tools.js';

export interface BenchNginx {
  url: string;
  pid: number;
  close(): Promise<void>;
}

const START_MS = 10_000;

/**
 * Starts an nginx of one process that serves `root` as fast as it can.
 *
 * @param files how many files it keeps open
 */
export async function startNginx(dir: string, root: string, files: number): Promise<BenchNginx> {
  await mkdir(dir, { recursive: true });
  const port = await freePort();
  const config = join(dir, 'nginx.conf');
  await writeFile(config, configuration(dir, root, port, files));
  const server = startInstalled('nginx', ['-p', dir, '-c', config]);
  const url = `http://127.0.0.1:${String(port)}`;
  const deadline = performance.now() + START_MS;
  for (;;) {
    const response = await fetch(url).catch(() => null);
    if (response !== null) {
      await response.arrayBuffer();
      return { url, pid: server.pid, close: server.close };
    }
    if (server.hasExited() || performance.now() > deadline) {
      await server.close();
      throw new Error(`nginx does not serve: ${server.stderr()}`);
    }
    await sleep(10);
  }
}

/** A process without a master does what one worker does, and has one ID to pin and to measure. */
function configuration(dir: string, root: string, port: number, files: number): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `
daemon off;
master_process off;
pid ${dir}/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile ${String(files + 1_000)};
events { worker_connections 512; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  open_file_cache max=${String(files)} inactive=1h;
  open_file_cache_valid 1h;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  default_type "application/json; charset=utf-8";
  ${temporary.map((name) => `${name}_temp_path ${dir}/${name};`).join('\n  ')}
  server {
    listen 127.0.0.1:${String(port)};
    root ${root};
  }
}
`;
}
