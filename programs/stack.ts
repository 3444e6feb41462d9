import { createHmac, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { formatVkey, parseVkey } from '#protocol/note';
import {
  opsPortOf,
  opsPortsOf,
  SETTINGS,
  settingNames,
  type DrainConfig,
  type StartConfig,
} from '#runtime/config';
import { createSigningKey, nativeSha256, isKeyUri, type Signer } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '#runtime/embedded/start';
import { createPrivateFile, makeFolder, makePublicFolder } from '#runtime/process/files';
import { probePorts } from '#runtime/http/server';
import type { ProgramContext } from '#runtime/process/lifecycle';
import { isBucket } from '#runtime/store/open';
import { type Supervised, supervise } from '#runtime/process/supervise';
import { bootstrap, type Bootstrapped } from './bootstrap.js';
import type { ProgramRole } from './migrate-database.js';

export type Stack = Awaited<ReturnType<typeof startStack>>;

type Database = Pick<Parameters<typeof bootstrap>[0], 'ownerUrl' | 'rolePassword'>;

const openKey = (where: string): Signer | Promise<Signer> =>
  isKeyUri(where) || existsSync(where) ? openSigner(where) : createSigningKey(where);

/** An external PostgreSQL server, with role passwords derived from a secret in DATA_DIR. */
async function externalDatabase(ownerUrl: string, dataDir: string): Promise<Database> {
  const file = join(dataDir, 'role-secret');
  if (!existsSync(file)) createPrivateFile(file, `${randomBytes(32).toString('base64url')}\n`);
  const secret = (await readFile(file, 'utf8')).trim();
  return {
    ownerUrl,
    rolePassword: (role) => createHmac('sha256', secret).update(role).digest('base64url'),
  };
}

/** Consecutive restarts of a crashing embedded database after which the stack stops. */
const MAX_REVIVALS = 5;
const REVIVAL_PAUSE_MS = 500;

/** Restarts the database on the same port after a crash: the programs' URLs stay valid. */
async function embeddedDatabase(config: StartConfig, ctx: ProgramContext): Promise<Database> {
  const { dataDir } = config;
  const first = await startEmbeddedPostgres({ dataDir, log: ctx.log, signal: ctx.signal });
  let current: EmbeddedPostgres = first;

  async function keepAlive(): Promise<void> {
    for (let revivals = 0; ; revivals += 1) {
      const began = performance.now();
      const { expected, code, signal } = await current.exited;
      if (expected || ctx.signal.aborted) return;
      if (performance.now() - began > 60_000) revivals = 0;
      ctx.log.error({ code, signal }, 'embedded Postgres exited and will be restarted');
      if (revivals >= MAX_REVIVALS) throw new Error('embedded Postgres exited too often');
      await sleep(REVIVAL_PAUSE_MS);
      current = await startEmbeddedPostgres({
        dataDir,
        port: first.port,
        log: ctx.log,
        signal: ctx.signal,
      });
      if (ctx.signal.aborted) return;
    }
  }

  const over = keepAlive().catch((error: unknown) => ctx.fail(error));
  ctx.onStop(async () => {
    await current.stop();
    await over;
    await current.stop();
  });
  return { ownerUrl: first.superuserUrl, rolePassword: (role) => first.rolePassword(role) };
}

type Environment = Record<string, string>;

/** The order determines the ports of the operations listeners. */
const PROGRAMS = ['engine', 'worker', 'verifier', 'publisher', 'facade'] as const;
export type ProgramName = (typeof PROGRAMS)[number];

/** Each program's environment: only its own settings and secrets. */
function environments(
  config: StartConfig,
  database: Bootstrapped,
): Record<ProgramName, Environment> {
  const inherited = (isWanted: (name: string) => boolean): Environment =>
    Object.fromEntries(
      Object.entries(config.env).filter(
        (entry): entry is [string, string] => isWanted(entry[0]) && entry[1] !== undefined,
      ),
    );
  /** The child's own settings, the settings of this program that the child reads too, and variables of libraries. */
  const child = (name: ProgramName, own: Environment): Environment => {
    const isTraced = 'OTEL_EXPORTER_OTLP_ENDPOINT' in SETTINGS[name];
    const isWanted = (variable: string): boolean =>
      variable === 'NODE_EXTRA_CA_CERTS' ||
      (isTraced && variable.startsWith('OTEL_EXPORTER_OTLP_')) ||
      (Object.hasOwn(SETTINGS[name], variable) && Object.hasOwn(SETTINGS.start, variable));
    const ops = opsPortOf(config.ops, PROGRAMS.indexOf(name));
    return { ...inherited(isWanted), ...ops, ...own };
  };
  const role = (name: ProgramRole): Environment => ({ DATABASE_URL: database.roleUrl(name) });
  const queue = config.redisUrl !== null && { REDIS_URL: config.redisUrl };
  const place = config.snapshotPlace;
  const settings = settingNames();
  /** SDKs of object stores and PKCS #11 modules read many variables, such as HOME or SOFTHSM2_CONF. */
  const outside = inherited((name) => !settings.has(name));
  const snapshot: Environment = isBucket(place)
    ? { SNAPSHOT_STORE: place, ...outside }
    : { SNAPSHOT_DIR: place };
  const log = {
    LOG_ORIGIN: config.logOrigin,
    ...(config.databaseUrl === null && { EMBEDDED_DATABASE: 'yes' }),
  };
  return {
    engine: child('engine', { ...role('svc_engine'), ...queue }),
    worker: child('worker', {
      ...role('svc_worker'),
      ...queue,
      AEP_KEY_FILE: config.aepKeyFile,
    }),
    verifier: child('verifier', {
      ...role('svc_verifier'),
      ...log,
      ...(isKeyUri(config.verifierKeyFile) && outside),
      VERIFIER_KEY_FILE: config.verifierKeyFile,
    }),
    publisher: child('publisher', {
      ...role('svc_publisher'),
      ...snapshot,
      ...log,
      ...(isKeyUri(config.logKeyFile) && outside),
      LOG_KEY_FILE: config.logKeyFile,
    }),
    facade: child('facade', { ...snapshot, PINS_FILE: join(config.dataDir, 'pins.json') }),
  };
}

/** Drain time of programs whose drain time is not configurable. */
const CHILD_DRAIN_MS = 40_000;
/** Grace period after a program's own shutdown timeout before it is killed. */
const GIVING_UP_MS = 2_000;

const childGraceMs = ({ delayMs, deadlineMs }: DrainConfig): number =>
  delayMs + (deadlineMs ?? CHILD_DRAIN_MS) + GIVING_UP_MS;

const SNAPSHOT_MS = 30_000;

/** Waits for a snapshot: without a snapshot the public API cannot even report that a proof does not exist. */
async function snapshotIsServed(publicUrl: string, signal: AbortSignal): Promise<void> {
  const absent = `${publicUrl}/api/public/verify/proof/${'0'.repeat(32)}`;
  const deadline = Date.now() + SNAPSHOT_MS;
  for (;;) {
    const status = await fetch(absent, { signal }).then(
      async (response) => {
        await response.arrayBuffer();
        return response.status;
      },
      () => 0,
    );
    if (status === 404) return;
    signal.throwIfAborted();
    if (Date.now() > deadline) {
      throw new Error(
        `the public API serves no snapshot: ${status === 0 ? 'no response' : `status ${status}`}`,
      );
    }
    await sleep(50);
  }
}

function urlOf(name: string, url: string | undefined): string {
  if (url === undefined) throw new Error(`${name} did not report its URL`);
  return url;
}

/** Creates the keys and the database of a stack, except those that exist. */
export async function prepareStack(
  config: StartConfig,
  database: Database,
  { log, signal }: Pick<ProgramContext, 'log' | 'signal'>,
) {
  const aep = await openKey(config.aepKeyFile);
  const verifier = await openKey(config.verifierKeyFile);
  const logKey = await openKey(config.logKeyFile);
  const logVkey = formatVkey(nativeSha256, config.logOrigin, logKey.publicKey);
  const keys = {
    aep: aep.publicKey,
    verifier: verifier.publicKey,
    log: parseVkey(logVkey, nativeSha256),
  };
  const { dataDir } = config;
  const admitted = await bootstrap({ ...database, dataDir, keys, openSandbox: true, log, signal });
  return { ...admitted, env: environments(config, admitted), aepPublicKey: keys.aep, logVkey };
}

/**
 * Starts everything, from the database to a public API server with a snapshot, and registers
 * cleanups in reverse order with the program's context.
 */
export async function startStack(config: StartConfig, ctx: ProgramContext) {
  const { log } = ctx;
  const began = performance.now();
  const step = (what: string): void => {
    log.info({ ms: Math.round(performance.now() - began) }, what);
    ctx.signal.throwIfAborted();
  };

  const host = config.listenAddress;
  await probePorts([
    { host, port: config.enginePort, portVariable: 'ENGINE_PORT' },
    { host, port: config.publicPort, portVariable: 'PUBLIC_PORT' },
    ...opsPortsOf(config.ops, PROGRAMS.length),
  ]);
  await makeFolder('DATA_DIR', config.dataDir);
  if (!isBucket(config.snapshotPlace))
    await makeFolder('SNAPSHOT_DIR', config.snapshotPlace, makePublicFolder);
  const database =
    config.databaseUrl === null
      ? await embeddedDatabase(config, ctx)
      : await externalDatabase(config.databaseUrl, config.dataDir);
  step('database started');

  const { env, tenantId, apiKey, aepPublicKey, logVkey } = await prepareStack(
    config,
    database,
    ctx,
  );
  step('database set up');

  // Programs start together and stop in reverse order, so that no program stops before its clients.
  const start = (name: ProgramName, portVariable?: string): Supervised => {
    const child = supervise(
      {
        name,
        file: join(import.meta.dirname, `${name}.js`),
        env: env[name],
        ...(portVariable === undefined ? {} : { portVariable }),
      },
      { log, graceMs: childGraceMs(config.drain) },
    );
    ctx.onStop(() => child.stop());
    return child;
  };
  const facade = start('facade', 'PUBLIC_PORT');
  const publisher = start('publisher');
  const verifier = start('verifier');
  const worker = start('worker');
  // Exports contain the URL of the public API. With port 0, the URL is known only once the public API
  // listens, so the engine starts afterwards.
  const engineReady = facade.ready.then((url) => {
    ctx.signal.throwIfAborted();
    env.engine['PUBLIC_URL'] = config.publicUrl ?? urlOf('facade', url);
    return start('engine', 'ENGINE_PORT').ready;
  });
  const [publicUrl, engineUrl] = await Promise.all([
    facade.ready,
    engineReady,
    publisher.ready,
    verifier.ready,
    worker.ready,
  ]);
  step('all programs started');

  const stack = {
    engineUrl: urlOf('engine', engineUrl),
    publicUrl: urlOf('facade', publicUrl),
    tenantId,
    apiKey,
    aepPublicKey,
    logVkey,
  };
  await snapshotIsServed(stack.publicUrl, ctx.signal);
  step('the public API serves a snapshot');
  return stack;
}
