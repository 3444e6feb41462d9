import { listAudit, type AuditRecord } from '#sql/tenants/audit';
import { Outcome, snakeCase, wholeNumber, type AddCommand, table } from './command.js';

export function addAuditCommands(add: AddCommand): void {
  add(
    'audit list',
    'List administrative changes with actor and time, as recorded by the database',
    '--limit 20',
    async ({ database }, { limit }: { limit: string }) => {
      const records = await listAudit(await database(), wholeNumber(limit, 1, 100_000));
      const rows = records.map((record) => ({
        at: record.at,
        actor: record.actor,
        act: record.act,
        object: `${record.operation.toLowerCase()} ${record.object}`,
        what: changed(record),
      }));
      return new Outcome(records.map(snakeCase), { text: table(rows) });
    },
  ).option('--limit <n>', 'number of newest records', '50');
}

/** Identifying columns by table: the record of an update must name its row. */
const NAMED_BY: Record<string, string> = {
  tenant: 'tenant_id',
  api_key: 'key_id',
  lane: 'environment',
};

/** The identity of an updated row and its changes; for a new row, its non-empty columns. */
function changed({ object, before, after }: AuditRecord): string {
  return Object.entries(after ?? {})
    .filter(([name, value]) =>
      before === null
        ? value !== null
        : name === NAMED_BY[object] || JSON.stringify(before[name]) !== JSON.stringify(value),
    )
    .sort(([a], [b]) => Number(b === NAMED_BY[object]) - Number(a === NAMED_BY[object]))
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ');
}
