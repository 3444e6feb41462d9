import type { Pool } from './transaction.js';
import { mapStartupDbErrors } from './errors.js';
import { unconfinedTables } from './tenant-scope.js';

export type Program = 'engine' | 'worker' | 'verifier' | 'publisher' | 'admin' | 'erase' | 'fsck';

type Privilege = 'SELECT' | 'INSERT' | 'UPDATE' | 'DELETE' | 'TRUNCATE' | 'REFERENCES' | 'TRIGGER';

const READ_ALL: readonly string[] = [
  'api_key',
  'audit',
  'batch',
  'batch_part',
  'batch_progress',
  'batch_turn',
  'batch_watch',
  'checkpoint',
  'ended_checkpoint',
  'ended_log',
  'expiry',
  'fixture',
  'idempotency_key',
  'intake',
  'intake_pending',
  'lane',
  'log_entry',
  'log_head',
  'package_member',
  'policy_activation',
  'policy_input',
  'policy_set',
  'proof',
  'refusal',
  'revocation_pending',
  'revocation_reason',
  'revocation_request',
  'scrub',
  'share_revocation',
  'share_token',
  'tenant',
  'tile',
  'trust_package',
  'verdict',
];

/** The privileges of each program's role on tables, or on the named columns. */
export const GRANTS: Record<Program, Partial<Record<Privilege, readonly string[]>>> = {
  engine: {
    SELECT: [
      ...READ_ALL.filter(
        (table) =>
          ![
            'audit',
            'ended_checkpoint',
            'ended_log',
            'expiry',
            'policy_input',
            'revocation_reason',
            'scrub',
          ].includes(table),
      ),
      'erasure(proof_id,erased_at)',
      'status_exception',
    ],
    INSERT: [
      'batch',
      'batch_part',
      'batch_progress',
      'batch_turn',
      'batch_watch',
      'idempotency_key',
      'intake',
      'intake_pending',
      'package_member',
      'revocation_pending',
      'revocation_request',
      'share_revocation',
      'share_token',
      'trust_package',
    ],
  },
  worker: {
    SELECT: [
      'api_key(key_id,tenant_no,expires_at,revoked_at,key_no)',
      'batch_part',
      'batch_progress',
      'batch_turn',
      'batch_watch',
      'fixture',
      'intake',
      'intake_pending',
      'lane',
      'log_entry',
      'log_head',
      'policy_activation',
      'policy_input',
      'policy_set',
      'proof',
      'refusal',
      'revocation_pending',
      'revocation_request',
      'status_exception',
      'tenant',
      'tile',
    ],
    INSERT: [
      'log_entry',
      'policy_input',
      'proof',
      'refusal',
      'revocation_reason',
      'status_exception',
      'tile',
    ],
    UPDATE: [
      'batch_progress(pending,admitted,denied,refused,completed_at)',
      'batch_turn(handed_at)',
      'intake(refused)',
      'log_head(tree_size)',
      'revocation_request(refused)',
      'tile(hashes)',
    ],
    DELETE: ['batch_turn', 'batch_watch', 'intake_pending', 'revocation_pending'],
  },
  verifier: {
    SELECT: [
      'erasure(proof_id,leaf_index)',
      'erasure_due',
      'expiry',
      'intake',
      'log_entry',
      'log_head',
      'proof',
      'scrub',
      'share_due',
      'status_exception',
      'tenant',
      'tile',
      'upkeep',
      'verdict',
    ],
    INSERT: ['expiry', 'share_expiry', 'status_exception', 'verdict'],
    UPDATE: ['expiry(expires_at)', 'scrub(next_index,epoch,urgent_until)', 'upkeep(done_at)'],
    DELETE: ['erasure_due', 'expiry', 'share_due'],
  },
  publisher: {
    SELECT: [
      'checkpoint',
      'ended_log',
      'grant_change',
      'log_entry',
      'log_head',
      'package_member',
      'proof(proof_id,leaf_index,effect,environment,key_id,is_outcome)',
      'share_expiry(token_hash)',
      'share_revocation(token_hash)',
      'share_token(token_hash,artifact_kind,proof_id,package_id)',
      'tile',
      'trust_package(package_id,members_hash)',
      'upkeep',
      'verdict',
    ],
    INSERT: ['checkpoint'],
  },
  admin: {
    SELECT: [...READ_ALL, 'erasure', 'heartbeat', 'status_exception'],
    INSERT: [
      'api_key',
      'fixture',
      'log_entry',
      'policy_activation',
      'policy_set',
      'revocation_reason',
      'status_exception',
      'tenant',
      'tile',
    ],
    UPDATE: [
      'api_key(expires_at,revoked_at)',
      'lane(open,changed_at)',
      'log_head(tree_size)',
      'tenant(allowlisted,validity,rate_limit)',
      'tile(hashes)',
    ],
  },
  erase: {
    SELECT: [
      'batch',
      'batch_part',
      'erasure',
      'idempotency_key',
      'intake',
      'intake_pending',
      'log_entry',
      'policy_input',
      'proof',
      'refusal',
      'revocation_pending',
      'revocation_reason',
      'revocation_request',
      'status_exception',
      'tenant',
    ],
    INSERT: ['erasure', 'status_exception'],
    UPDATE: [
      'batch(items_hash)',
      'batch_part(problems)',
      'intake(request,request_hash,salt)',
      'proof(aep,signature,action,intent_id)',
      'refusal(detail)',
      'revocation_reason(document)',
      'revocation_request(document)',
    ],
    DELETE: ['idempotency_key', 'policy_input'],
  },
  fsck: {
    SELECT: [
      ...READ_ALL.filter(
        (table) => !['api_key', 'idempotency_key', 'lane', 'policy_activation'].includes(table),
      ),
      'erasure',
      'erasure_due',
      'grant_change',
      'grant_head',
      'share_due',
      'share_expiry',
      'upkeep',
    ],
  },
};

