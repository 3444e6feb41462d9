import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readiness } from '#bench/harness/public-api';
import type { ProgramName } from '#programs/stack';
import { bootstrap } from '#programs/bootstrap';
import { formatVkey, parseVkey } from '#protocol/note';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { isConnectionLost } from '#sql/db/errors';
import { logger } from '#runtime/process/log';
import { OperatorError } from '#runtime/process/operator-error';
import { openStore } from '#runtime/store/open';
import { freePort } from '../fixtures/free-port.js';
import { adminWith, done } from '../fixtures/admin.js';
import { Cluster } from './cluster.js';
import { openDevices } from './devices.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { mountSmallDisk, type SmallDisk } from './mount.js';
import { until } from './pace.js';
import { Program } from './program.js';
import { TestRedis } from '../fixtures/redis.js';

export const PROCESSES = [
  'engine-1',
  'engine-2',
  'worker-1',
  'worker-2',
  'verifier',
  'publisher',
  'facade',
] as const;
export type ProcessName = (typeof PROCESSES)[number];
const QUEUING = ['engine-1', 'engine-2', 'worker-1', 'worker-2'] as const;
const LINKED = [...QUEUING, 'verifier', 'publisher', 'admin'] as const;

const LOG_ORIGIN = 'faults.example/log';
const DATABASE_MB = 400;
/** The publisher keeps superseded files for an hour, and writes about 60 MB in the 30 minutes of a run. */
const SNAPSHOT_MB = 256;

export type World = Awaited<ReturnType<typeof startWorld>>;

/**
 * The driver reports a broken connection even without a waiting query. Programs survive this
 * (`runtime/process/lifecycle.ts`), and admin commands run in this process.
 */
function surviveLostConnections(): void {
  process.on('unhandledRejection', (error) => {
    if (!isConnectionLost(error)) throw error;
  });
}

/** Runs an entry point, whose resources are closed on a signal. The exit code is 1 when it fails. */
export async function runEntryPoint(main: () => Promise<void>): Promise<never> {
  const stop = (): void => {
    void closeAll().finally(() => process.exit(1));
  };
  process.once('SIGTERM', stop).once('SIGINT', stop);
  surviveLostConnections();
  await main().catch((error: unknown) => {
    console.error(error instanceof OperatorError ? error.message : error);
    process.exitCode = 1;
  });
  await closeAll();
  // A half-open connection of a fault must not keep the process alive.
  process.exit();
}

const open = new Map<() => Promise<void>, () => void>();

/** Ends all processes without draining, unmounts all disks and deletes all files. */
async function closeAll(): Promise<void> {
  await Promise.allSettled(
    [...open].map(([close, kill]) => {
      kill();
      return close();
    }),
  );
}

export interface WorldOptions {
  withDisks: boolean;
  /** Additional settings of the stack's Postgres. */
  settings?: Record<string, string>;
  /** A Redis for the queue, which replaces the world's own; null for the queue in Postgres. */
  redisUrl?: string | null | undefined;
  /** Puts the snapshot into a bucket, and two keys into an HSM. */
  withDevices?: boolean;
  /** Runs each program twice. */
  withReplicas?: boolean;
}

