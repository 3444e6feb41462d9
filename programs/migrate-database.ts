import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto';
import { withPool } from '#runtime/postgres/connect';
import { OperatorError } from '#runtime/process/operator-error';
import { BOARD_ROLE, grantQueueAccess, migrateQueues } from '#runtime/queue/backend';
import type { Db } from '#sql/db/transaction';
import { migrate } from '#sql/schema/migrate';
import { MIGRATIONS } from './database.js';

export const PROGRAM_ROLES = [
  'svc_engine',
  'svc_worker',
  'svc_verifier',
  'svc_publisher',
  'svc_admin',
  'svc_erase',
  'svc_fsck',
  BOARD_ROLE,
] as const;

export type ProgramRole = (typeof PROGRAM_ROLES)[number];

const ADVISORY_LOCK = 7_301_004;

/**
 * Migrates a database as its owner: the registry's schema, and the queue's if it is in Postgres too. Roles with a
 * password in `passwordFor` may log in afterwards. A migration can be slow or wait for locks; `signal` cancels it, and
 * the next run continues.
 */
export async function migrateDatabase(
  ownerUrl: string,
  passwordFor?: (role: ProgramRole) => string | undefined,
  signal?: AbortSignal,
): Promise<string[]> {
  const pool = {
    application: 'migrate',
    max: 2,
    statementTimeoutMs: 0,
    lockTimeoutMs: 0,
    ...(signal && { signal }),
  };
  return withPool(ownerUrl, pool, async (sql) => {
    const applied = await migrate(sql, MIGRATIONS);
    const connection = await sql.reserve();
    try {
      // PostgreSQL rejects concurrent changes of a role, or of the privileges on a table.
      await connection`select pg_advisory_lock(${ADVISORY_LOCK})`;
      await migrateQueues(ownerUrl, signal);
      await grantQueueAccess(ownerUrl);
      for (const role of PROGRAM_ROLES) {
        const password = passwordFor?.(role);
        if (password === undefined) continue;
        await connection
          .unsafe(`alter role ${role} login password '${scramVerifier(password)}'`)
          .catch((error: unknown) => requireAdminOption(error, connection));
      }
    } finally {
      connection.destroy();
    }
    return applied;
  });
}

/** Since PostgreSQL 16 a creator of roles administers only its own roles; a move from an older version loses which. */
async function requireAdminOption(cause: unknown, connection: Db): Promise<never> {
  const { code, message } = cause as Error & { code?: unknown };
  if (code !== '42501') throw cause;
  const [{ owner }] = await connection<
    [{ owner: string }]
  >`select quote_ident(current_user) as owner`;
  throw new OperatorError(
    `${owner} may not set the passwords of the programs' roles (${message}). Run as a superuser of PostgreSQL: grant ${PROGRAM_ROLES.join(', ')} to ${owner} with admin true, inherit false, set false`,
    { cause },
  );
}

const SCRAM_ITERATIONS = 4_096;

/** The SCRAM verifier that PostgreSQL stores (RFC 5803), because statements with a password may be logged. */
function scramVerifier(password: string): string {
  const salt = randomBytes(16);
  const salted = pbkdf2Sync(password, salt, SCRAM_ITERATIONS, 32, 'sha256');
  const mac = (text: string) => createHmac('sha256', salted).update(text).digest();
  const storedKey = createHash('sha256').update(mac('Client Key')).digest('base64');
  const serverKey = mac('Server Key').toString('base64');
  return `SCRAM-SHA-256$${SCRAM_ITERATIONS}:${salt.toString('base64')}$${storedKey}:${serverKey}`;
}
