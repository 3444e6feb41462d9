import type { Db } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';

/** The last report of a program instance; times in epoch milliseconds of the database. */
export interface Heartbeat {
  program: string;
  startedAt: number;
  beatAt: number;
  /** The body of the program's `/readyz`. */
  readiness: Readonly<Record<string, unknown>>;
}

/** Stores the heartbeat of an instance of the connected role. */
export function recordHeartbeat(sql: Db, instance: string, readiness: object): Promise<void> {
  return mapDbErrors(async () => {
    await sql`
      select svc.record_heartbeat(${instance}::uuid, ${JSON.stringify(readiness)}::text::jsonb)`;
  });
}

export function readHeartbeats(sql: Db): Promise<Heartbeat[]> {
  return mapDbErrors(async () => {
    const rows = await sql<
      { role: string; started_at: Date; beat_at: Date; readiness: Record<string, unknown> }[]
    >`select role, started_at, beat_at, readiness from svc.heartbeat order by role, beat_at`;
    return rows.map((row) => ({
      program: row.role.replace(/^svc_/, ''),
      startedAt: row.started_at.getTime(),
      beatAt: row.beat_at.getTime(),
      readiness: row.readiness,
    }));
  });
}

/** The publishing state, from the publishers' heartbeats. */
export interface Publishing {
  /** The time of the last snapshot, in epoch milliseconds of the database; null without a report. */
  publishedAt: number | null;
  /** The reason of the last fatal publish error; null after a later snapshot. */
  refused: string | null;
}

export function publishing(heartbeats: readonly Heartbeat[]): Publishing {
  const publishers = heartbeats.filter(({ program }) => program === 'publisher');
  const published = publishers.flatMap(({ beatAt, readiness }) => {
    const ago = readiness['published_ms_ago'];
    return typeof ago === 'number' ? [beatAt - ago] : [];
  });
  const publishedAt = published.length === 0 ? null : Math.max(...published);
  const refusals = publishers.filter(
    ({ beatAt, readiness }) =>
      typeof readiness['refused'] === 'string' && beatAt > (publishedAt ?? -Infinity),
  );
  const last = refusals.sort((a, b) => a.beatAt - b.beatAt).at(-1);
  return { publishedAt, refused: last === undefined ? null : String(last.readiness['refused']) };
}
