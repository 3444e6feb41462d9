import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort } from '#runtime/embedded/server';
import { OperatorError } from '#runtime/process/operator-error';
import { urlOf } from '../harness/child.js';
import type { Cleanup } from '../harness/cleanup.js';
import { untilReady } from '../harness/public-api.js';
import type { BenchRegistry } from '../harness/registry.js';
import { startProgram } from '../harness/stack.js';
import { toolPath, startInstalled } from '../harness/tools.js';
import { LOAD_CORE } from '../harness/wrk.js';

/** The CPU core of the compared servers, which run one at a time. */
export const SERVER_CORE = 0;

/** The public API as operators run it, in one process. */
export async function startPublicApi(
  registry: BenchRegistry,
  cleanup: Cleanup,
): Promise<{ url: string; pid: number }> {
  const server = startProgram('facade', registry, cleanup);
  const url = await urlOf(server);
  await pin(server.pid, SERVER_CORE);
  await untilReady(url);
  return { url, pid: server.pid };
}

/** Runs verifier and publisher, which keep the snapshot valid, on the core of the load. */
export async function keepPublished(registry: BenchRegistry, cleanup: Cleanup): Promise<void> {
  for (const name of ['verifier', 'publisher'] as const) {
    const program = startProgram(name, registry, cleanup);
    await program.ready;
    await pin(program.pid, LOAD_CORE);
  }
}

/**
 * Pins a process with its present and future threads to a core.
 *
 * @throws OperatorError on a machine with one core
 */
export async function pin(pid: number, core: number): Promise<void> {
  if (availableParallelism() < 2) {
    throw new OperatorError('The server and its load need a core each; this machine has one.');
  }
  const args = ['--all-tasks', '--cpu-list', '--pid', String(core), String(pid)];
  await promisify(execFile)(toolPath('taskset'), args);
}

/**
 * Starts a single-process nginx that serves `root`, configured for speed.
 *
 * @param files number of files that nginx keeps open
 */
export function startNginx(dir: string, root: string, files: number) {
  return launchNginx(dir, (port) => configuration(dir, root, port, files));
}

/** Starts nginx with a configuration for a free port, and waits until it serves. */
export async function launchNginx(dir: string, configure: (port: number) => string) {
  await mkdir(dir, { recursive: true });
  const port = await freePort();
  const config = join(dir, 'nginx.conf');
  await writeFile(config, configure(port));
  const url = `http://127.0.0.1:${String(port)}`;
  const isServing = (): Promise<boolean> =>
    fetch(url).then(
      async (response) => (await response.arrayBuffer()).byteLength >= 0,
      () => false,
    );
  return { url, ...(await startInstalled('nginx', ['-p', dir, '-c', config], isServing)) };
}

/** Without a master process nginx is like one worker, with one process to pin and measure. */
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
