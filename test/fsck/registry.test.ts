import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { toUuid } from '#sql/db/columns';
import { checked, type Plantation } from '../fixtures/planted.js';
import { soundPlantation, type SoundPlantation } from '../fixtures/sound-plantation.js';
import type { SoundRegistry } from '../fixtures/sound-registry.js';

/** Each case damages one thing in a copy of a sound registry and expects exactly its findings. */

let planted: SoundPlantation;
let sound: SoundRegistry;
let plantation: Plantation;

beforeAll(async () => {
  planted = await soundPlantation();
  ({ sound, plantation } = planted);
});
afterEach(() => plantation.clear());
afterAll(() => planted.drop());

const flip = (column: string, at = 40): string =>
  `${column} = set_byte(${column}, ${String(at)}, get_byte(${column}, ${String(at)}) # 1)`;
/** A proof in the middle of the first tile, and one in the partial second tile. */
const old = (): string => `'${toUuid(sound.world.old[100]!)}'::uuid`;
const fresh = (): string => `'${toUuid(sound.world.fresh[35]!)}'::uuid`;
const leafOf = (id: string): string => `(select leaf_index from svc.proof where proof_id = ${id})`;
/** Writes the scrubber's verdict on a leaf, so that only the damage is found. */
const failed = (leaf: string): string => `
  insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
  select false, l, l, h.tree_size, '\\x${'00'.repeat(32)}', 'fail', '[]'
  from (select ${leaf} as l) as it, svc.log_head h;`;

/** The batch with only valid items. */
const isValid = `exists (select from svc.batch_progress g where g.batch_id = b.batch_id and g.invalid = 0)`;

const BARE = 'aep = null, signature = null, action = null, intent_id = null';
const recorded = (id: string): string => `
  insert into svc.erasure select proof_id, leaf_index, now(), 'ada', 'CASE-1' from svc.proof
  where proof_id = ${id};`;
/** An erased proof with its ERASED verdict. */
const erased = (id: string): string => `${recorded(id)}
  update svc.proof set ${BARE} where proof_id = ${id};
  update svc.intake set request = null, request_hash = null, salt = null where proof_id = ${id};
  ${failed(leafOf(id)).replace("'fail'", "'erased'")}`;

describe('fsck of the registry', () => {
  it('accepts an erased proof, also before the verifier records the erasure', async () => {
    const { env, damage } = await plantation.copy();
    await damage(`${erased(old())} ${recorded(fresh())} update svc.proof set ${BARE} where proof_id = ${fresh()};
      update svc.intake set request = null, request_hash = null, salt = null where proof_id = ${fresh()};
      insert into svc.erasure_due select ${leafOf(fresh())}`);
    const { code, findings } = await checked(env, '--only', 'registry');
    expect({ code, findings }).toEqual({ code: 0, findings: [] });
  });

  it('finds an erased proof that is published as valid', async () => {
    const { env, damage } = await plantation.copy();
    // Among the verdicts up to the snapshot's cursor.
    await damage(
      erased(old())
        .replace('(frontier,', '(verdict_id, frontier,')
        .replace('checks)\n', 'checks) overriding system value\n')
        .replace('select false,', 'select 0, false,'),
    );
    const { corrupt } = await checked(env);
    expect(corrupt['body_asserts']).toBe(1);
  });
});

