import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Readiness } from '#runtime/ops/health';
import { connect, type ConnectOptions, type Sql } from '#runtime/postgres/connect';
import { packageRoot } from '#runtime/process/files';
import type { ProgramContext } from '#runtime/process/lifecycle';
import { assertRole, type Program } from '#sql/db/roles';
import { type Pool, requireOwnSession } from '#sql/db/transaction';
import { recordHeartbeat } from '#sql/ops/queries';
import { knownVersions, requireSchema } from '#sql/schema/migrate';

export const MIGRATIONS = join(packageRoot, 'sql', 'migrations');

/**
 * Checks what every program requires of its database: a session of its own (no transaction pooler) without unsafe
 * settings, a compatible schema, and a role with no additional privileges.
 */
export async function assertDatabase(sql: Pool, program: Program): Promise<void> {
  await requireOwnSession(sql);
  const known = await knownVersions(MIGRATIONS);
  await assertRole(sql, program, await requireSchema(sql, known));
}

/** Opens the database for a command, in which a statement without an answer fails; a service would exit and restart. */
export async function openDatabase(
  url: string,
  program: Program,
  options: ConnectOptions,
): Promise<Sql> {
  const silence = new AbortController();
  const onStall = (): void => silence.abort();
  const sql = connect(url, { ...options, signal: silence.signal, onStall });
  try {
    await assertDatabase(sql, program);
    return sql;
  } catch (error) {
    await sql.end({ timeout: 1 });
    throw error;
  }
}

const EVERY_MS = 2_000;

/** Records readiness until the program stops. The returned function records readiness at once and never rejects. */
export async function startHeartbeat(
  sql: Pool,
  find: () => Readiness | Promise<Readiness>,
  { signal, log }: Pick<ProgramContext, 'signal' | 'log'>,
): Promise<() => Promise<void>> {
  const instance = randomUUID();
  let isFailing = false;
  let isReady = true;
  // Serializes reports, so that an earlier report never replaces a later report.
  let last = Promise.resolve();
  const beat = (): Promise<void> => (last = last.then(record));
  const record = async (): Promise<void> => {
    try {
      const { ready, details } = await find();
      if (ready !== isReady && details['status'] !== 'starting' && !signal.aborted) {
        isReady = ready;
        log[ready ? 'info' : 'warn']({ readiness: details }, ready ? 'ready' : 'not ready');
      }
      await recordHeartbeat(sql, instance, details);
      isFailing = false;
    } catch (error) {
      if (!isFailing && !signal.aborted)
        log.warn({ err: error }, 'heartbeat failed: admin status may report this program as down');
      isFailing = true;
    }
  };
  const keepBeating = async (): Promise<void> => {
    while (!signal.aborted) {
      await sleep(EVERY_MS, undefined, { signal }).catch(() => undefined);
      if (!signal.aborted) await beat();
    }
  };
  await beat();
  void keepBeating();
  return beat;
}
