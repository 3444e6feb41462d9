import { runAdmin } from '#programs/admin/main';
import type { TestDatabase } from './database.js';

export interface AdminReply {
  code: 0 | 1 | 2;
  out: string;
  err: string;
  /** What was printed, where it is JSON. */
  json: unknown;
}

export type AdminLine = (...line: string[]) => Promise<AdminReply>;

/** The admin command line against a test database, as its own role. */
export function adminOn(
  db: TestDatabase,
  options: { isTerminal?: boolean; url?: string } = {},
): AdminLine {
  return adminWith({ DATABASE_URL: options.url ?? db.urlFor('svc_admin') }, options.isTerminal);
}

export function adminWith(env: Record<string, string>, isTerminal = false): AdminLine {
  return async (...line) => {
    const said = { out: '', err: '' };
    const code = await runAdmin(
      line,
      {
        out: (text) => void (said.out += text),
        err: (text) => void (said.err += text),
        isTerminal,
      },
      env,
    );
    const isJson = /^[[{]/.test(said.out);
    return { code, ...said, json: isJson ? (JSON.parse(said.out) as unknown) : null };
  };
}

/** The document of a command that must succeed. */
export async function done(reply: Promise<AdminReply>): Promise<Record<string, unknown>> {
  const { code, err, json } = await reply;
  if (code !== 0) throw new Error(`exit code ${code}: ${err}`);
  return json as Record<string, unknown>;
}
