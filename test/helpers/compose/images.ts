import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { nginxPath } from '../nginx.js';
import { postgresBin } from './debian.js';
import { isRoot, launch, runToEnd, type Launch } from './process.js';
import { environment, here, rewritten, type World } from './world.js';

/** How a replica of a service is run here. */
export function launchOf(world: World, name: string, replica = 1, extra: string[] = []): Launch {
  const service = world.compose.services[name];
  if (service === undefined) throw new Error(`no service ${name}`);
  const said = [...(service.entrypoint ?? []), ...(service.command ?? []), ...extra];
  const argv = said.map((word) => here(world, name, replica, word));
  const isOurs = service.build !== undefined;
  const plain: Launch = {
    service: `${name}-${replica}`,
    argv: isOurs && argv[0] === 'node' ? [world.image.node, ...argv.slice(1)] : argv,
    env: {
      ...environment(world, name, replica),
      ...(isOurs ? { NODE_ENV: 'production' } : {}),
    },
    cwd: isOurs ? world.image.root : world.directory,
    ...world.account(service),
    keeps: service.cap_add ?? [],
  };
  return IMAGES[name]?.(plain, world) ?? plain;
}

/** The programs of images that are not ours, as Debian has them; what they are given is compose's. */
const IMAGES: Record<string, (plain: Launch, world: World) => Launch> = {
  postgres: (plain, world) => ({
    ...plain,
    argv: [
      join(postgresBin, 'postgres'),
      ...plain.argv.slice(1),
      ...['-D', dataOf(world), '-k', socketsOf(world)],
      ...['-c', 'listen_addresses=127.0.0.1', '-p', String(world.port('postgres', 1, '5432'))],
    ],
  }),
  valkey: (plain, world) => ({
    ...plain,
    argv: [
      ...['redis-server', ...plain.argv.slice(1)],
      ...['--bind', '127.0.0.1', '--port', String(world.port('valkey', 1, '6379'))],
    ],
  }),
  nginx: (plain, world) => {
    const rewrite = (text: string): string =>
      here(world, 'nginx', 1, text)
        .replace(/listen 8081;/, `listen 127.0.0.1:${world.port('nginx', 1, '8081')};`)
        // What nginx keeps to itself there, for a test to look at.
        .replace(/^error_log .*$/m, (said) => {
          const faults = join(tmpOf(world, 'nginx', '/tmp'), 'faults.log');
          return `${said}\nerror_log ${faults} crit;`;
        })
        .replaceAll('/dev/stdout', join(tmpOf(world, 'nginx', '/tmp'), 'access.log'));
    const replicas = world.compose.services['facade']?.deploy?.replicas ?? 1;
    const servers = Array.from(
      { length: replicas },
      (_, at) => `server 127.0.0.1:${world.port('facade', at + 1, '8081')} max_fails=2;`,
    );
    const names = {
      'deploy/nginx/facades.conf': (text: string) =>
        text.replace(/^ *resolver .*\n/m, '').replace(/server facade:8081 .*/, servers.join(' ')),
      'deploy/nginx/real_ip.conf': (text: string) => text,
    };
    const folder = rewritten(world, 'nginx', names);
    rewritten(world, 'nginx', {
      'deploy/nginx/nginx.conf': (text) =>
        rewrite(text.replaceAll('include /etc/nginx/', 'include :')).replaceAll(
          'include :',
          `include ${folder}/`,
        ),
    });
    return {
      ...plain,
      argv: [
        nginxPath ?? 'nginx',
        '-p',
        folder,
        '-c',
        join(folder, 'nginx.conf'),
        '-g',
        'daemon off;',
      ],
    };
  },
  'node-exporter': (plain) => ({
    ...plain,
    argv: ['prometheus-node-exporter', ...plain.argv.slice(1)],
  }),
  prometheus: (plain, world) => {
    const folder = rewritten(world, 'prometheus', {
      'deploy/prometheus/prometheus.yml': (text) => scrapedHere(world, text),
      'deploy/prometheus/alerts.yml': (text) => text,
    });
    const config = `--config.file=${join(folder, 'prometheus.yml')}`;
    return {
      ...plain,
      argv: plain.argv.map((word) => (word.startsWith('--config.file=') ? config : word)),
    };
  },
};

interface ScrapeConfig {
  job_name: string;
  dns_sd_configs?: { names: string[]; port: number }[];
  static_configs?: { targets: string[] }[];
}

