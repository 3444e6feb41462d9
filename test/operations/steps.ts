import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { formatVkey } from '#protocol/note';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { activeKeys } from '#programs/admin/signing-keys';
import { treeSize } from '#sql/log/log';
import type { Client } from '../faults/client.js';
import { PROCESSES, type Owner, type ProcessName, type World } from '../faults/world.js';
import { Erasure } from '../faults/acts.js';
import { until } from '../faults/pace.js';
import type { Host } from './database.js';
import type { Observation } from '../faults/observation.js';
import type { Signals } from '../faults/signals.js';
import { runProgram } from './release.js';

/** An installation under load, and the folder of its operator. */
export interface Day {
  world: World;
  client: Client;
  host: Host;
  observation: Observation;
  /** A folder for the operator's files. */
  home: string;
}

export interface Step {
  name: string;
  /** Resolves when the operator has finished the step; the programs may still be recovering. */
  play(day: Day): Promise<unknown>;
  /** Later steps depend on this step. */
  isNeeded?: true;
  /** The signs that the operator must see. Every other alert that lasts is a problem. */
  signals: Partial<Signals>;
}

const HEALTHY_MS = 90_000;
/** Any program may be unready during a step, and status may report any problem. */
const ANY_SIGNS: Signals = {
  mayBeUnready: /./,
  mayStatus: /./,
  alert: { none: 'the step declares none' },
  log: { none: 'the step declares none' },
};

export const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

export async function beginStep({ observation }: Day, signals: Partial<Signals>): Promise<void> {
  // Ignores signs that remain: the first step ends its signs itself, and `finish` has reported those of earlier steps.
  await observation.untilQuiet({ ...ANY_SIGNS, ...signals });
  observation.begin();
}

/** Resolves with the time from the end of a step until the installation is healthy. */
export async function untilHealthy({ observation }: Day): Promise<string> {
  const ended = performance.now();
  observation.healed();
  const isHealthy = await observation.untilHealthy(HEALTHY_MS);
  return isHealthy ? seconds(performance.now() - ended) : 'never';
}

const TENANT = 'acme';

/** Prepares an empty database with the commands of the earlier release. */
export async function prepareEarlier(root: string, { database, keyFiles, logVkey }: Owner) {
  const { superuserUrl, urlFor } = database.running;
  const role = (name: string): Record<string, string> => ({ DATABASE_URL: urlFor(`svc_${name}`) });
  await runProgram(root, { DATABASE_URL: superuserUrl }, 'migrate');
  const roles = ['engine', 'worker', 'verifier', 'publisher', 'admin', 'fsck', 'erase'];
  for (const name of roles) await database.sql.unsafe(`alter role svc_${name} login`);
  const files = { AEP_PUBLIC_KEY_FILE: keyFiles.aep, VERIFIER_PUBLIC_KEY_FILE: keyFiles.verifier };
  await runProgram(root, { ...role('admin'), ...files }, 'setup');
  const admin = (line: string): Promise<string> =>
    runProgram(root, role('admin'), 'admin', ...line.split(' '), '--json');
  await admin('lane open sandbox');
  await admin(`tenant create ${TENANT} sandbox`);
  await admin(`tenant allow ${TENANT}`);
  const scopes = 'admit,read,export,verify,lifecycle,keys';
  const issued = await admin(`key issue ${TENANT} --review day --scopes ${scopes}`);
  const { api_key: apiKey } = JSON.parse(issued) as { api_key: string };
  return { tenantId: TENANT, apiKey, env: { LOG_VKEY: logVkey } };
}

/**
 * Runs `admin init` as docs/deploy.md describes, in a folder with the keys of the earlier release.
 */
async function init({ home, host, world }: Day): Promise<string> {
  const folder = join(home, 'svc');
  await mkdir(folder, { mode: 0o711 });
  const owner = new URL(host.running.superuserUrl);
  await writeFile(join(folder, 'owner-database-url'), owner.href, { mode: 0o600 });
  for (const key of ['aep', 'verifier', 'log']) {
    await copyFile(join(world.dir, `${key}.pem`), join(folder, `${key}-key.pem`));
  }
  const database = ['--database', `${owner.host}${owner.pathname}`];
  const line = ['init', folder, '--log-origin', world.origin, ...database];
  await runProgram(packageRoot, {}, 'admin', ...line);
  return folder;
}

/** Pins, for every reader, the keys that the log currently names. */
async function writePins({ admin, dir }: World): Promise<void> {
  await writeFile(join(dir, 'pins.json'), JSON.stringify(await admin(['pins'])));
}

async function restartEach(
  { world }: Day,
  names: readonly ProcessName[],
  env: Record<string, string> = {},
): Promise<void> {
  for (const name of names) await world.programs[name].restartWith([], env);
}

const names = (program: string): ProcessName[] =>
  PROCESSES.filter((name) => name === program || name.startsWith(`${program}-`));

export const STARTED = { log: /: started$/ };
/** A new private key in the operator's folder. */
function newKey({ home }: Day, name: string) {
  const file = join(home, `${name}-2.pem`);
  const key = createSigningKey(file);
  return { file, vkey: (origin: string) => formatVkey(nativeSha256, origin, key.publicKey) };
}

const publishedNote = async ({ store }: World): Promise<string> =>
  Buffer.from((await store.read('checkpoint')) ?? []).toString();

const signedSize = async (world: World): Promise<number> =>
  Number((await publishedNote(world)).split('\n')[1]);

