import type { Pool } from '#sql/db/transaction';

/**
 * Every value of every column in which one of the marks is, as text, as bytes, or in hex, as
 * `table.column`: what a dump of the database would hold of them. Asked as superuser.
 */
export async function valuesHolding(sql: Pool, marks: readonly string[]): Promise<string[]> {
  const columns = await sql<{ table: string; column: string; type: string }[]>`
    select c.relname as table, a.attname as column, format_type(a.atttypid, null) as type
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema')`;
  const found: string[] = [];
  for (const { table, column } of columns) {
    for (const mark of marks) {
      // A bytea's text is its hex, so a mark is looked for as it is and as the hex of its bytes.
      const hex = Buffer.from(mark).toString('hex');
      const rows = await sql<{ found: number }[]>`
        select count(*)::integer as found from svc.${sql(table)}
        where position(lower(${mark}) in lower(${sql(column)}::text)) > 0
          or position(${hex} in ${sql(column)}::text) > 0
          or position(encode(${mark}::text::bytea, 'base64') in ${sql(column)}::text) > 0`.catch(
        () => [],
      );
      if ((rows[0]?.found ?? 0) > 0) found.push(`${table}.${column} has ${mark}`);
    }
  }
  return found;
}