/** The same jobs, each second, of the addresses that Docker's names would lead to. */
function scrapedHere(world: World, text: string): string {
  const config = parse(text) as { global: object; scrape_configs: ScrapeConfig[] };
  const scrape_configs = config.scrape_configs.map(({ job_name, dns_sd_configs, ...rest }) => {
    const [found] = dns_sd_configs ?? [];
    const name = found?.names[0] ?? 'prometheus';
    const port = String(found?.port ?? 9090);
    const replicas = world.compose.services[name]?.deploy?.replicas ?? 1;
    const targets = Array.from(
      { length: replicas },
      (_, at) => `127.0.0.1:${world.port(name, at + 1, port)}`,
    );
    return { ...rest, job_name, static_configs: [{ targets }] };
  });
  const global = { ...config.global, scrape_interval: '1s', evaluation_interval: '1s' };
  return stringify({ ...config, global, scrape_configs });
}

const tmpOf = (world: World, name: string, path: string): string =>
  world.mounts(name, 1).find(([mounted]) => mounted === path)?.[1] ?? '';
const dataOf = (world: World): string =>
  join(tmpOf(world, 'postgres', '/var/lib/postgresql'), '15');
const socketsOf = (world: World): string => tmpOf(world, 'postgres', '/var/run/postgresql');

/** What the image of Postgres does before its first start, and after it with an empty folder. */
export async function preparePostgres(world: World): Promise<void> {
  if (existsSync(dataOf(world))) return;
  const plain = launchOf(world, 'postgres');
  const { POSTGRES_USER = '', POSTGRES_PASSWORD_FILE = '', POSTGRES_INITDB_ARGS = '' } = plain.env;
  const initdb = [
    join(postgresBin, 'initdb'),
    ...['-D', dataOf(world), `--username=${POSTGRES_USER}`, `--pwfile=${POSTGRES_PASSWORD_FILE}`],
    ...POSTGRES_INITDB_ARGS.split(' '),
    ...['--no-sync', '--encoding=UTF8', '--locale=C.UTF-8'],
  ];
  await runToEnd({ ...plain, argv: initdb });
  const server = launch({ ...plain, argv: [...plain.argv, '-c', 'listen_addresses='] });
  const env = {
    ...plain.env,
    PGHOST: socketsOf(world),
    PGPORT: String(world.port('postgres', 1, '5432')),
  };
  const ready = { ...plain, env, argv: [join(postgresBin, 'pg_isready'), '-q', '-t', '10'] };
  const scripts = tmpOf(world, 'postgres', '/docker-entrypoint-initdb.d');
  try {
    for (let left = 100; ; left -= 1) {
      const answer = await launch(ready).ended;
      if (answer === 0) break;
      if (left === 0) throw new Error(`Postgres does not start:\n${server.output.join('')}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    await runToEnd({ ...plain, env, argv: ['sh', join(scripts, '10-owner.sh')] });
  } finally {
    server.child.kill('SIGINT');
    await server.ended;
  }
}

/** Runs a service's own health check, in its own place and as its own user. */
export async function isHealthy(world: World, name: string, replica: number): Promise<boolean> {
  const test = world.compose.services[name]?.healthcheck?.test ?? [];
  const [how, ...words] = test;
  const plain = launchOf(world, name, replica);
  const said = words.map((word) => here(world, name, replica, word));
  const argv = how === 'CMD-SHELL' ? ['sh', '-c', ...said] : said;
  const program = argv[0] === 'node' ? world.image.node : argv[0];
  const port = name === 'valkey' ? String(world.port('valkey', 1, '6379')) : '';
  return (
    (await launch({
      ...plain,
      argv: [
        program === 'pg_isready' ? join(postgresBin, 'pg_isready') : (program ?? ''),
        ...argv.slice(1).map((word) => word.replace('valkey-cli', `redis-cli -p ${port}`)),
      ],
      env: { ...plain.env, PGPORT: String(world.port('postgres', 1, '5432')) },
    }).ended) === 0
  );
}

/** Whether a service's user can read a file: asked of the system, as that user. */
export function canRead(world: World, name: string, file: string): boolean {
  const service = world.compose.services[name];
  if (service === undefined || !isRoot) throw new Error('only root can ask as somebody else');
  const { uid, gid } = world.account(service);
  const as = ['--reuid', String(uid), '--regid', String(gid), '--clear-groups'];
  return spawnSync('setpriv', [...as, 'cat', file], { stdio: 'ignore' }).status === 0;
}
