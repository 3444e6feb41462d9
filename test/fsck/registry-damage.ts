import type { FindingCode } from '#fsck/findings';
import type { SoundRegistry } from '../fixtures/sound-registry.js';

/** Damage to the registry: the findings that it must cause, and SQL that damages the given proof. */
export type Damage = [found: Partial<Record<FindingCode, number>>, plant: Plant];
type Plant = (id: string, leaf: string) => string;

/** An SQL assignment that flips a bit. */
export const flip = (column: string, at = 40): string =>
  `${column} = set_byte(${column}, ${at}, get_byte(${column}, ${at}) # 1)`;
const UNKNOWN = '0'.repeat(31) + '1';
const ALSO_UNKNOWN = '0'.repeat(31) + '2';
const FIRST_STATUS = '(select min(leaf_index) from svc.log_entry where kind = 2)';
const LAST_PROOF = `(select max(leaf_index) from svc.log_entry, svc.log_head
  where kind = 1 and leaf_index < tree_size)`;
const FIRST_CHECKPOINT = 'tree_size = (select min(tree_size) from svc.checkpoint)';
const LAST_VERDICT =
  'frontier and last_index = (select max(last_index) from svc.verdict where frontier)';
/** The batch with only valid items. */
const VALID_BATCH =
  'exists (select from svc.batch_progress g where g.batch_id = b.batch_id and g.invalid = 0)';
const FIRST_BATCH = '(select min(batch_id::text)::uuid from svc.batch)';
const LAST_BATCH = '(select max(batch_id::text)::uuid from svc.batch)';
const A_DAY_LATER = `expires_at = expires_at + interval '1 day'`;
const FIRST_PACKAGE = '(select min(package_id::text)::uuid from svc.trust_package)';

/** Lists a proof whose status changed, as the triggers would. */
const listed = (where: string): string => `
  insert into svc.status_exception (tenant_no, leaf_index)
  select tenant_no, leaf_index from svc.log_entry where kind = 1 and ${where};`;
const set = (table: string, change: string, id: string): string =>
  `update svc.${table} set ${change} where proof_id = ${id};`;
/** Stores the scrubber's verdict on a damaged leaf: without it fsck also reports the missing verdict. */
const failed = (leaf: string, outcome = 'fail'): string => `${listed(`leaf_index = ${leaf}`)}
  insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
  select false, l, l, h.tree_size, '\\x${'00'.repeat(32)}', '${outcome}', '[]'
  from (select ${leaf} as l) as it, svc.log_head h;`;
const erasure = (id: string): string => `${listed(`proof_id = ${id}`)}
  insert into svc.erasure select proof_id, leaf_index, now(), 'ada', 'CASE-1' from svc.log_entry
  where proof_id = ${id};`;
const withoutPayload = (id: string): string =>
  set(
    'log_entry',
    'signature = null, reasons = null, budgets = null, action = null, intent_id = null',
    id,
  ) + set('intake', 'request = null, request_hash = null, seed = null', id);
/** An erased proof, with the verdict on its erasure or without that verdict. */
export const erased = (id: string, leaf: string): string =>
  erasure(id) + withoutPayload(id) + failed(leaf, 'erased');
export const erasedJustNow = (id: string, leaf: string): string =>
  `${erasure(id)}${withoutPayload(id)} insert into svc.erasure_due select ${leaf}`;
/** Rewrites the log: changes the time in each status entry, and the hash of the entry in the leaf tile. */
export const REWRITTEN_LOG = `
  update svc.log_entry set at = at + interval '1 second', body = convert_to(regexp_replace(
    convert_from(body, 'UTF8'), '"time":"[^"]*"', '"time":"' || to_char((at + interval '1 second')
    at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"'), 'UTF8') where kind = 2;
  update svc.tile set hashes = overlay(hashes placing sha256('\\x00'::bytea || e.body)
    from (e.leaf_index % 256 * 32 + 1)::int for 32)
    from svc.log_entry e where e.kind = 2 and level = 0 and tile_index = e.leaf_index / 256`;

