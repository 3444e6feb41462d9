import { listAudit, type AuditRecord } from '#sql/tenants/audit';
import { wholeNumber, type Command } from './command.js';
import { table } from './print.js';

const DEFAULT_LIMIT = '50';

export const auditCommands: Command[] = [
  {
    name: 'audit list',
    takes: [],
    options: {
      limit: { value: 'n', help: `number of newest records (${DEFAULT_LIMIT} by default)` },
    },
    help: 'list administrative changes with actor and time, as recorded by the database',
    example: 'audit list --limit 20',
    run: async (admin, given) => {
      const limit = wholeNumber(given.option('limit') ?? DEFAULT_LIMIT, 1, 100_000);
      const records = await listAudit(await admin.database(), limit);
      return {
        document: records.map((record) => ({
          audit_id: record.auditId,
          at: record.at,
          db_role: record.dbRole,
          actor: record.actor,
          act: record.act,
          object: record.object,
          operation: record.operation,
          before: record.before,
          after: record.after,
        })),
        text: table(
          records.map((record) => ({
            at: record.at,
            actor: record.actor,
            act: record.act,
            object: `${record.operation.toLowerCase()} ${record.object}`,
            what: changed(record),
          })),
        ),
      };
    },
  },
];

/** Identifying columns of updatable rows: a record of an update must name its row. */
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
