import type { Db } from '#sql/db/transaction';

/**
 * The schema from the catalogs, one sorted line per fact: columns, constraints, indexes, triggers,
 * functions, row-level security and grants. A test compares the lines with the description in git,
 * so that each schema change shows in review.
 */
export async function describeSchema(sql: Db): Promise<string> {
  const rows = await sql<{ line: string }[]>`
    select format('table %s column %s %s%s%s', c.relname, a.attname,
        format_type(a.atttypid, a.atttypmod), case when a.attnotnull then ' not null' else '' end,
        coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')) as line
      from pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
      join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
      where c.relkind = 'r'
    union all
    select format('table %s constraint %s', c.relname, pg_get_constraintdef(k.oid))
      from pg_constraint k join pg_class c on c.oid = k.conrelid
      join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
      where k.contype <> 'n'
    union all
    select format('index %s', indexdef) from pg_indexes where schemaname = 'svc'
    union all
    select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
      join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
      where not t.tgisinternal
    union all
    select regexp_replace(pg_get_functiondef(p.oid), '\\s+', ' ', 'g') from pg_proc p
      join pg_namespace n on n.oid = p.pronamespace and n.nspname = 'svc'
    union all
    select regexp_replace(format('view %s %s %s', c.relname, c.reloptions, pg_get_viewdef(c.oid)), '\\s+', ' ', 'g')
      from pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
      where c.relkind = 'v'
    union all
    select format('table %s row-level security%s', c.relname,
        case when c.relforcerowsecurity then ', forced on the owner' else '' end)
      from pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
      where c.relrowsecurity
    union all
    select regexp_replace(format('policy %s on %s %s for %s to %s%s%s', p.polname, c.relname,
        case when p.polpermissive then 'permissive' else 'restrictive' end, p.polcmd,
        (select string_agg(case when r.oid = c.relowner then 'the owner' else r.rolname end, ', '
          order by r.rolname) from pg_roles r where r.oid = any(p.polroles)),
        ' using ' || pg_get_expr(p.polqual, p.polrelid),
        ' with check ' || pg_get_expr(p.polwithcheck, p.polrelid)), '\\s+', ' ', 'g')
      from pg_policy p join pg_class c on c.oid = p.polrelid
      join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
    union all
    select format('grant execute on %s to %s', p.proname, r.rolname)
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace and n.nspname = 'svc'
      join pg_roles r on r.rolname like 'svc\\_%' and has_function_privilege(r.oid, p.oid, 'execute')
    union all
    select format('grant %s on %s to %s', g.privilege_type, g.table_name, g.grantee)
      from information_schema.table_privileges g
      where g.table_schema = 'svc' and g.grantee like 'svc\\_%'
    union all
    select format('grant %s (%s) on %s to %s', g.privilege_type, g.column_name, g.table_name, g.grantee)
      from information_schema.column_privileges g
      where g.table_schema = 'svc' and g.grantee like 'svc\\_%'
        and not exists (select from information_schema.table_privileges t
          where t.table_schema = g.table_schema and t.table_name = g.table_name
            and t.grantee = g.grantee and t.privilege_type = g.privilege_type)`;
  return (
    rows
      .map((row) => row.line)
      .sort()
      .join('\n') + '\n'
  );
}