export const CUT_LOG = `
  update svc.log_head set tree_size = tree_size - 3;
  delete from svc.log_entry where leaf_index >= (select tree_size from svc.log_head)`;

const PACKAGED = `(select proof_id from svc.package_member where position = 0
  and package_id = ${FIRST_PACKAGE})`;
const SHARED = `(select proof_id from svc.share_token where artifact_kind = 'trust')`;
const BATCHED = `(select proof_ids[1] from svc.batch_part b where ${VALID_BATCH})`;
export const REVOKED = '(select revokes from svc.log_entry where kind = 2)';
export const leafOf = (id: string): string =>
  `(select leaf_index from svc.log_entry where proof_id = ${id})`;
/** Deletes the leaf of a proof. */
export const missing = (id: string): string =>
  `${failed(leafOf(id))} delete from svc.log_entry where proof_id = ${id}`;

/** Damage with one finding that does not depend on a proof. */
const run = (code: FindingCode, statement: string): Damage => [{ [code]: 1 }, () => statement];
const update = (code: FindingCode, table: string, change: string, where = 'true'): Damage =>
  run(code, `update svc.${table} set ${change} where ${where}`);
/** Damage with one finding, to a proof whose verdict is changed to `fail`. */
const failing = (code: FindingCode, plant: Plant): Damage => [
  { [code]: 1 },
  (id, leaf) => failed(leaf) + plant(id, leaf),
];
/** Damage with one finding, to a column of a proof or of its intake row. */
const column = (table: 'log_entry' | 'intake', code: FindingCode, change: string): Damage =>
  failing(code, (id) => set(table, change, id));

const payloads: Damage[] = [
  column('log_entry', 'signature_invalid', flip('signature')),
  column('intake', 'request_altered', flip('request', 60)),
  column('log_entry', 'proof_payload_missing', 'signature = null'),
  failing('proof_payload_missing', withoutPayload),
  column('intake', 'proof_payload_missing', 'request = null'),
  update('proof_payload_missing', 'intake', 'request = null', 'refused'),
  [{ erasure_incomplete: 1, erasure_unlogged: 1, verdict_passes: 1 }, erasure],
  [{ erasure_unlogged: 1, verdict_passes: 1 }, (id) => erasure(id) + withoutPayload(id)],
  failing('intake_missing', (id) => `delete from svc.intake where proof_id = ${id}`),
  run('intake_lost', 'delete from svc.intake_pending'),
  [{ intake_contradicts: 1 }, (id) => `insert into svc.refusal values (${id}, 'x', 'x')`],
  update('batch_differs', 'batch b', flip('items_hash', 3), VALID_BATCH),
];

const columns: Damage[] = [
  column('intake', 'aep_altered', flip('seed', 1)),
  column('log_entry', 'aep_altered', `reasons = '3'`),
  column('log_entry', 'leaf_altered', `effect = 'DENY'`),
  column('log_entry', 'leaf_altered', `environment = 'live'`),
  column('log_entry', 'leaf_altered', `environment = 'other'`),
  column('log_entry', 'leaf_altered', `key_id = 'other'`),
  column('log_entry', 'leaf_altered', `validity = '{"proof":1}'`),
  column('log_entry', 'aep_altered', 'tenant_no = 9999'),
  column('log_entry', 'columns_differ', 'lane = 3 - lane'),
  column('log_entry', 'leaf_altered', 'is_outcome = not is_outcome'),
  column('log_entry', 'columns_differ', `action = 'other'`),
  column('log_entry', 'columns_differ', `intent_id = 'other'`),
  column('log_entry', 'columns_differ', 'parent = proof_id'),
  [
    { intake_differs: 1 },
    (id) => set('intake', `run_key = sha256(''), run_seq = 0, run_closes = false`, id),
  ],
  [{ intake_differs: 1 }, (id) => set('intake', `accepted_at = accepted_at + interval '1 ms'`, id)],
  [{ intake_differs: 1 }, (id) => set('intake', `environment = 'live'`, id)],
  [{ intake_differs: 1 }, (id) => set('intake', 'approves = proof_id', id)],
  [{ intake_differs: 1, verdict_passes: 1 }, (id) => set('intake', 'tenant_no = 9999', id)],
  column('intake', 'intake_differs', 'lane = 3 - lane'),
  column('intake', 'request_altered', flip('request_hash', 1)),
  column('intake', 'request_altered', `request = '{'`),
  run(
    'batch_differs',
    `alter table svc.batch_progress drop constraint batch_progress_check1;
      update svc.batch_progress set completed_at = null where invalid > 0`,
  ),
];