describe('fsck of the registry finds', () => {
  const table: [what: string, plant: () => string, found: Record<string, number>][] = [
    [
      'a flipped byte in an AEP',
      () =>
        `update svc.proof set ${flip('aep')} where proof_id = ${old()};${failed(leafOf(old()))}`,
      { aep_altered: 1 },
    ],
    [
      'a flipped byte in a signature',
      () =>
        `update svc.proof set ${flip('signature')} where proof_id = ${old()};${failed(leafOf(old()))}`,
      { signature_invalid: 1 },
    ],
    [
      'a flipped byte in a request',
      () =>
        `update svc.intake set ${flip('request', 60)} where proof_id = ${old()};${failed(leafOf(old()))}`,
      { request_altered: 1 },
    ],
    [
      'a missing AEP',
      () => `update svc.proof set aep = null where proof_id = ${old()};${failed(leafOf(old()))}`,
      { proof_payload_missing: 1 },
    ],
    [
      'a completely missing payload without an erasure record',
      () => `update svc.proof set ${BARE} where proof_id = ${old()};
        update svc.intake set request = null, request_hash = null, salt = null where proof_id = ${old()};
        ${failed(leafOf(old()))}`,
      { proof_payload_missing: 1 },
    ],
    [
      'a missing request without an erasure record',
      () => `update svc.intake set request = null where proof_id = ${old()}`,
      { intake_differs: 1 },
    ],
    [
      'an erasure record beside the payload',
      () => recorded(old()),
      { erasure_incomplete: 1, verdict_passes: 1 },
    ],
    [
      'a partial erasure of a misplaced proof',
      () => `${erased(old())} update svc.proof set signature = '\\x00', leaf_index = leaf_index + 1000000
        where proof_id = ${old()}`,
      { erasure_incomplete: 2, proof_misplaced: 1, proof_not_in_log: 1 },
    ],
    [
      'an erased proof with a pass verdict',
      () => `${erased(old())} delete from svc.verdict where outcome = 'erased'`,
      { verdict_passes: 1 },
    ],
    [
      'a rejected admission with a missing request and no erasure record',
      () => `update svc.intake set request = null where refused`,
      { proof_payload_missing: 1 },
    ],
    [
      'a verdict with another keys digest',
      () => `update svc.verdict set ${flip('keys_digest', 1)} where frontier and last_index =
        (select max(last_index) from svc.verdict where frontier)`,
      { verdict_keys_differ: 1 },
    ],
    [
      'a column that differs from the AEP',
      () =>
        `update svc.proof set effect = 'DENY' where proof_id = ${old()};${failed(leafOf(old()))}`,
      // Its package then has a member that is not allowed.
      { columns_differ: 1 },
    ],
    [
      'a proof row with another leaf index',
      () => `update svc.proof set leaf_index = leaf_index + 1 where proof_id = ${old()}`,
      { proof_misplaced: 1, proof_not_in_log: 1 },
    ],
    [
      'a missing proof row',
      () => `insert into svc.intake_pending select proof_id, accepted_at from svc.intake where proof_id = ${old()};
        ${failed(leafOf(old()))} delete from svc.proof where proof_id = ${old()}`,
      { proof_missing: 1 },
    ],
    [
      'a proof without a leaf',
      () => `insert into svc.proof select '${toUuid('0'.repeat(31) + '1')}', 9999, effect, environment,
        key_id, aep, signature, tenant_no, lane, action, intent_id from svc.proof where proof_id = ${old()}`,
      { proof_not_in_log: 1, intake_missing: 1 },
    ],
    [
      'a flipped byte in an entry of a full tile',
      () => `${failed(leafOf(old()))}
        update svc.log_entry set ${flip('aep_hash', 3)} where proof_id = ${old()} and kind = 1`,
      { leaf_altered: 1 },
    ],
    [
      'a flipped byte in an entry of the last tile',
      () => `${failed(leafOf(fresh()))}
        update svc.log_entry set ${flip('proof_record_hash', 3)} where proof_id = ${fresh()} and kind = 1`,
      { leaf_altered: 1 },
    ],
    [
      'a missing leaf row',
      () =>
        `${failed(leafOf(old()))} delete from svc.log_entry where proof_id = ${old()} and kind = 1`,
      { leaf_missing: 1 },
    ],
    [
      'a leaf row beyond the log head',
      () => `insert into svc.log_entry (leaf_index, kind, at, body) values (9999, 3, now(), '{}')`,
      { leaf_beyond_head: 1 },
    ],
    [
      'two swapped leaves',
      () => `${failed('10')}${failed('11')}
        update svc.log_entry set leaf_index = leaf_index + 10000 where leaf_index in (10, 11);
        update svc.log_entry set leaf_index = 10021 - leaf_index where leaf_index in (10010, 10011)`,
      { leaf_altered: 2 },
    ],
    [
      'a flipped byte in a full tile',
      () => `update svc.tile set ${flip('hashes', 320)} where level = 0 and tile_index = 0`,
      { tile_altered: 1 },
    ],
    [
      'a flipped byte in the last tile',
      () => `update svc.tile set ${flip('hashes', 64)} where level = 0 and tile_index = 1`,
      { tile_altered: 1 },
    ],
    [
      'a flipped byte in a tile above the leaves',
      () => `update svc.tile set ${flip('hashes', 3)} where level = 1`,
      { tile_altered: 1 },
    ],
    ['a missing tile', () => 'delete from svc.tile where level = 1', { tile_missing: 1 }],
    [
      'a tile beyond the log',
      () => `insert into svc.tile values (0, 7, '\\x${'ab'.repeat(32)}')`,
      { tile_beyond_head: 1 },
    ],
    [
      'a flipped byte in the note of a checkpoint',
      () => `update svc.checkpoint set note = overlay(note placing
          case substr(note, length(note) - 20, 1) when 'A' then 'B' else 'A' end from length(note) - 20)
        where tree_size = (select min(tree_size) from svc.checkpoint)`,
      { checkpoint_unverifiable: 1 },
    ],
    [
      'a flipped byte in the root of a checkpoint',
      () => `update svc.checkpoint set ${flip('root', 5)}
        where tree_size = (select min(tree_size) from svc.checkpoint)`,
      { checkpoint_altered: 1 },
    ],
    [
      'a log shorter than its checkpoint',
      () => `update svc.log_head set tree_size = tree_size - 3;
        delete from svc.log_entry where leaf_index >= (select tree_size from svc.log_head)`,
      // Proofs and tiles of the lost leaves are still there, without their leaves.
      {
        checkpoint_beyond_log: 1,
        verdict_beyond_log: 1,
        tile_beyond_head: 1,
        proof_not_in_log: 2,
      },
    ],
    [
      'a consistently rewritten log',
      () => `update svc.log_entry set at = at + interval '1 second', body = convert_to(regexp_replace(
          convert_from(body, 'UTF8'), '"time":"[^"]*"', '"time":"' || to_char((at + interval '1 second')
          at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"'), 'UTF8') where kind = 2;
        update svc.tile set hashes = overlay(hashes placing sha256('\\x00'::bytea || e.body)
          from (e.leaf_index % 256 * 32 + 1)::int for 32)
          from svc.log_entry e where e.kind = 2 and level = 0 and tile_index = e.leaf_index / 256`,
      { checkpoint_root_differs: 1, verdict_root_differs: 1 },
    ],
    [
      'a missing revocation row',
      () => `${failed(`(select min(leaf_index) from svc.log_entry where kind = 2)`)}
        delete from svc.log_entry where kind = 2`,
      { leaf_missing: 1, revocation_lost: 1 },
    ],
    [
      'a revocation row with another proof id',
      () => `${failed(`(select min(leaf_index) from svc.log_entry where kind = 2)`)}
        update svc.log_entry set proof_id = ${old()} where kind = 2`,
      { leaf_misfiled: 1, revocation_lost: 1 },
    ],
    [
      'a missing revocation reason',
      () => 'delete from svc.revocation_reason',
      { revocation_reason_missing: 1 },
    ],
    [
      'an altered revocation reason',
      () => `update svc.revocation_reason set ${flip('document', 20)}`,
      { revocation_reason_altered: 1 },
    ],
    [
      'an altered key entry',
      () => `${failed('0')} update svc.log_entry set ${flip('body', 60)} where leaf_index = 0`,
      { key_history_broken: 1 },
    ],
    [
      'a missing key entry, without its consequences',
      () => `${failed('0')} delete from svc.log_entry where leaf_index = 0`,
      { leaf_missing: 1 },
    ],
    [
      'a pass verdict on a leaf that does not verify',
      () => `update svc.proof set ${flip('aep')} where proof_id = ${fresh()}`,
      { aep_altered: 1, verdict_passes: 1 },
    ],
    [
      'leaves without a verdict',
      () => `delete from svc.verdict where frontier and last_index =
        (select min(last_index) from svc.verdict where frontier)`,
      { verdict_gap: 1 },
    ],
    [
      'a verdict of another tree',
      () => `update svc.verdict set ${flip('root', 1)} where frontier and last_index =
        (select max(last_index) from svc.verdict where frontier)`,
      { verdict_root_differs: 1 },
    ],
    [
      'a missing expiry',
      () => `delete from svc.expiry where artifact_kind = 'passport'`,
      { expiry_missing: 1 },
    ],
    [
      'an altered expiry',
      () => `update svc.expiry set expires_at = expires_at + interval '1 day'`,
      { expiry_differs: 1 },
    ],
    [
      'an expiry that no AEP has',
      () => `insert into svc.expiry values (3, 'trust', now() + interval '1 day')`,
      { expiry_differs: 1 },
    ],
    ['a lost admission', () => 'delete from svc.intake_pending', { intake_lost: 1 }],
    [
      'an admission that is proved and rejected',
      () => `insert into svc.refusal values (${old()}, 'x', 'x')`,
      { intake_contradicts: 1 },
    ],
    [
      'a missing intake row of a proof',
      () => `delete from svc.intake where proof_id = ${old()}`,
      { intake_missing: 1 },
    ],
    [
      'an intake row whose validity differs from the AEP',
      () =>
        `update svc.intake set validity = '{"proof":null,"certificate":60,"passport":null,"trust":null}'
          where proof_id = ${old()}`,
      { intake_differs: 1 },
    ],
    [
      'an intake row with another salt',
      () => `update svc.intake set ${flip('salt', 1)} where proof_id = ${old()}`,
      { intake_differs: 1 },
    ],
    [
      'two admissions with one deduplication key',
      () => `drop index svc.intake_identity;
        update svc.intake set (request, request_hash) = (select request, request_hash from svc.intake where proof_id = ${old()})
          where proof_id = (select proof_id from svc.intake_pending)`,
      { identity_twice: 1 },
    ],
    [
      'a missing policy input',
      () =>
        'delete from svc.policy_input where input_hash = (select min(input_hash) from svc.policy_input)',
      { policy_input_missing: 1 },
    ],
    [
      'an altered policy input',
      () => `update svc.policy_input set ${flip('input', 3)} where input_hash =
        (select min(input_hash) from svc.policy_input)`,
      { policy_input_altered: 1 },
    ],
    [
      'an altered policy set',
      () => `update svc.policy_set set manifest = manifest || ' '`,
      { policy_set_altered: 1 },
    ],
    [
      'a package with a replaced member',
      () => `update svc.package_member set proof_id = ${old()} where position = 0
        and package_id = (select min(package_id::text)::uuid from svc.trust_package)`,
      { package_differs: 1 },
    ],
    [
      'a token with an unknown target',
      () => `update svc.share_token set proof_id = '${toUuid('0'.repeat(31) + '1')}'
        where artifact_kind = 'trust'`,
      { share_target_missing: 1 },
    ],
    [
      'a token with an early recorded expiry',
      () =>
        `update svc.share_token set expires_at = expires_at + interval '1 day' where expires_at is not null`,
      { share_end_differs: 1 },
    ],
    [
      'a token with a deleted revocation',
      () => 'delete from svc.share_revocation',
      { grant_changes_differ: 1 },
    ],
    [
      'a missing change number',
      () => `delete from svc.grant_change where change_no = 1`,
      { grant_changes_differ: 2 },
    ],
    [
      'altered requests of admissions without a leaf',
      () => `update svc.intake set ${flip('request', 30)}
        where refused or proof_id in (select proof_id from svc.intake_pending)`,
      { request_altered: 2 },
    ],
    [
      'orphan rows of missing tokens, packages, batches and admissions',
      () => `delete from svc.share_token where package_id is not null;
        delete from svc.trust_package where package_id = (select min(package_id::text)::uuid from svc.trust_package);
        delete from svc.batch where batch_id = (select min(batch_id::text)::uuid from svc.batch);
        insert into svc.erasure values ('${toUuid('0'.repeat(31) + '1')}', null, now(), 'ada', 'CASE-1')`,
      { grant_changes_differ: 5, package_differs: 1, batch_differs: 1, erasure_incomplete: 1 },
    ],
    [
      'a pending admission of a batch without a chunk lease',
      () =>
        `update svc.intake_pending set batch_id = (select min(batch_id::text)::uuid from svc.batch)`,
      { intake_lost: 1 },
    ],
    [
      'a batch with a missing item',
      () =>
        'update svc.batch_part set proof_ids = proof_ids[1:4], replayed = null where cardinality(proof_ids) > 4',
      { batch_differs: 1 },
    ],
    [
      'a batch with wrong counts',
      () => `update svc.batch_progress set admitted = admitted - 1, denied = denied + 1
        where invalid > 0`,
      { batch_differs: 1 },
    ],
    [
      'a batch with another items hash',
      () => `update svc.batch b set ${flip('items_hash', 3)} where ${isValid}`,
      { batch_differs: 1 },
    ],
    [
      'a batch with a replaced item',
      () => `update svc.batch_part b set proof_ids[2] = ${old()} where ${isValid}`,
      { batch_differs: 1 },
    ],
    [
      'a batch with a missing items hash and no erasure',
      () => `update svc.batch b set items_hash = null where ${isValid}`,
      { batch_differs: 1 },
    ],
  ];

  it.each(table)('%s', async (_what, plant, found) => {
    const { env, damage } = await plantation.copy();
    await damage(plant());
    const { code, corrupt, findings, err } = await checked(env, '--only', 'registry');
    expect({ corrupt, err, findings }).toMatchObject({ corrupt: found, err: '' });
    expect(corrupt).toEqual(found);
    expect(code).toBe(1);
    for (const finding of findings) {
      expect(finding.where).not.toBe('');
      expect(finding.expected).not.toBe('');
      expect(finding.advice).not.toBe('');
    }
  });
});
