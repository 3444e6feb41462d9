import { Cluster, Redis } from 'ioredis';

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

/** One server, or a cluster when `urls` names several nodes separated by commas. */
export function openRedis(urls: string, { whenAway, onError }: RedisOptions): RedisClient {
  const failFast = whenAway === 'fail_fast';
  const perServer = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    maxRetriesPerRequest: failFast ? 1 : null,
    ...(failFast ? { commandTimeout: COMMAND_TIMEOUT_MS } : {}),
  };
  const nodes = urls.split(',');
  const [first = urls] = nodes;
  const client =
    nodes.length === 1
      ? new Redis(first, { ...perServer, retryStrategy: pause, enableOfflineQueue: !failFast })
      : openCluster(nodes, perServer, failFast);
  client.on('error', onError);
  return client;
}

/** Credentials and TLS are the cluster's, so they are read from its first node's URL. */
function openCluster(nodes: string[], perServer: object, failFast: boolean): Cluster {
  const urls = nodes.map((node) => new URL(node));
  const [first] = urls;
  return new Cluster(
    urls.map((url) => ({ host: url.hostname, port: Number(url.port || 6379) })),
    {
      clusterRetryStrategy: pause,
      enableOfflineQueue: !failFast,
      redisOptions: {
        ...perServer,
        ...(first?.username ? { username: decodeURIComponent(first.username) } : {}),
        ...(first?.password ? { password: decodeURIComponent(first.password) } : {}),
        ...(first?.protocol === 'rediss:' ? { tls: {} } : {}),
      },
    },
  );
}