const rows: Damage[] = [
  [
    { erasure_incomplete: 1, erasure_unlogged: 1 },
    (id, leaf) => erased(id, leaf) + set('log_entry', `signature = '\\x00'`, id),
  ],
  [
    { erasure_incomplete: 1, erasure_unlogged: 1 },
    (id, leaf) => erased(id, leaf) + set('erasure', 'leaf_index = leaf_index + 1000000', id),
  ],
  [
    { leaf_missing: 1, leaf_beyond_head: 1 },
    (id, leaf) => failed(leaf) + set('log_entry', 'leaf_index = leaf_index + 1000000', id),
  ],
  column('log_entry', 'leaf_altered', `proof_id = '${UNKNOWN}'`),
  [
    { leaf_beyond_head: 1 },
    (id) => `insert into svc.log_entry (leaf_index, at, tenant_no, kind, lane, is_outcome, proof_id,
        effect, environment, key_id, aep_hash, proof_record_hash, engine_version)
      select 9998, at, tenant_no, kind, lane, is_outcome, gen_random_uuid(), effect, environment,
        key_id, aep_hash, proof_record_hash, engine_version
      from svc.log_entry where proof_id = ${id}`,
  ],
  column('log_entry', 'leaf_altered', flip('aep_hash', 3)),
  run(
    'leaf_altered', // in the last tile
    `${failed(LAST_PROOF)}
      update svc.log_entry set ${flip('proof_record_hash', 3)} where leaf_index = ${LAST_PROOF}`,
  ),
  [{ leaf_missing: 1 }, missing],
  run(
    'leaf_beyond_head',
    `insert into svc.log_entry (leaf_index, kind, at, body) values (9999, 3, now(), '{}')`,
  ),
  run('revocation_reason_missing', 'delete from svc.revocation_reason'),
  run('intake_missing', 'delete from svc.intake where refused'),
  run('expiry_missing', `delete from svc.expiry where artifact_kind = 'passport'`),
  update(
    'share_target_missing',
    'share_token',
    `proof_id = '${ALSO_UNKNOWN}'`,
    `artifact_kind = 'trust'`,
  ),
  update('share_end_differs', 'share_token', A_DAY_LATER, 'expires_at is not null'),
  [
    { batch_differs: 1 },
    (id) => `update svc.batch_part b set proof_ids[2] = ${id} where ${VALID_BATCH}`,
  ],
];

const derived: Damage[] = [
  update('tile_altered', 'tile', flip('hashes', 320), 'level = 0 and tile_index = 0'),
  update('tile_altered', 'tile', flip('hashes', 64), 'level = 0 and tile_index = 1'),
  run('tile_beyond_head', `insert into svc.tile values (0, 7, '\\x${'ab'.repeat(32)}')`),
  update(
    'checkpoint_unverifiable',
    'checkpoint',
    `note = overlay(note placing case substr(note, length(note) - 20, 1) when 'A' then 'B' else 'A' end
      from length(note) - 20)`,
    FIRST_CHECKPOINT,
  ),
  update('verdict_keys_differ', 'verdict', flip('keys_digest', 1), LAST_VERDICT),
  update('verdict_root_differs', 'verdict', flip('root', 1), LAST_VERDICT),
  update('revocation_reason_altered', 'revocation_reason', flip('document', 20)),
  update('expiry_differs', 'expiry', A_DAY_LATER),
  [
    { package_differs: 1 },
    (id) => `update svc.package_member set proof_id = ${id} where position = 0
      and package_id = ${FIRST_PACKAGE}`,
  ],
  run('grant_changes_differ', 'delete from svc.share_revocation'),
  update('batch_differs', 'batch b', 'items_hash = null', VALID_BATCH),
];

