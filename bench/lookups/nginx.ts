import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../service/free-port.js';
import { startInstalled } from '../service/installed-server.js';

export interface BenchNginx {
  url: string;
  pid: number;
  close(): Promise<void>;
}

const START_MS = 10_000;

/**
 * An nginx of one process that serves `root` as fast as it can.
 *
 * @param files how many there are: it keeps all of them open
 */
export async function startNginx(dir: string, root: string, files: number): Promise<BenchNginx> {
  await mkdir(dir, { recursive: true });
  const port = await freePort();
  const config = join(dir, 'nginx.conf');
  await writeFile(config, configuration(dir, root, port, files));
  const server = startInstalled('nginx', ['-p', dir, '-c', config]);
  const url = `http://127.0.0.1:${String(port)}`;
  const deadline = performance.now() + START_MS;
  while (!(await answers(url))) {
    if (server.isGone() || performance.now() > deadline) {
      await server.close();
      throw new Error(`nginx does not serve: ${server.said()}`);
    }
    await sleep(10);
  }
  return { url, pid: server.pid, close: server.close };
}

/**
 * What makes it fast at small files that never change: no log, every file kept open with what is
 * known of it, handed to the kernel without a copy, connections that stay. One process without a
 * master does what one worker does, and has one id to pin and to measure.
 */
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

async function answers(url: string): Promise<boolean> {
  try {
    await (await fetch(url)).arrayBuffer();
    return true;
  } catch {
    return false;
  }
}
