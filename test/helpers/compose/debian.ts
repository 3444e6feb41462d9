import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { nginxPath } from '../nginx.js';

const POSTGRES = '/usr/lib/postgresql';

const newest = (): string | undefined =>
  existsSync(POSTGRES)
    ? readdirSync(POSTGRES)
        .filter((version) => existsSync(join(POSTGRES, version, 'bin', 'initdb')))
        .sort((one, other) => Number(other) - Number(one))[0]
    : undefined;

const here = (program: string, ...args: string[]): boolean =>
  spawnSync(program, args, { stdio: 'ignore' }).status === 0;

/** Where Debian has the programs of PostgreSQL. */
export const postgresBin = join(POSTGRES, newest() ?? 'none', 'bin');

/** Of what the images would bring along, what is not on this machine. */
export const missingHere = [
  ...(newest() === undefined ? ['postgresql'] : []),
  ...(here('redis-server', '--version') ? [] : ['redis-server']),
  ...(nginxPath === null ? ['nginx'] : []),
  ...(here('prometheus', '--version') ? [] : ['prometheus']),
  ...(here('prometheus-node-exporter', '--version') ? [] : ['prometheus-node-exporter']),
  ...(here('setpriv', '--version') ? [] : ['util-linux']),
];

/** CI skips nothing, so there it fails instead. */
export const skipsByHand = missingHere.length > 0 && process.env['CI'] === undefined;
export const withoutThem =
  missingHere.length > 0 ? ` (skipped: install ${missingHere.join(', ')})` : '';

export interface Account {
  uid: number;
  gid: number;
}

/** initdb wants a user that has a name, which a number of the image's does not have here. */
export function postgresAccount(): Account {
  const id = (option: string): number =>
    Number(spawnSync('id', [option, 'postgres'], { encoding: 'utf8' }).stdout);
  return { uid: id('-u'), gid: id('-g') };
}