const others: Damage[] = [
  update('tile_altered', 'tile', flip('hashes', 3), 'level = 1'),
  [
    { leaf_altered: 2 },
    () => `${failed('10')}${failed('11')}
      update svc.log_entry set leaf_index = leaf_index + 10000 where leaf_index in (10, 11);
      update svc.log_entry set leaf_index = 10021 - leaf_index where leaf_index in (10010, 10011)`,
  ],
  update('checkpoint_altered', 'checkpoint', flip('root', 5), FIRST_CHECKPOINT),
  [
    { leaf_missing: 1, revocation_lost: 1 },
    () => `${failed(FIRST_STATUS)} delete from svc.log_entry where kind = 2`,
  ],
  run(
    'verdict_gap',
    `delete from svc.verdict
      where frontier and last_index = (select min(last_index) from svc.verdict where frontier)`,
  ),
  run('expiry_differs', `insert into svc.expiry values (3, 'trust', now() + interval '1 day')`),
  update('policy_set_altered', 'policy_set', `manifest = manifest || ' '`),
  run(
    'policy_set_altered',
    `insert into svc.overlay select tenant_no, sha256('{}'), '{"a":1}', 1 from svc.tenant limit 1`,
  ),
  run('fixture_altered', `insert into svc.fixture values ('altered', sha256('{}'), '{"a":1}')`),
  [
    { identity_twice: 1 },
    (id) => `drop index svc.intake_identity; update svc.intake set (request, request_hash) =
      (select request, request_hash from svc.intake where proof_id = ${id})
      where proof_id = (select proof_id from svc.intake_pending)`,
  ],
  [
    { intake_contradicts: 3 }, // two proofs in a pending chunk, of which one also has a pending row
    () => `insert into svc.chunk_pending
        select proof_ids[1], batch_id, first_index, 1, now(), 2 from svc.batch_part b where ${VALID_BATCH};
      insert into svc.intake_pending select chunk_id, accepted_at from svc.chunk_pending`,
  ],
  [{ grant_changes_differ: 2 }, () => 'delete from svc.grant_change where change_no = 1'],
  update(
    'batch_differs',
    'batch_part',
    'proof_ids = proof_ids[1:4], replayed = null',
    'cardinality(proof_ids) > 4',
  ),
];

const rest: Damage[] = [
  run('tile_missing', 'delete from svc.tile where level = 1'),
  update(
    'policy_set_altered',
    'policy_set',
    `files = jsonb_set(files, array['policies',
      (select min(id) from jsonb_object_keys(files -> 'policies') as id)], '"// gone"')`,
  ),
  run(
    'policy_set_altered',
    `insert into svc.overlay_set select 1, sha256('{}'), digest, digest, manifest,
      '{"overlay.a":"forbid (principal, action, resource);"}', '{}', '{}' from svc.policy_set`,
  ),
  run('grant_changes_differ', 'delete from svc.grant_head'),
  update('batch_differs', 'batch', 'tenant_no = 9999', `batch_id = ${LAST_BATCH}`),
  [
    { leaf_misfiled: 1, revocation_lost: 1, status_exception_missing: 1 },
    (id) => `${failed(FIRST_STATUS)} update svc.log_entry set revokes = ${id} where kind = 2`,
  ],
  [
    { request_altered: 2 }, // of a rejected and of a pending admission
    () => `update svc.intake set ${flip('request', 30)}
      where refused or proof_id in (select proof_id from svc.intake_pending)`,
  ],
  update(
    'batch_differs',
    'batch_progress',
    'admitted = admitted - 1, denied = denied + 1',
    'invalid > 0',
  ),
];