/** Whether the published checkpoint has a signature by this key. */
async function signs(world: World, vkey: string): Promise<boolean> {
  const [name = '', hash = ''] = vkey.split('+');
  const note = await publishedNote(world);
  const signatures = note.split('\n').filter((line) => line.startsWith(`— ${name} `));
  return signatures.some((line) => {
    const keyHash = Buffer.from(line.split(' ')[2] ?? '', 'base64').subarray(0, 4);
    return keyHash.toString('hex') === hash;
  });
}

/** Activates a new key, restarts the programs that sign with it, and retires the previous key. */
async function rotate(day: Day, use: 'aep' | 'verifier', programs: ProcessName[]): Promise<void> {
  const { admin, database } = day.world;
  const { file } = newKey(day, use);
  const [before = ''] = await activeKeys(database.sql, use);
  await admin([`${use}-key`, 'activate', file]);
  await restartEach(day, programs, { [`${use.toUpperCase()}_KEY_FILE`]: file });
  await admin([`${use}-key`, 'retire', before, '--confirm', before]);
}

/** The script of docs/operate.md that moves old files, changed to move files of any age. */
function archiveScript(snapshot: string, archive: string): string {
  const page = readFileSync(join(packageRoot, 'docs/operate.md'), 'utf8');
  const script = /^cd \/srv\/public && .*?(?=^```)/ms.exec(page)?.[0];
  if (script === undefined) throw new Error('docs/operate.md has no archive script');
  return script
    .replaceAll('/srv/public', snapshot)
    .replaceAll('/archive/public', archive)
    .replace('-mtime +30 ', '');
}

export const STEPS: Step[] = [
  {
    name: 'upgrade while serving',
    signals: STARTED,
    isNeeded: true,
    play: async (day) => {
      const { world } = day;
      const folder = await init(day);
      await copyFile(join(folder, 'pins.json'), join(world.dir, 'pins.json'));
      // Restarts the workers before the last engine, as docs/deploy.md requires.
      const order: ProcessName[] = ['engine-1', ...names('worker'), 'engine-2'];
      for (const name of [...order, 'verifier', 'publisher', 'facade'] as const) {
        world.programs[name].root = packageRoot;
        await restartEach(day, [name], { LOG_VKEY: '' });
      }
    },
  },
  {
    name: 'scale out',
    signals: STARTED,
    play: async ({ world }) => {
      const more = (['worker-1', 'verifier', 'publisher'] as const).map((name) =>
        world.startAnother(name),
      );
      await Promise.all(more.map((program) => program.ready()));
      await sleep(3_000);
    },
  },
  {
    name: 'scale in',
    signals: { log: /: stopped$/ },
    play: async ({ world }) => {
      const ended = await world.stopAdded();
      if (ended.length > 0) throw new Error(ended.join(', '));
    },
  },
  {
    name: 'rolling restart',
    signals: STARTED,
    play: async (day) => restartEach(day, PROCESSES),
  },
  {
    name: 'the AEP key is rotated',
    signals: STARTED,
    play: (day) => rotate(day, 'aep', names('worker')),
  },
  {
    name: 'the verifier key is rotated',
    signals: STARTED,
    play: (day) => rotate(day, 'verifier', names('verifier')),
  },
  {
    name: 'the log key is rotated',
    signals: { log: /vkey that readers pin/ },
    play: async (day) => {
      const { world } = day;
      const key = newKey(day, 'log');
      const vkey = key.vkey(world.origin);
      await world.admin(['log-key', 'activate', vkey]);
      const size = await treeSize(world.database.sql);
      const isCovered = async (): Promise<boolean> => (await signedSize(world)) >= size;
      if (!(await until(isCovered, 30_000))) throw new Error('no checkpoint covers the activation');
      await writePins(world);
      await restartEach(day, ['facade']);
      await restartEach(day, ['publisher'], { LOG_KEY_FILE: key.file });
      await restartEach(day, names('engine'));
      const isSigned = (): Promise<boolean> => signs(world, vkey);
      if (!(await until(isSigned, 30_000))) throw new Error('the new key signs no checkpoint');
      await world.admin(['log-key', 'retire', world.logVkey, '--confirm', world.logVkey]);
      await writePins(world);
      await restartEach(day, ['facade']);
      world.logVkey = vkey;
    },
  },
  {
    name: 'a backup is made',
    signals: {},
    isNeeded: true,
    play: async ({ world, host }) => {
      await host.backUp();
      await world.admin(['backup', 'record']);
    },
  },
  {
    name: 'a payload is erased',
    signals: {},
    play: async ({ world, client }) => {
      const single = client.records.admitted.find((one) => !one.isErased && one.open === 0);
      if (single === undefined) throw new Error('there is no proof to erase');
      await client.acts.begin(new Erasure(client, single, world.eraseUrl));
      const status = async (): Promise<string> => {
        const url = `${world.publicUrl}/api/public/verify/proof/${single.proofId ?? ''}`;
        const body = (await (await fetch(url)).json()) as {
          verification?: { verification_status: string };
        };
        return body.verification?.verification_status ?? '';
      };
      const isPublic = async (): Promise<boolean> =>
        ['BACKEND_LOOKUP_REQUIRED', 'REVOKED'].includes(await status());
      if (!(await until(isPublic, 30_000))) throw new Error('the erasure is not public');
    },
  },
  {
    name: 'old files are archived',
    signals: {},
    play: async ({ world, home }) => {
      const archive = join(home, 'archive');
      await mkdir(archive);
      const script = archiveScript(world.snapshotDir, archive);
      await promisify(execFile)('bash', ['-c', script]);
    },
  },
];