/** The separate programs as they run in production, over a Postgres and a Redis of their own. */
export async function startWorld(options: WorldOptions) {
  const { withDisks, settings = {}, redisUrl, withDevices, withReplicas } = options;
  const dir = await mkdtemp(join(tmpdir(), 'svc-faults-'));
  // The account that runs Postgres needs access when the tests run as root.
  await chmod(dir, 0o755);
  const stops: (() => Promise<unknown>)[] = [() => rm(dir, { recursive: true, force: true })];
  const close = async (): Promise<void> => {
    open.delete(close);
    const failures: unknown[] = [];
    // Stops the remaining resources even when one of them fails to stop.
    for (const stop of stops.splice(0).reverse()) {
      await stop().catch((error: unknown) => failures.push(error));
    }
    if (failures.length > 0) throw new AggregateError(failures, 'some resources were not closed');
  };
  const started: Program[] = [];
  const servers: { signal(signal: 'SIGCONT'): void }[] = [];
  open.set(close, () => {
    for (const program of started) void program.kill();
    // A process stopped by SIGSTOP does not handle the signal to exit.
    for (const server of servers) server.signal('SIGCONT');
  });
  try {
    const mount = async (name: string, megabytes: number): Promise<SmallDisk | string> => {
      const path = join(dir, name);
      await mkdir(path, { mode: 0o755 });
      const disk = withDisks ? await mountSmallDisk(path, megabytes) : 'small disks are disabled';
      if (typeof disk !== 'string') stops.push(() => disk.close());
      return disk;
    };
    const disks = both(await mount('database', DATABASE_MB), await mount('snapshot', SNAPSHOT_MB));
    const snapshotDir = join(dir, 'snapshot', 'public');
    await mkdir(snapshotDir, { mode: 0o755 });

    const database = await Cluster.start(join(dir, 'database', 'registry'), settings);
    servers.push(database);
    stops.push(() => database.close());
    const redis = redisUrl === undefined ? await TestRedis.start() : null;
    stops.push(async () => redis?.close());

    const keyFile = (name: string): string => join(dir, `${name}.pem`);
    const devices = withDevices === true ? await openDevices(dir, stops) : null;
    const [logKeyFile, verifierKeyFile] = devices?.keyUris ?? [keyFile('log'), keyFile('verifier')];
    const snapshotEnv = devices?.snapshotEnv ?? { SNAPSHOT_DIR: snapshotDir };
    const names = devices === null ? (['aep', 'verifier', 'log'] as const) : (['aep'] as const);
    for (const name of names) createSigningKey(keyFile(name));
    const keys = {
      aep: await openSigner(keyFile('aep')),
      verifier: await openSigner(verifierKeyFile),
      log: await openSigner(logKeyFile),
    };
    const logVkey = formatVkey(nativeSha256, LOG_ORIGIN, keys.log.publicKey);
    const pinsFile = join(dir, 'pins.json');
    const { tenantId, apiKey } = await bootstrap({
      ownerUrl: database.running.superuserUrl,
      dataDir: dir,
      rolePassword: (role) => database.running.rolePassword(role),
      keys: {
        aep: keys.aep.publicKey,
        verifier: keys.verifier.publicKey,
        log: parseVkey(logVkey),
      },
      openSandbox: true,
      log: logger('faults', 'warn'),
    });
    const linksTo = async <Name extends string>(
      port: number,
      protocol: 'postgres' | 'other',
      names: readonly Name[],
    ): Promise<Record<Name, TcpProxy>> => {
      const opened = names.map(async (name) => {
        const link = await TcpProxy.open(port, protocol);
        stops.push(() => link.close());
        return [name, link] as const;
      });
      return Object.fromEntries(await Promise.all(opened)) as Record<Name, TcpProxy>;
    };
    const links = await linksTo(database.running.port, 'postgres', LINKED);
    const queueLinks = await linksTo(redis?.port ?? 0, 'other', QUEUING);
    const databaseUrl = (
      process: keyof typeof links,
      program: ProgramName | 'admin' | 'erase',
    ): string => links[process].urlFor(database.running.urlFor(`svc_${program}`));
    const queueEnv = (process: keyof typeof queueLinks): Record<string, string> =>
      redisUrl === null
        ? {}
        : { REDIS_URL: redisUrl ?? `redis://127.0.0.1:${String(queueLinks[process].port)}` };
    const enginePorts = { 'engine-1': await freePort(), 'engine-2': await freePort() };
    const publicPort = await freePort();
    const publicUrl = `http://127.0.0.1:${String(publicPort)}`;
    const queuing = (process: (typeof QUEUING)[number], program: 'engine' | 'worker') => ({
      DATABASE_URL: databaseUrl(process, program),
      ...queueEnv(process),
    });
    const worker = (process: 'worker-1' | 'worker-2') => ({
      ...queuing(process, 'worker'),
      AEP_KEY_FILE: keyFile('aep'),
    });
    const engine = (process: 'engine-1' | 'engine-2') => ({
      ...queuing(process, 'engine'),
      ENGINE_PORT: String(enginePorts[process]),
      PUBLIC_URL: publicUrl,
    });
    const environments: Record<ProcessName, Record<string, string>> = {
      'engine-1': engine('engine-1'),
      'engine-2': engine('engine-2'),
      'worker-1': worker('worker-1'),
      'worker-2': worker('worker-2'),
      verifier: {
        DATABASE_URL: databaseUrl('verifier', 'verifier'),
        ...devices?.hsmEnv,
        VERIFIER_KEY_FILE: verifierKeyFile,
        LOG_ORIGIN,
      },
      publisher: {
        DATABASE_URL: databaseUrl('publisher', 'publisher'),
        ...devices?.hsmEnv,
        ...snapshotEnv,
        LOG_KEY_FILE: logKeyFile,
        LOG_ORIGIN,
      },
      facade: { PINS_FILE: pinsFile, ...snapshotEnv, PUBLIC_PORT: String(publicPort) },
    };
    const opsPorts = {} as Record<ProcessName, number>;
    for (const process of PROCESSES) opsPorts[process] = await freePort();
    const startProcess = (process: ProcessName, of: string = process, own = {}): Program => {
      const name = process.replace(/-\d$/, '') as ProgramName;
      const program = new Program(
        name,
        {
          // A second process of a program takes any free port.
          OPS_PORT: String(of === process ? opsPorts[process] : 0),
          ...environments[process],
          ...own,
        },
        join(dir, `${of}.log`),
      );
      started.push(program);
      stops.push(() => program.stop());
      return program;
    };
    const others: Program[] = [];
    const programs = Object.fromEntries(
      PROCESSES.toReversed().map((process) => [process, startProcess(process)]),
    ) as Record<ProcessName, Program>;
    const replicas =
      withReplicas === true
        ? [
            startProcess('verifier', 'verifier-2'),
            startProcess('publisher', 'publisher-2'),
            startProcess('facade', 'facade-2', { PUBLIC_PORT: String(await freePort()) }),
          ]
        : [];
    const all = [...Object.values(programs), ...replicas];
    await Promise.all(all.map((program) => program.ready()));
    await untilPublished(publicUrl);
    return {
      database,
      /** Null when the queue is not in Redis. */
      redis,
      programs,
      /** Ports of the operations listeners, by process. */
      opsPorts,
      /** Second processes of the programs that a world has once by default. */
      replicas,
      /** The bucket and the HSM. */
      devices,
      store: await openStore(snapshotEnv.SNAPSHOT_STORE ?? snapshotDir),
      /** Proxies to Postgres, one for each process and one for the admin program. */
      links,
      /** Proxies to the Redis that `redis` describes. */
      queueLinks,
      /** The disks, or the reason why there are none. */
      disks,
      engineUrls: Object.values(enginePorts).map((port) => `http://127.0.0.1:${String(port)}`),
      publicUrl,
      tenantId,
      apiKey,
      /** The folder with the output of each program. */
      dir,
      snapshotDir,
      eraseUrl: databaseUrl('admin', 'erase'),
      adminUrl: databaseUrl('admin', 'admin'),
      /** Runs an admin command. Throws when the command fails. */
      admin: (line: string[]) =>
        done(adminWith({ DATABASE_URL: databaseUrl('admin', 'admin') })(...line, '--json')),
      fsckEnv: { PINS_FILE: pinsFile, ...snapshotEnv, DATA_DIR: dir },
      origin: LOG_ORIGIN,
      logVkey,
      /** Starts a second process of a program, with the same settings. */
      startAnother: (process: ProcessName): Program => {
        const own = { ...programs[process].env, OPS_PORT: '0' };
        const other = startProcess(process, `another-${process}`, own);
        others.push(other);
        return other;
      },
      /** Stops the second processes; returns the exits that happened before. */
      stopAdded: async (): Promise<string[]> => {
        const before = others.splice(0);
        await Promise.all(before.map((other) => other.stop()));
        return before.flatMap(({ ended }) => ended);
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function both(
  database: SmallDisk | string,
  snapshot: SmallDisk | string,
): { database: SmallDisk; snapshot: SmallDisk } | string {
  if (typeof database === 'string') return database;
  return typeof snapshot === 'string' ? snapshot : { database, snapshot };
}

async function untilPublished(publicUrl: string): Promise<void> {
  const isPublished = (): Promise<boolean> =>
    readiness(publicUrl).then(
      () => true,
      () => false,
    );
  if (!(await until(isPublished, 30_000))) throw new Error('no snapshot was published');
}
