import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '#runtime/process/package-root';
import { freePort } from '../free-port.js';
import { postgresAccount, type Account } from './debian.js';
import type { Compose, Service } from './file.js';
import { imageFolderOwner } from './image.js';
import { isRoot } from './process.js';

/** What containers would have between them: files, folders, and an address for every port of each. */
export interface World {
  compose: Compose;
  directory: string;
  image: { root: string; node: string };
  /** The port here of a port of one replica of a service. */
  port(service: string, replica: number, containerPort: string): number;
  /** Paths of a service's own file system that are somewhere else here, the longest first. */
  mounts(name: string, replica: number): [path: string, here: string][];
  account(service: Service): Account;
}

/** Where addresses of other services may stand in what a service is given. */
const SERVERS = ['postgres:5432', 'valkey:6379'];
/** Ports that are asked for while everything is prepared, so that texts can be made without waiting. */
const REPLICAS = 4;
const PORTS: Record<string, string[]> = {
  postgres: ['5432'],
  valkey: ['6379'],
  engine: ['8080', '9464'],
  worker: ['9464'],
  verifier: ['9464'],
  publisher: ['9464'],
  facade: ['8081', '9464'],
  nginx: ['8081'],
  board: ['8082', '9464'],
  prometheus: ['9090'],
  'node-exporter': ['9100'],
};

export async function makeWorld(
  compose: Compose,
  directory: string,
  image: { root: string; node: string },
): Promise<World> {
  const ports = new Map<string, number>();
  for (const [service, ofService] of Object.entries(PORTS)) {
    for (const port of ofService) {
      for (let replica = 1; replica <= REPLICAS; replica += 1) {
        ports.set(`${service} ${replica} ${port}`, await freePort());
      }
    }
  }
  const account = ({ user = '' }: Service): Account => {
    const [uid, gid] = user.split(':').map(Number);
    if (uid === undefined || gid === undefined || Number.isNaN(uid + gid)) {
      throw new Error(`a service runs as ${JSON.stringify(user)}`);
    }
    if (!isRoot) return { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
    // The number that the images of Postgres and Valkey have.
    return uid === 999 ? postgresAccount() : { uid, gid };
  };
  /** A file or folder of the project, as a bind mount shows it: copied, as others may not look here. */
  const bound = (source: string): string => {
    const here = join(directory, 'bound', source);
    if (source === './deploy/secrets') mkdirSync(here, { recursive: true });
    else if (!existsSync(here)) {
      cpSync(join(packageRoot, source), here, { recursive: true });
      execFileSync('chmod', ['-R', 'u=rwX,go=rX', here]);
    }
    return here;
  };
  const folder = (here: string, owner: Account, mode: number): string => {
    if (existsSync(here)) return here;
    mkdirSync(here, { recursive: true });
    if (isRoot) chownSync(here, owner.uid, owner.gid);
    chmodSync(here, mode);
    return here;
  };
  const volume = (entry: string, service: Service): [string, string] => {
    const [source = '', target = ''] = entry.split(':');
    if (source.startsWith('./')) return [target, bound(source)];
    if (source.startsWith('/')) return [target, source];
    const owner = isRoot ? (imageFolderOwner(target) ?? account(service)) : account(service);
    return [target, folder(join(directory, 'volumes', source), owner, 0o755)];
  };

  return {
    compose,
    directory,
    image,
    account,
    port: (service, replica, containerPort) => {
      const port = ports.get(`${service} ${replica} ${containerPort}`);
      if (port === undefined) throw new Error(`no port ${containerPort} of ${service} ${replica}`);
      return port;
    },
    mounts: (name, replica) => {
      const service = compose.services[name];
      if (service === undefined) throw new Error(`no service ${name}`);
      const own = join(directory, 'tmpfs', `${name}-${replica}`);
      const mounts: [string, string][] = [
        ['/svc', image.root],
        ...(service.secrets ?? []).map((secret): [string, string] => [
          `/run/secrets/${secret}`,
          join(directory, 'bound', compose.secrets[secret]?.file ?? 'missing'),
        ]),
        ...(service.configs ?? []).map(({ source, target }): [string, string] => [
          target,
          join(directory, 'bound', compose.configs[source]?.file ?? 'missing'),
        ]),
        ...(service.volumes ?? []).map((entry) => volume(entry, service)),
        ...(service.tmpfs ?? []).map((entry): [string, string] => {
          const [path = ''] = entry.split(':');
          return [path, folder(join(own, path), account(service), 0o700)];
        }),
      ];
      return mounts.sort(([one], [other]) => other.length - one.length);
    },
  };
}

/** A text of a service in which paths, addresses and ports are those of this machine. */
export function here(world: World, name: string, replica: number, text: string): string {
  const places = new Map(world.mounts(name, replica));
  const paths = [...places.keys()].map((path) => path.replaceAll('.', '\\.'));
  // In one go: what is put in has paths of its own.
  const mounted = new RegExp(`(?<![\\w./-])(?:${paths.join('|')})(?![\\w.-])`, 'g');
  let result = text.replace(mounted, (path) => places.get(path) ?? path);
  for (const server of SERVERS) {
    const [service = '', port = ''] = server.split(':');
    result = result.replaceAll(server, `127.0.0.1:${world.port(service, 1, port)}`);
  }
  result = result.replaceAll('0.0.0.0', '127.0.0.1');
  for (const port of PORTS[name] ?? []) {
    const listening = new RegExp(`127\\.0\\.0\\.1([:/])${port}(?!\\d)`, 'g');
    result = result.replace(listening, `127.0.0.1$1${world.port(name, replica, port)}`);
  }
  return result;
}

/** The environment that compose gives a service, and nothing else but where programs are found. */
export function environment(world: World, name: string, replica: number): Record<string, string> {
  const given = world.compose.services[name]?.environment ?? {};
  const own = Object.entries(given).map(([variable, value]): [string, string] => {
    const isPort = /_PORT$/.test(variable) && PORTS[name]?.includes(value) === true;
    return [
      variable,
      isPort ? String(world.port(name, replica, value)) : here(world, name, replica, value),
    ];
  });
  return { PATH: process.env['PATH'] ?? '', ...Object.fromEntries(own) };
}

/** A folder of texts for a service, with what is to be replaced in each. */
export function rewritten(
  world: World,
  name: string,
  files: Record<string, (text: string) => string>,
): string {
  const folder = join(world.directory, 'rewritten', name);
  mkdirSync(folder, { recursive: true });
  for (const [source, rewrite] of Object.entries(files)) {
    const text = readFileSync(join(packageRoot, source), 'utf8');
    writeFileSync(join(folder, source.split('/').at(-1) ?? ''), rewrite(text));
  }
  return folder;
}

/** Files of the images' 999 become those of the account that stands for it here. */
export function adoptSecrets(world: World): void {
  if (!isRoot) return;
  const { uid, gid } = postgresAccount();
  const secrets = join(world.directory, 'bound', 'deploy', 'secrets');
  for (const name of readdirSync(secrets)) {
    const file = join(secrets, name);
    const now = statSync(file);
    chownSync(file, now.uid === 999 ? uid : now.uid, now.gid === 999 ? gid : now.gid);
  }
}