/** The connected role has privileges that the program must not have. */
export class TooMuchPrivilegeError extends Error {
  override readonly name = 'TooMuchPrivilegeError';
  readonly forOperator = true;
}

/** The effective privileges of the connected role, one line each: `UPDATE tile(hashes)`. */
export async function effectivePrivileges(sql: Pool): Promise<Set<string>> {
  const rows = await sql<{ privilege: string; table: string; columns: string | null }[]>`
    select p.privilege, c.relname as table,
      case when p.privilege in ('SELECT','UPDATE') and not has_table_privilege(c.oid, p.privilege)
        then (select string_agg(a.attname, ',' order by a.attnum) from pg_attribute a
          where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            and has_column_privilege(c.oid, a.attnum, p.privilege)) end as columns
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'svc'
    cross join unnest(array['SELECT','INSERT','UPDATE','DELETE','TRUNCATE','REFERENCES','TRIGGER'])
      as p(privilege)
    where c.relkind in ('r', 'p', 'v', 'm')
      and case
        when p.privilege in ('SELECT','INSERT','UPDATE','REFERENCES')
          then has_any_column_privilege(c.oid, p.privilege)
        else has_table_privilege(c.oid, p.privilege)
      end`;
  return new Set(
    rows.map(({ privilege, table, columns }) =>
      columns === null ? `${privilege} ${table}` : `${privilege} ${table}(${columns})`,
    ),
  );
}

interface RoleRow {
  name: string;
  power: string | null;
  owns: boolean;
  member: boolean;
  disguised: boolean;
  creates: boolean;
  makesSchemas: boolean;
  silences: boolean;
  readsFiles: boolean;
  forgetful: boolean;
}

const KNOWN_TABLES = new Set(
  Object.values(GRANTS).flatMap((row) =>
    Object.values(row).flatMap((tables) => tables.map((table) => table.replace(/\(.*/, ''))),
  ),
);

/** Whether a later version added the privilege's table. */
const isUnknownTable = (privilege: string): boolean =>
  !KNOWN_TABLES.has(/^\w+ (\w+)/.exec(privilege)?.[1] ?? '');

/**
 * Requires that the connected role is not a superuser, cannot create or assume other roles, owns
 * nothing in the schema and has only the privileges of `program`. The engine's role must also be
 * subject to row-level security.
 *
 * @param options.ahead a later version has migrated the database: privileges on tables that are
 *   unknown to this version are accepted
 * @throws TooMuchPrivilegeError
 */
export async function assertRole(
  sql: Pool,
  program: Program,
  { ahead = false }: { ahead?: boolean } = {},
): Promise<void> {
  const [role] = await mapStartupDbErrors(
    () => sql<RoleRow[]>`
    select current_user as name,
      case when rolsuper then 'is a superuser' when rolcreaterole then 'can create roles'
        when rolbypassrls then 'bypasses row-level security' when rolreplication then 'can replicate'
        when rolcreatedb then 'can create databases'
      end as power,
      exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'svc' and c.relowner = r.oid) as owns,
      exists (select from pg_auth_members m where m.member = r.oid) as member,
      session_user <> current_user as disguised,
      has_schema_privilege('svc', 'create') as creates,
      has_database_privilege(current_database(), 'create') as "makesSchemas",
      has_parameter_privilege('session_replication_role', 'set') as silences,
      (select bool_or(has_function_privilege(f.oid, 'execute')) from pg_proc f
        where f.pronamespace = 'pg_catalog'::regnamespace and f.proname in ('pg_read_file',
          'pg_read_binary_file', 'pg_ls_dir', 'lo_import', 'lo_export')) as "readsFiles",
      current_setting('synchronous_commit') = 'off' as forgetful
    from pg_roles r where rolname = current_user`,
  );
  const found: string[] = [];
  if (role === undefined) found.push('is unknown to the database');
  if (typeof role?.power === 'string') found.push(role.power);
  if (role?.owns === true) found.push('owns tables');
  if (role?.member === true) found.push('is a member of another role');
  if (role?.disguised === true) found.push('differs from the role that logged in');
  if (role?.creates === true) found.push('can create objects in the schema');
  if (role?.makesSchemas === true) found.push('can create schemas');
  if (role?.silences === true) found.push('can disable triggers');
  if (role?.readsFiles === true) found.push('can read files of the server');
  if (role?.forgetful === true) found.push('commits without waiting for the disk');
  const allowed = new Set(
    Object.entries(GRANTS[program]).flatMap(([privilege, tables]) =>
      tables.map((table) => `${privilege} ${table}`),
    ),
  );
  const extra = [...(await effectivePrivileges(sql))].filter(
    (one) => !allowed.has(one) && !(ahead && isUnknownTable(one)),
  );
  if (extra.length > 0) found.push(`may ${extra.slice(0, 5).join(', ')}`);
  // The other programs read every tenant, and no policy applies to them.
  const unconfined = program === 'engine' ? await unconfinedTables(sql) : [];
  if (unconfined.length > 0) {
    found.push(`can see the rows of every tenant in ${unconfined.slice(0, 5).join(', ')}`);
  }
  if (found.length > 0) {
    throw new TooMuchPrivilegeError(
      `the database role ${role?.name ?? '?'} ${found.join(', ')}; ${program} starts only with no more than its own rights: connect it as svc_${program}`,
    );
  }
}
