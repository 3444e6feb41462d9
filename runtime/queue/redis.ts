import { Cluster, Redis } from 'ioredis';
import type { Logger } from '../process/log.js';
import { readRedisAddress, type RedisAddress } from './redis-address.js';

export type RedisClient = Redis | Cluster;

export interface RedisOptions {
  /**
   * `fail_fast`: a command is answered within a second or two or it fails, for callers that have a
   * client of their own waiting. `wait`: commands wait for the server to come back, as a consumer should.
   */
  whenAway: 'fail_fast' | 'wait';
  onError: (error: Error) => void;
}

const CONNECT_TIMEOUT_MS = 3_000;
const COMMAND_TIMEOUT_MS = 2_000;
const LONGEST_PAUSE_MS = 1_000;

const pause = (attempt: number): number =>
  Math.min(50 * 2 ** Math.min(attempt, 10), LONGEST_PAUSE_MS);

/** @param url as `readRedisAddress` takes it */
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
  client.on('error', onError);
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
    // Certificates are checked against the names that the nodes go by, so those are kept.
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
 * Warns, each time it connects, of servers that throw keys away when memory is short: jobs would
 * vanish, and be found by the sweeper alone. What cannot be asked is not told.
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
        'Redis may throw jobs away: set maxmemory-policy noeviction',
      );
    }
  };
  client.on('ready', () => void look().catch(() => undefined));
}
