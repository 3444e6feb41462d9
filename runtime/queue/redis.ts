import { Cluster, Redis } from 'ioredis';
import type { Logger } from '../process/log.js';
import { readRedisAddress, type RedisAddress } from './redis-address.js';

export type RedisClient = Redis | Cluster;

export interface RedisOptions {
  /**
   * `fail_fast`, for callers whose own clients wait: commands fail after a second or two. `wait`, for
   * consumers: commands wait for the server to return.
   */
  whenAway: 'fail_fast' | 'wait';
  onError: (error: Error) => void;
}

const CONNECT_TIMEOUT_MS = 3_000;
const COMMAND_TIMEOUT_MS = 2_000;
const LONGEST_PAUSE_MS = 1_000;

const pause = (attempt: number): number =>
  Math.min(50 * 2 ** Math.min(attempt, 10), LONGEST_PAUSE_MS);

/** @param url in the form that `readRedisAddress` takes */
export function openRedis(url: string, { whenAway, onError }: RedisOptions): RedisClient {
  const address = readRedisAddress(url);
  if (typeof address === 'string') throw new Error(`REDIS_URL ${address}`);
  const failFast = whenAway === 'fail_fast';
  const perServer = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    maxRetriesPerRequest: failFast ? 1 : null,
    ...(failFast ? { commandTimeout: COMMAND_TIMEOUT_MS } : {}),
  };
  const enableOfflineQueue = !failFast;
  const client = address.isCluster
    ? openCluster(address, perServer, enableOfflineQueue)
    : new Redis(address.url, { ...perServer, retryStrategy: pause, enableOfflineQueue });
  client.on('error', (error: Error) => {
    const { command } = error as { command?: { name: string } };
    if (command?.name !== 'select') return onError(error);
    // ioredis would continue in database 0, which may be another installation's.
    client.disconnect(true);
    onError(new Error(`the server rejects the database number in REDIS_URL: ${error.message}`));
  });
  return client;
}

function openCluster(
  { nodes, isTls, username, password }: Extract<RedisAddress, { isCluster: true }>,
  perServer: object,
  enableOfflineQueue: boolean,
): Cluster {
  return new Cluster(nodes, {
    clusterRetryStrategy: pause,
    enableOfflineQueue,
    // Host names must not be resolved, because TLS certificates are checked against them.
    ...(isTls ? { dnsLookup: keepName } : {}),
    redisOptions: {
      ...perServer,
      ...(username === null ? {} : { username }),
      ...(password === null ? {} : { password }),
      ...(isTls ? { tls: {} } : {}),
    },
  });
}

const keepName = (name: string, done: (error: null, address: string) => void): void => {
  done(null, name);
};

/**
 * Warns after each connect when a server may evict keys, because the admission of an evicted job waits
 * for the requeue of stale admissions. Servers that reject INFO are skipped.
 */
export function warnOfEviction(client: RedisClient, log: Pick<Logger, 'warn'>): void {
  const look = async (): Promise<void> => {
    const servers = client instanceof Cluster ? client.nodes('master') : [client];
    for (const server of servers) {
      const policy = /^maxmemory_policy:(\S+)/m.exec(await server.info('memory'))?.[1];
      if (policy === undefined || policy === 'noeviction') continue;
      const { host, port } = server.options;
      log.warn(
        { host, port, policy },
        'Redis can evict jobs, which delays their admissions: set maxmemory-policy noeviction',
      );
    }
  };
  client.on('ready', () => void look().catch(() => undefined));
}
