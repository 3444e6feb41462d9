import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort, startInstalled } from '../harness/tools.js';

/**
 * Starts an nginx of one process that serves `root` as fast as it can.
 *
 * @param files how many files it keeps open
 */
export async function startNginx(dir: string, root: string, files: number) {
  await mkdir(dir, { recursive: true });
  const port = await freePort();
  const config = join(dir, 'nginx.conf');
  await writeFile(config, configuration(dir, root, port, files));
  const url = `http://127.0.0.1:${String(port)}`;
  const isServing = (): Promise<boolean> =>
    fetch(url).then(
      async (response) => (await response.arrayBuffer()).byteLength >= 0,
      () => false,
    );
  return { url, ...(await startInstalled('nginx', ['-p', dir, '-c', config], isServing)) };
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