/**
 * Groups of damage cases that do not affect each other; the cases of a group share one copy of the
 * registry.
 */
export const TOGETHER: [what: string, damages: Damage[]][] = [
  ['payloads and admissions', payloads],
  ['columns of proofs', columns],
  ['rows of the log', rows],
  ['derived rows', derived],
  ['other derived rows', others],
  ['the rest', rest],
];

/** Damage cases with wide effects; each case has its own copy of the registry. */
export const ALONE: [what: string, ...Damage][] = [
  [
    'a log shorter than its checkpoint',
    // Tiles, admissions and a batch of the lost leaves remain.
    { checkpoint_beyond_log: 1, verdict_beyond_log: 1, tile_beyond_head: 1, batch_differs: 1 },
    () => CUT_LOG,
  ],
  [
    'a consistently rewritten log',
    // The verdict entry has the verifier's signature of the root before the rewrite.
    { checkpoint_root_differs: 1, verdict_root_differs: 1, verdict_entry_wrong: 1 },
    () => REWRITTEN_LOG,
  ],
  [
    'an altered key entry',
    { key_history_broken: 1 },
    () => `${failed('0')} update svc.log_entry set ${flip('body', 60)} where leaf_index = 0`,
  ],
  [
    'a missing key entry, without its consequences',
    { leaf_missing: 1 },
    () => `${failed('0')} delete from svc.log_entry where leaf_index = 0`,
  ],
  [
    'missing status exceptions of a revoked, an expired and an erased proof',
    { status_exception_missing: 3, erasure_unlogged: 1 },
    (id, leaf) => `${erasedJustNow(id, leaf)}; delete from svc.status_exception`,
  ],
  ['a missing log head', { log_head_missing: 1 }, () => 'delete from svc.log_head'],
  [
    'a missing policy activation',
    { policy_activation_differs: 1 },
    () => 'delete from svc.policy_activation',
  ],
  [
    'a missing policy activation and its audit record',
    { policy_activation_differs: 1 },
    () =>
      `delete from svc.policy_activation; delete from svc.audit where object = 'policy_activation'`,
  ],
  [
    'missing rows of retired logs',
    { ended_log_differs: 2 },
    () => `insert into svc.ended_log (origin, tree_size, reason) values ('without.checkpoint', 9, 'lost');
      insert into svc.ended_checkpoint select 'without.row', tree_size, root, note, created_at from svc.checkpoint`,
  ],
  [
    'an activation that svc.audit lacks',
    { policy_activation_differs: 1 },
    () => `insert into svc.policy_activation (digest) select digest from svc.policy_set`,
  ],
  ['a missing policy set', { policy_set_altered: 1 }, () => 'delete from svc.policy_set'],
  [
    'missing leaves of proofs of a package, a token and a batch',
    { leaf_missing: 3, package_differs: 1, share_target_missing: 1, batch_differs: 1 },
    () => [PACKAGED, SHARED, BATCHED].map(missing).join(';'),
  ],
  [
    'orphan rows of missing tokens, packages, batches and admissions',
    { grant_changes_differ: 5, package_differs: 1, batch_differs: 1, erasure_incomplete: 1 },
    () => `delete from svc.share_token where package_id is not null;
      delete from svc.trust_package where package_id = ${FIRST_PACKAGE};
      delete from svc.batch where batch_id = ${FIRST_BATCH};
      insert into svc.erasure values ('${UNKNOWN}', null, now(), 'ada', 'CASE-1')`,
  ],
];

/** The statements that damage the proof with this number. */
export function planted({ world }: SoundRegistry, [, plant]: Damage, number: number): string {
  const id = `'${world.old[60 + number]!}'::uuid`;
  return `${plant(id, leafOf(id))};`;
}
