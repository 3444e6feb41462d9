import { attempt } from '#protocol/errors';

const URL_PARTS = /^(postgres(?:ql)?:\/\/)(?=\S)([^/?\s]*@)?([^/?\s]*)(\S*)$/;

/**
 * A URL for each host of a PostgreSQL URL, because `URL` and pg reject several hosts. Empty for other text.
 */
export function urlPerHost(url: string): string[] {
  const [, scheme = '', login = '', hosts = '', rest = ''] = URL_PARTS.exec(url) ?? [];
  if (scheme === '') return [];
  return hosts.split(',').map((host) => scheme + login + host + rest);
}

export function isPostgresUrl(text: string): boolean {
  const urls = urlPerHost(text);
  return urls.length > 0 && urls.every(isUsable);
}

/** Rejects what the driver cannot use: an IPv6 address, and a login with a stray `%` or an unencoded `#`, `/` or `?`. */
function isUsable(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || url.hash !== '' || url.hostname.startsWith('[')) return false;
  if ((url.pathname + url.search).includes('@')) return false;
  return attempt(() => decodeURIComponent(url.username + url.password)) !== undefined;
}

/** The same hosts and database, with another login. */
export function withLogin(url: string, user: string, password: string): string {
  const login = `${encodeURIComponent(user)}:${encodeURIComponent(password)}@`;
  return url.replace(URL_PARTS, (_, scheme: string, _login, hosts: string, rest: string) =>
    scheme.concat(login, hosts, rest),
  );
}

/** Whether a SQLSTATE reports a rejected user, password or database. */
export const isLoginRejected = (sqlState: string): boolean => /^(28...|3D000)$/.test(sqlState);
