import { attempt } from '#protocol/errors';

/** The servers that REDIS_URL names. */
export type RedisAddress =
  | { isCluster: false; url: string }
  | {
      isCluster: true;
      /** Some nodes of the cluster; the client discovers the others. */
      nodes: { host: string; port: number }[];
      isTls: boolean;
      username: string | null;
      password: string | null;
    };

const REDIS_MESSAGE =
  'must be a URL like redis://host:6379, with a percent-encoded user and password; for a cluster, redis+cluster://host:6379 or several nodes separated by commas';

/**
 * Parses `redis://` (or `rediss://` for TLS) with one server or a comma-separated list of cluster
 * nodes, and `redis+cluster://` with one address for a whole cluster.
 *
 * @returns the address, or a description of the problem, which does not quote the URL, because the URL
 * holds a password
 */
export function readRedisAddress(text: string): RedisAddress | string {
  const parts = text.split(',');
  const urls = parts.flatMap((part) => (URL.canParse(part) ? [new URL(part)] : []));
  const [first] = urls;
  const scheme = /^(rediss?)(\+cluster)?:$/.exec(first?.protocol ?? '');
  if (first === undefined || scheme === null || urls.length < parts.length) return REDIS_MESSAGE;
  if (/[\s#]/.test(text) || urls.some(({ hostname }) => hostname === '')) return REDIS_MESSAGE;
  const [username, password] = [first.username, first.password].map((text) =>
    text === '' ? null : attempt(() => decodeURIComponent(text)),
  );
  if (username === undefined || password === undefined) return REDIS_MESSAGE;
  if (parts.length === 1 && scheme[2] === undefined) {
    const isDatabase = /^\/?\d*$/.test(first.pathname);
    return isDatabase
      ? { isCluster: false, url: text }
      : 'must end with a database number, or have no path';
  }

  const others = urls.slice(1);
  if (others.some(({ protocol }) => protocol !== first.protocol)) {
    return 'must use one scheme for all nodes of a cluster: with TLS (rediss) or without';
  }
  const differs = ({ username, password }: URL): boolean =>
    username + password !== '' && (username !== first.username || password !== first.password);
  if (others.some(differs)) {
    return 'must have one user and password per cluster: set them on the first node';
  }
  if (urls.some(({ pathname, search }) => !/^\/?0?$/.test(pathname) || search !== '')) {
    return 'must not have a database number or options, for a cluster';
  }
  return {
    isCluster: true,
    nodes: urls.map(({ hostname, port }) => ({
      host: hostname.replace(/^\[|\]$/g, ''),
      port: Number(port || 6379),
    })),
    isTls: scheme[1] === 'rediss',
    username,
    password,
  };
}
