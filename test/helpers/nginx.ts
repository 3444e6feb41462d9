import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '#runtime/process/package-root';
import { freePort } from './free-port.js';

const PLACES = [
  '/usr/sbin/nginx',
  '/usr/bin/nginx',
  '/usr/local/sbin/nginx',
  '/usr/local/bin/nginx',
  '/opt/homebrew/bin/nginx',
];

/** The nginx of this machine. `NGINX` names another; null for none. */
export const nginxPath: string | null =
  [process.env['NGINX'], ...PLACES].find(
    (path): path is string => path !== undefined && path !== '' && existsSync(path),
  ) ?? null;

/** Whether tests that need it are left out. CI skips nothing, so there they fail instead. */
export const skipsNginx = nginxPath === null && process.env['CI'] === undefined;

/** Appended to what is skipped for want of it. */
export const withoutNginx =
  nginxPath === null ? ' (skipped: no nginx here; install one, or name it in NGINX)' : '';

/** The configuration that operators are told to use: what is tested is what is documented. */
export const NGINX_CONFIG = join(packageRoot, 'examples/nginx-snapshot.conf');

/** One line of the access log. */
export interface NginxRequest {
  path: string;
  status: number;
  /** Bytes of the body that were sent. */
  bytes: number;
  range: string;
  ifNoneMatch: string;
}

export interface TestNginx {
  url: string;
  port: number;
  /** Starts it again on the same port; `extra` are directives for its server block, in front. */
  start(extra?: string): Promise<void>;
  /** Ends it at once, with whatever it was sending. */
  stop(): Promise<void>;
  /** Stops it where it stands: it takes connections and answers nothing. */
  freeze(): void;
  /** How many connections there have been. */
  connections(): Promise<number>;
  /** What was asked since the last call, in the order in which the answers ended. */
  requests(): Promise<NginxRequest[]>;
  close(): Promise<void>;
}

const START_MS = 10_000;

/** A real nginx that serves `root` as an operator's would. */
export async function startNginx(root: string, extra = ''): Promise<TestNginx> {
  const dir = await mkdtemp(join(tmpdir(), 'svc-nginx-'));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const access = join(dir, 'access.log');
  let server: NginxProcess | null = null;
  let seen = 0;
  let marks = 0;

  const start = async (directives = ''): Promise<void> => {
    server = launch(dir, configuration(dir, root, port, directives));
    await server.listens(port);
  };
  const stop = async (): Promise<void> => {
    const dying = server;
    server = null;
    await dying?.kill();
  };
  const requests = async (): Promise<NginxRequest[]> => {
    // It is one process, so what it answered before this mark it has logged before it.
    const mark = `/mark/${++marks}`;
    await (await fetch(url + mark)).arrayBuffer();
    for (let waited = 0; waited < START_MS; waited += 5) {
      const lines = (await readFile(access, 'utf8')).split('\n').slice(0, -1);
      const all = lines.map((line) => JSON.parse(line) as NginxRequest);
      const end = all.findIndex(({ path }) => path === mark);
      if (end >= 0) {
        const since = all.slice(seen, end);
        seen = end + 1;
        return since.filter(({ path }) => path !== '/');
      }
      await sleep(5);
    }
    throw new Error('nginx wrote no access log');
  };

  const connections = async (): Promise<number> => {
    const status = await (await fetch(`${url}/connections`)).text();
    return Number(/(\d+) \d+ \d+/.exec(status)![1]);
  };

  await start(extra);
  return {
    url,
    port,
    start,
    stop,
    freeze: () => server?.child.kill('SIGSTOP'),
    connections,
    requests,
    close: async () => {
      await stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

interface NginxProcess {
  child: ChildProcess;
  listens(port: number): Promise<void>;
  kill(): Promise<void>;
}

function launch(dir: string, config: string): NginxProcess {
  if (nginxPath === null) throw new Error('there is no nginx on this machine');
  writeFileSync(join(dir, 'nginx.conf'), config);
  const child = spawn(nginxPath, ['-p', dir, '-c', join(dir, 'nginx.conf')], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const ended = new Promise<never>((_resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`nginx ended with ${code}: ${errors}`)));
  });
  ended.catch(() => undefined);
  return {
    child,
    listens: (port) => Promise.race([ended, listening(port)]),
    kill: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await gone;
    },
  };
}

/** The cache of deploy/nginx in front of one facade, as it is shipped but for paths and ports. */
export async function startPublicCache(
  facadePort: number,
): Promise<{ url: string; close(): Promise<void> }> {
  const dir = await mkdtemp(join(tmpdir(), 'svc-nginx-'));
  const port = await freePort();
  const shipped = (name: string): string =>
    readFileSync(join(packageRoot, 'deploy/nginx', name), 'utf8');
  const facades = shipped('facades.conf')
    .replace(/^ *resolver .*\n/m, '')
    .replace('facade:8081 resolve', `127.0.0.1:${facadePort}`);
  const config = shipped('nginx.conf')
    .replace('include /etc/nginx/facades.conf;', facades)
    .replace('include /etc/nginx/real_ip.conf;', shipped('real_ip.conf'))
    .replace('listen 8081;', `listen 127.0.0.1:${port};`)
    .replaceAll('/dev/stdout', join(dir, 'access.log'))
    .replaceAll('/var/cache/nginx', dir)
    .replaceAll('/tmp/nginx.pid', join(dir, 'nginx.pid'));
  const nginx = launch(dir, `daemon off;\nmaster_process off;\n${config}`);
  await nginx.listens(port);
  return {
    url: `http://127.0.0.1:${port}`,
    close: async () => {
      await nginx.kill();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/**
 * One process in the foreground: it has the rights of the tests, root's or not, ends whole by its
 * id, and writes only below its own directory.
 */
function configuration(dir: string, root: string, port: number, directives: string): string {
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `
daemon off;
master_process off;
pid ${dir}/nginx.pid;
error_log stderr crit;
events { worker_connections 512; }
http {
  log_format asked escape=json '{"path":"$uri","status":$status,"bytes":$body_bytes_sent,'
    '"range":"$http_range","ifNoneMatch":"$http_if_none_match"}';
  access_log ${dir}/access.log asked;
  ${temporary.map((name) => `${name}_temp_path ${dir}/${name};`).join('\n  ')}
  server {
    listen 127.0.0.1:${port};
    root ${root};
    ${directives}
    location = /connections { stub_status; access_log off; }
    include ${NGINX_CONFIG};
  }
}
`;
}

async function listening(port: number): Promise<void> {
  for (let waited = 0; waited < START_MS; waited += 5) {
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => {
        socket.destroy();
        resolve(true);
      });
      socket.once('error', () => resolve(false));
    });
    if (isOpen) return;
    await sleep(5);
  }
  throw new Error('nginx does not listen');
}
