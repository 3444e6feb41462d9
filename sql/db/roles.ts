import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { OperatorError } from '#runtime/process/operator-error';
import { valuesOf } from './columns.js';
import type { Pool } from './transaction.js';
import { mapStartupDbErrors } from './errors.js';

export const PROGRAMS = [
  'engine',
  'worker',
  'verifier',
  'publisher',
  'admin',
  'erase',
  'fsck',
] as const;
export type Program = (typeof PROGRAMS)[number];

/** The schema file in the source tree, even when this module runs from dist/. */
const SCHEMA = join(
  import.meta.dirname.replace(/[/\\]dist(?=[/\\]sql[/\\]db$)/, ''),
  '../schema.txt',
);

export interface Right {
  /** For example `UPDATE tile`, or `UPDATE tile(hashes)` for a column. */
  name: string;
  table: string;
}

/**
 * Reads the frozen schema: the tables, those that row-level security scopes to one tenant (directly or through
 * their parent), and the rights of each program's role.
 */
export async function frozenRights() {
  const lines = (await readFile(SCHEMA, 'utf8')).split('\n');
  const tablesWith = (what: RegExp): string[] =>
    lines.flatMap((line) => what.exec(line)?.[1] ?? []);
  const rightsOf = (program: Program): Right[] => {
    const grant = new RegExp(`^grant ([A-Z]+) (?:\\((\\w+)\\) )?on (\\w+) to svc_${program}$`);
    return lines.flatMap((line) => {
      const [, privilege, column, table] = grant.exec(line) ?? [];
      return privilege === undefined || table === undefined
        ? []
        : [right({ privilege, table, column: column ?? null })];
    });
  };
  const rights = Object.fromEntries(PROGRAMS.map((program) => [program, rightsOf(program)]));
  return {
    tables: new Set(tablesWith(/^table (\w+) column/)),
    tenantTables: tablesWith(/^table (\w+) row-level security/),
    rights: rights as Record<Program, Right[]>,
  };
}

interface Privilege {
  privilege: string;
  table: string;
  column: string | null;
}

function right({ privilege, table, column }: Privilege): Right {
  return { name: `${privilege} ${table}${column === null ? '' : `(${column})`}`, table };
}

async function effectiveRights(sql: Pool): Promise<Right[]> {
  const rows = await sql<Privilege[]>`
    select p.privilege, c.relname as table, a.attname as column
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
    cross join unnest(array['SELECT','INSERT','UPDATE','DELETE','TRUNCATE','REFERENCES','TRIGGER'])
      as p(privilege)
    cross join lateral (
      select null as attname where has_table_privilege(c.oid, p.privilege)
      union all
      select attname from pg_attribute
      where attrelid = c.oid and attnum > 0 and not attisdropped
        and p.privilege in ('SELECT','INSERT','UPDATE','REFERENCES')
        and not has_table_privilege(c.oid, p.privilege)
        and has_column_privilege(c.oid, attnum, p.privilege)) a
    where c.relkind in ('r', 'p', 'v', 'm')`;
  return rows.map(right);
}

/** The tables in which the connected role can see the rows of every tenant. */
const unconfined = (sql: Pool, tables: readonly string[]): Promise<string[]> =>
  valuesOf(sql`
    select c.relname
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
    where c.relname = any(${[...tables]}::text[])
      and (not row_security_active(c.oid) or not c.relforcerowsecurity
        or exists (select from pg_policy p
          where p.polrelid = c.oid and p.polpermissive
            and p.polroles && array[0::oid, (select oid from pg_roles where rolname = current_user)]
            and pg_get_expr(p.polqual, p.polrelid) = 'true'))
    order by c.relname`);

export class TooMuchPrivilegeError extends OperatorError {}

/**
 * Requires that the connected role is not a superuser, cannot create or assume other roles, owns
 * nothing in the schema and has only the rights of `program`. The engine's role must also be subject
 * to row-level security.
 *
 * @param options.ahead a later version has migrated the database: rights on tables that are unknown
 *   to this version are accepted
 * @throws TooMuchPrivilegeError
 */
export async function assertRole(
  sql: Pool,
  program: Program,
  { ahead = false }: { ahead?: boolean } = {},
): Promise<void> {
  const [role] = await mapStartupDbErrors(
    () => sql<{ name: string; excesses: string[] }[]>`
    select current_user as name, array_remove(array[
      case when rolsuper then 'is a superuser' when rolcreaterole then 'can create roles'
        when rolbypassrls then 'bypasses row-level security' when rolreplication then 'can replicate'
        when rolcreatedb then 'can create databases' end,
      case when exists (select from pg_class c
          join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
          where c.relowner = r.oid) then 'owns tables' end,
      case when exists (select from pg_auth_members m where m.member = r.oid)
        then 'is a member of another role' end,
      case when session_user <> current_user then 'differs from the role that logged in' end,
      case when has_schema_privilege('svc', 'create') then 'can create objects in the schema' end,
      case when has_database_privilege(current_database(), 'create') then 'can create schemas' end,
      case when has_parameter_privilege('session_replication_role', 'set')
        then 'can disable triggers' end,
      case when exists (select from pg_proc f
          where f.pronamespace = 'pg_catalog'::regnamespace and f.proname in ('pg_read_file',
            'pg_read_binary_file', 'pg_ls_dir', 'lo_import', 'lo_export')
            and has_function_privilege(f.oid, 'execute')) then 'can read files of the server' end], null) as excesses
    from pg_roles r where rolname = current_user`,
  );
  const found = role?.excesses ?? ['is unknown to the database'];
  const { tables, tenantTables, rights } = await frozenRights();
  const allowed = new Set(rights[program].map(({ name }) => name));
  const extra = (await effectiveRights(sql)).filter(
    ({ name, table }) => !allowed.has(name) && !(ahead && !tables.has(table)),
  );
  const few = (names: string[]): string => names.slice(0, 5).join(', ');
  if (extra.length > 0) found.push(`may ${few(extra.map(({ name }) => name))}`);
  // Only the engine is limited to one tenant at a time; the other programs read every tenant.
  const open = program === 'engine' ? await unconfined(sql, tenantTables) : [];
  if (open.length > 0) found.push(`can see the rows of every tenant in ${few(open)}`);
  if (found.length > 0) {
    throw new TooMuchPrivilegeError(
      `the database role ${role?.name ?? '?'} ${found.join(', ')}; ${program} does not start with more than its own rights: connect it as svc_${program}`,
    );
  }
}
