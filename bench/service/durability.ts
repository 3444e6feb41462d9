import type { BenchRegistry } from './registry.js';
import { connect } from '#runtime/postgres/connect';

/** Without any of these a figure would be one of a database that may lose what it said it has. */
export const DURABLE = { fsync: 'on', synchronous_commit: 'on', full_page_writes: 'on' } as const;

/** Who commits what must not be lost; settings may be a role's own. */
const WRITERS = ['svc_engine', 'svc_worker', 'svc_verifier', 'svc_publisher'] as const;

/** How many there are to be. */
export const DURABLE_SETTINGS = WRITERS.length * Object.keys(DURABLE).length;

/**
 * How many of the settings are on, as the programs' own roles see them.
 *
 * @throws Error when one is not: nothing is measured on a database that does not keep its word
 */
export async function requireDurable(registry: Pick<BenchRegistry, 'roleUrl'>): Promise<number> {
  let held = 0;
  for (const role of WRITERS) {
    const sql = connect(registry.roleUrl(role), { application: 'bench', max: 1 });
    try {
      for (const [setting, wanted] of Object.entries(DURABLE)) {
        const [row] = await sql<{ found: string }[]>`select current_setting(${setting}) as found`;
        if (row?.found !== wanted) {
          throw new Error(`${setting} of ${role} is ${row?.found ?? 'unknown'}, not ${wanted}`);
        }
        held += 1;
      }
    } finally {
      await sql.end({ timeout: 5 });
    }
  }
  return held;
}
