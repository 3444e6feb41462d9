import type { Db } from '../db/transaction.js';
import { inMs, type WithDates } from '../db/columns.js';

/** The last report of a program instance; times in epoch milliseconds of the database. */
export interface Heartbeat {
  program: string;
  startedAt: number;
  beatAt: number;
  /** The body of the program's `/readyz`. */
  readiness: Readonly<Record<string, unknown>>;
}

export async function recordHeartbeat(sql: Db, instance: string, readiness: object): Promise<void> {
  await sql`
    select svc.record_heartbeat(${instance}::uuid, ${JSON.stringify(readiness)}::text::jsonb)`;
}

export async function readHeartbeats(sql: Db): Promise<Heartbeat[]> {
  const rows = await sql<WithDates<Heartbeat, 'startedAt' | 'beatAt'>[]>`
    select regexp_replace(role, '^svc_', '') as program, started_at as "startedAt", beat_at as "beatAt", readiness
    from svc.heartbeat order by role, beat_at`;
  return rows.map(inMs);
}

export interface Publishing {
  /** Time of the last cycle that published a snapshot, or found it current, in epoch milliseconds of the database; null without a report. */
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
