import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { equalBytes } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { type LogVkey, parseVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto/node';
import { withPool } from '#runtime/postgres/connect';
import { isPostgresUrl, urlPerHost, withLogin } from '#runtime/postgres/hosts';
import { logger } from '#runtime/process/log';
import { OperatorError } from '#runtime/process/operator-error';
import { mapStartupDbErrors } from '#sql/db/errors';
import { logKeysIn } from '#sql/lifecycle/log-keys';
import { assertDatabase } from '../database.js';
import { prepareAdmissions } from '../shipped-policy.js';
import { pinning } from '../trust.js';
import { activeKeys, readPublicKey } from './signing-keys.js';
import { oneOf, readOperatorsFile, UsageError, type AddCommand } from './command.js';
import { makeSecretFiles } from './secret-files.js';

interface InitOptions {
  logOrigin?: string;
  database?: string;
  queue: string;
  only?: string;
}

const ADDRESS = String.raw`[A-Za-z0-9.-]+:\d{1,5}`;
const DATABASE = new RegExp(`^postgres://${ADDRESS}(,${ADDRESS})*/[a-z][a-z0-9_]{0,62}$`);

export function addInitCommand(add: AddCommand): void {
  add(
    'init <folder>',
    'Create the missing keys and passwords of an installation in a folder, migrate its database, and activate policy and keys; repeat the command for an upgrade',
    '/etc/svc --log-origin log.example.org/2026 --database db.example.org:5432/svc',
    async (_admin, folder: string, options: InitOptions) => {
      const only = options.only === undefined ? null : oneOf(options.only, ['files', 'database']);
      const created = only === 'database' ? null : await createFiles(folder, options);
      const database = only === 'files' ? null : await prepareDatabase(folder);
      const next =
        only === 'files'
          ? `init ${folder} --only database`
          : 'start the programs, then create a tenant: docs/production.md';
      return { ...(created && { created }), ...database, next };
    },
  )
    .option('--log-origin <name>', 'permanent name of the log, in your own domain')
    .option(
      '--database <host:port/name>',
      'the database in the URLs that this command creates, as db1:5432/svc, or db1:5432,db2:5432/svc for a primary and its standbys; by default that of owner-database-url, or postgres:5432/svc',
    )
    .option(
      '--queue <host:port>',
      'Redis or Valkey in the URL that this command creates',
      'valkey:6379',
    )
    .option(
      '--only <files|database>',
      'prepare only the files, which need no database, or only the database',
    );
}

async function createFiles(
  folder: string,
  { logOrigin = '', database, queue }: InitOptions,
): Promise<string[]> {
  if (!/^[^\s+]{1,200}$/.test(logOrigin) || /^svc\.local/.test(logOrigin))
    throw new UsageError(
      'give the log a name under your own domain, such as --log-origin log.example.org/2026',
    );
  const given = `postgres://${database ?? 'postgres:5432/svc'}`;
  if (!DATABASE.test(given) || !isPostgresUrl(given))
    throw new UsageError('--database must be host:port/name, or host:port,host:port/name');
  if (!new RegExp(`^${ADDRESS}$`).test(queue) || !URL.canParse(`redis://${queue}`))
    throw new UsageError('--queue must be host:port');
  const file = join(folder, 'owner-database-url');
  const own = existsSync(file) ? await urlIn(file) : '';
  // A replaced URL keeps the hosts and the sslmode of the installation. A URL of a Unix socket has no host.
  const isKept = database === undefined && isPostgresUrl(withLogin(own, 'svc', ''));
  const databaseUrl = isKept ? own : given;
  return makeSecretFiles(folder, { logOrigin, databaseUrl, queue });
}

/** Migrates as the owner. Activates policy and keys as `svc_admin` if the folder has that role's URL. */
async function prepareDatabase(folder: string) {
  // Imports the queue's library on demand, because loading it is a third of the start time of a command.
  const { migrateDatabase, PROGRAM_ROLES } = await import('../migrate-database.js');
  const file = (name: string): string => join(folder, name);
  const owner = await urlIn(file('owner-database-url'));
  const passwords = new Map<string, string>();
  for (const role of PROGRAM_ROLES) {
    const path = file(`${role.replace('svc_', '')}-database-url`);
    if (existsSync(path)) passwords.set(role, passwordOf(role, path, await urlIn(path)));
  }
  await requireUnusedRoles(owner, passwords);
  const migrations = await migrateDatabase(owner, (role) => passwords.get(role));
  const done = { migrations, roles: [...passwords.keys()] };
  if (!passwords.has('svc_admin')) return done;
  const vkey = (await readOperatorsFile(file('log.vkey'))).toString().trim();
  const log = pinning(file('log.vkey'), () => parseVkey(vkey, nativeSha256));
  const adminUrl = await urlIn(file('admin-database-url'));
  return withPool(adminUrl, POOL, async (sql) => {
    await assertDatabase(sql, 'admin');
    const inactive: string[] = [];
    /**
     * The key to activate, or null if a key is active: `init` recreates missing files, so after a
     * rotation this file may have an unused key.
     */
    const firstKey = async (use: 'aep' | 'verifier'): Promise<Uint8Array | null> => {
      const name = `${use}-public-key.pem`;
      const key = await readPublicKey(file(name));
      const active = await activeKeys(sql, use);
      if (active.length === 0) return key;
      if (!active.includes(jwkThumbprint(nativeSha256, key))) inactive.push(name);
      return null;
    };
    const keys = { aep: await firstKey('aep'), verifier: await firstKey('verifier'), log };
    await prepareAdmissions(sql, keys, logger('init', 'warn'));
    const isActive = ({ publicKey, maxSize }: LogVkey): boolean =>
      maxSize === undefined && equalBytes(publicKey, log.publicKey);
    if (!(await logKeysIn(sql)).some(isActive)) inactive.push('log.vkey');
    return { ...done, log_vkey: vkey, inactive };
  });
}

const POOL = { application: 'svc-init', max: 1 };

/**
 * Roles belong to the server, not to a database: for a second installation on one server, new passwords
 * would lock out the programs of the first.
 */
async function requireUnusedRoles(owner: string, passwords: Map<string, string>): Promise<void> {
  const used = await withPool(owner, POOL, (sql) =>
    mapStartupDbErrors(
      () => sql<{ role: string; database: string }[]>`
      select distinct on (r.rolname) r.rolname as role, d.datname as database
      from pg_shdepend s join pg_database d on d.oid = s.dbid join pg_roles r on r.oid = s.refobjid
      where s.refclassid = 'pg_authid'::regclass and r.rolcanlogin
        and r.rolname = any(${[...passwords.keys()]}) and d.datname <> current_database()
        and to_regclass('public.svc_migration') is null`,
    ),
  );
  for (const { role, database } of used) {
    if (await isRejected(withLogin(owner, role, passwords.get(role) ?? ''))) {
      throw new OperatorError(
        `a new password of ${role} would lock out the installation in the database ${database} of this server: each installation needs its own PostgreSQL server`,
      );
    }
  }
}

const isRejected = (url: string): Promise<boolean> =>
  withPool(url, POOL, (sql) => sql`select 1`).then(
    () => false,
    (error: unknown) => (error as { code?: unknown }).code === '28P01',
  );

async function urlIn(path: string): Promise<string> {
  const text = (await readOperatorsFile(path)).toString().trim();
  if (isPostgresUrl(text)) return text;
  throw new OperatorError(
    `${path} does not hold a URL like postgres://role:password@host:5432/database`,
  );
}

function passwordOf(role: string, path: string, url: string): string {
  const { username, password } = new URL(urlPerHost(url)[0] ?? '');
  if (decodeURIComponent(username) !== role)
    throw new OperatorError(`${path} has a URL of ${username}, not of ${role}`);
  if (password === '') throw new OperatorError(`${path} has a URL without a password`);
  return decodeURIComponent(password);
}
