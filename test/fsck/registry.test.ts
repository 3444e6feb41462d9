import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { toUuid } from '#sql/db/columns';
import { checked, type Plantation } from '../fixtures/planted.js';
import { soundPlantation, type SoundPlantation } from '../fixtures/sound-plantation.js';
import type { SoundRegistry } from '../fixtures/sound-registry.js';

/** One thing is damaged behind everybody's back in a copy of a sound registry, and just that is found. */

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
/** The proof in the middle of the first tile, and one in the second, which is not full. */
const old = (): string => `'${toUuid(sound.world.old[100]!)}'::uuid`;
const fresh = (): string => `'${toUuid(sound.world.fresh[35]!)}'::uuid`;
const leafOf = (id: string): string => `(select leaf_index from svc.proof where proof_id = ${id})`;
/** Says of a leaf what the scrubber would, so that what is found is the damage and nothing that follows. */
const failed = (leaf: string): string => `
  insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
  select false, l, l, h.tree_size, '\\x${'00'.repeat(32)}', 'fail', '[]'
  from (select ${leaf} as l) as it, svc.log_head h;`;

/** Of the batch whose items all were in order. */
const isValid = `exists (select from svc.batch_progress g where g.batch_id = b.batch_id and g.invalid = 0)`;

const BARE = 'aep = null, signature = null, action = null, intent_id = null';
const recorded = (id: string): string => `
  insert into svc.erasure select proof_id, leaf_index, now(), 'ada', 'CASE-1' from svc.proof
  where proof_id = ${id};`;
/** As it is once it was erased and the verifier said so. */
const erased = (id: string): string => `${recorded(id)}
  update svc.proof set ${BARE} where proof_id = ${id};
  update svc.intake set request = null, request_hash = null, salt = null where proof_id = ${id};
  ${failed(leafOf(id)).replace("'fail'", "'erased'")}`;

describe('the registry half of fsck', () => {
  it('finds an erased proof clean, and also one of which the verifier is still to say so', async () => {
    const { env, damage } = await plantation.copy();
    await damage(`${erased(old())} ${recorded(fresh())} update svc.proof set ${BARE} where proof_id = ${fresh()};
      update svc.intake set request = null, request_hash = null, salt = null where proof_id = ${fresh()};
      insert into svc.erasure_due select ${leafOf(fresh())}`);
    const { code, findings } = await checked(env, '--only', 'registry');
    expect({ code, findings }).toEqual({ code: 0, findings: [] });
  });

  it('holds the public to it: what is erased is not asserted', async () => {
    const { env, damage } = await plantation.copy();
    // Among the verdicts that the snapshot has taken up by its bookmark.
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

describe('the registry half of fsck finds', () => {
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
      'an AEP that is gone',
      () => `update svc.proof set aep = null where proof_id = ${old()};${failed(leafOf(old()))}`,
      { proof_payload_missing: 1 },
    ],
    [
      'a payload that is gone without a record, all of it',
      () => `update svc.proof set ${BARE} where proof_id = ${old()};
        update svc.intake set request = null, request_hash = null, salt = null where proof_id = ${old()};
        ${failed(leafOf(old()))}`,
      { proof_payload_missing: 1 },
    ],
    [
      'a request that is gone without a record',
      () => `update svc.intake set request = null where proof_id = ${old()}`,
      { intake_differs: 1 },
    ],
    [
      'a record of an erasure, and the payload',
      () => recorded(old()),
      { erasure_incomplete: 1, verdict_passes: 1 },
    ],
    [
      'an erasure by half, of a proof that is elsewhere',
      () => `${erased(old())} update svc.proof set signature = '\\x00', leaf_index = leaf_index + 1000000
        where proof_id = ${old()}`,
      { erasure_incomplete: 2, proof_misplaced: 1, proof_not_in_log: 1 },
    ],
    [
      'an erased proof that a verdict passes',
      () => `${erased(old())} delete from svc.verdict where outcome = 'erased'`,
      { verdict_passes: 1 },
    ],
    [
      'a refused admission whose request is gone without a record',
      () => `update svc.intake set request = null where refused`,
      { proof_payload_missing: 1 },
    ],
    [
      'a verdict that rests on other keys',
      () => `update svc.verdict set ${flip('keys_digest', 1)} where frontier and last_index =
        (select max(last_index) from svc.verdict where frontier)`,
      { verdict_keys_differ: 1 },
    ],
    [
      'a column that is not what the AEP says',
      () =>
        `update svc.proof set effect = 'DENY' where proof_id = ${old()};${failed(leafOf(old()))}`,
      // A package that it is in has a member that it may not have.
      { columns_differ: 1 },
    ],
    [
      'a proof that is filed at another leaf',
      () => `update svc.proof set leaf_index = leaf_index + 1 where proof_id = ${old()}`,
      { proof_misplaced: 1, proof_not_in_log: 1 },
    ],
    [
      'a proof row that is gone',
      () => `insert into svc.intake_pending select proof_id, accepted_at from svc.intake where proof_id = ${old()};
        ${failed(leafOf(old()))} delete from svc.proof where proof_id = ${old()}`,
      { proof_missing: 1 },
    ],
    [
      'a proof that the log does not have',
      () => `insert into svc.proof select '${toUuid('0'.repeat(31) + '1')}', 9999, effect, environment,
        key_id, aep, signature, tenant_no, lane, action, intent_id from svc.proof where proof_id = ${old()}`,
      { proof_not_in_log: 1, intake_missing: 1 },
    ],
    [
      'a flipped byte in an entry, in a tile that is full',
      () => `${failed(leafOf(old()))}
        update svc.log_entry set ${flip('aep_hash', 3)} where proof_id = ${old()} and kind = 1`,
      { leaf_altered: 1 },
    ],
    [
      'a flipped byte in an entry, in the last tile',
      () => `${failed(leafOf(fresh()))}
        update svc.log_entry set ${flip('proof_record_hash', 3)} where proof_id = ${fresh()} and kind = 1`,
      { leaf_altered: 1 },
    ],
    [
      'a leaf whose row is gone',
      () =>
        `${failed(leafOf(old()))} delete from svc.log_entry where proof_id = ${old()} and kind = 1`,
      { leaf_missing: 1 },
    ],
    [
      'a row behind the end of the log',
      () => `insert into svc.log_entry (leaf_index, kind, at, body) values (9999, 3, now(), '{}')`,
      { leaf_beyond_head: 1 },
    ],
    [
      'two leaves that changed places',
      () => `${failed('10')}${failed('11')}
        update svc.log_entry set leaf_index = leaf_index + 10000 where leaf_index in (10, 11);
        update svc.log_entry set leaf_index = 10021 - leaf_index where leaf_index in (10010, 10011)`,
      { leaf_altered: 2 },
    ],
    [
      'a flipped byte in a tile that is full',
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
    ['a tile that is gone', () => 'delete from svc.tile where level = 1', { tile_missing: 1 }],
    [
      'a tile that no leaf has',
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
      'a log that is shorter than what was signed',
      () => `update svc.log_head set tree_size = tree_size - 3;
        delete from svc.log_entry where leaf_index >= (select tree_size from svc.log_head)`,
      // Nothing of the lost leaves is where it was either; their proofs and tiles are still there.
      {
        checkpoint_beyond_log: 1,
        verdict_beyond_log: 1,
        tile_beyond_head: 1,
        proof_not_in_log: 2,
      },
    ],
    [
      'a log that was rewritten with all that hangs on it',
      () => `update svc.log_entry set at = at + interval '1 second', body = convert_to(regexp_replace(
          convert_from(body, 'UTF8'), '"time":"[^"]*"', '"time":"' || to_char((at + interval '1 second')
          at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"'), 'UTF8') where kind = 2;
        update svc.tile set hashes = overlay(hashes placing sha256('\\x00'::bytea || e.body)
          from (e.leaf_index % 256 * 32 + 1)::int for 32)
          from svc.log_entry e where e.kind = 2 and level = 0 and tile_index = e.leaf_index / 256`,
      { checkpoint_root_differs: 1, verdict_root_differs: 1 },
    ],
    [
      'a revocation whose row is gone',
      () => `${failed(`(select min(leaf_index) from svc.log_entry where kind = 2)`)}
        delete from svc.log_entry where kind = 2`,
      { leaf_missing: 1, revocation_lost: 1 },
    ],
    [
      'a revocation that is filed under another proof',
      () => `${failed(`(select min(leaf_index) from svc.log_entry where kind = 2)`)}
        update svc.log_entry set proof_id = ${old()} where kind = 2`,
      { leaf_misfiled: 1, revocation_lost: 1 },
    ],
    [
      'a reason that is gone',
      () => 'delete from svc.revocation_reason',
      { revocation_reason_missing: 1 },
    ],
    [
      'a reason that was altered',
      () => `update svc.revocation_reason set ${flip('document', 20)}`,
      { revocation_reason_altered: 1 },
    ],
    [
      'a key entry that was altered',
      () => `${failed('0')} update svc.log_entry set ${flip('body', 60)} where leaf_index = 0`,
      { key_history_broken: 1 },
    ],
    [
      'a key entry whose row is gone, and not what it brings with it',
      () => `${failed('0')} delete from svc.log_entry where leaf_index = 0`,
      { leaf_missing: 1 },
    ],
    [
      'a verdict that passes what does not verify',
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
      'an end that nobody remembers',
      () => `delete from svc.expiry where artifact_kind = 'passport'`,
      { expiry_missing: 1 },
    ],
    [
      'an end that was moved',
      () => `update svc.expiry set expires_at = expires_at + interval '1 day'`,
      { expiry_differs: 1 },
    ],
    [
      'an end that no AEP has',
      () => `insert into svc.expiry values (3, 'trust', now() + interval '1 day')`,
      { expiry_differs: 1 },
    ],
    ['an admission that is lost', () => 'delete from svc.intake_pending', { intake_lost: 1 }],
    [
      'an admission that is proved and refused',
      () => `insert into svc.refusal values (${old()}, 'x', 'x')`,
      { intake_contradicts: 1 },
    ],
    [
      'an admission that was proved and is gone',
      () => `delete from svc.intake where proof_id = ${old()}`,
      { intake_missing: 1 },
    ],
    [
      'an admission that pins an end which its AEP does not have',
      () =>
        `update svc.intake set validity = '{"proof":null,"certificate":60,"passport":null,"trust":null}'
          where proof_id = ${old()}`,
      { intake_differs: 1 },
    ],
    [
      'an admission whose salt is another',
      () => `update svc.intake set ${flip('salt', 1)} where proof_id = ${old()}`,
      { intake_differs: 1 },
    ],
    [
      'two admissions of one identity',
      () => `drop index svc.intake_identity;
        update svc.intake set (request, request_hash) = (select request, request_hash from svc.intake where proof_id = ${old()})
          where proof_id = (select proof_id from svc.intake_pending)`,
      { identity_twice: 1 },
    ],
    [
      'an input that was decided on and is gone',
      () =>
        'delete from svc.policy_input where input_hash = (select min(input_hash) from svc.policy_input)',
      { policy_input_missing: 1 },
    ],
    [
      'an input that was altered',
      () => `update svc.policy_input set ${flip('input', 3)} where input_hash =
        (select min(input_hash) from svc.policy_input)`,
      { policy_input_altered: 1 },
    ],
    [
      'a policy set that was altered',
      () => `update svc.policy_set set manifest = manifest || ' '`,
      { policy_set_altered: 1 },
    ],
    [
      'a package with another member',
      () => `update svc.package_member set proof_id = ${old()} where position = 0
        and package_id = (select min(package_id::text)::uuid from svc.trust_package)`,
      { package_differs: 1 },
    ],
    [
      'a token that shows something that there is not',
      () => `update svc.share_token set proof_id = '${toUuid('0'.repeat(31) + '1')}'
        where artifact_kind = 'trust'`,
      { share_target_missing: 1 },
    ],
    [
      'a token that is over before its time',
      () =>
        `update svc.share_token set expires_at = expires_at + interval '1 day' where expires_at is not null`,
      { share_end_differs: 1 },
    ],
    [
      'a token that lives again',
      () => 'delete from svc.share_revocation',
      { grant_changes_differ: 1 },
    ],
    [
      'a change that is left out',
      () => `delete from svc.grant_change where change_no = 1`,
      { grant_changes_differ: 2 },
    ],
    [
      'requests that nothing in the log vouches for and that were altered',
      () => `update svc.intake set ${flip('request', 30)}
        where refused or proof_id in (select proof_id from svc.intake_pending)`,
      { request_altered: 2 },
    ],
    [
      'tokens, packages, batches and admissions that are gone, by what is left of each',
      () => `delete from svc.share_token where package_id is not null;
        delete from svc.trust_package where package_id = (select min(package_id::text)::uuid from svc.trust_package);
        delete from svc.batch where batch_id = (select min(batch_id::text)::uuid from svc.batch);
        insert into svc.erasure values ('${toUuid('0'.repeat(31) + '1')}', null, now(), 'ada', 'CASE-1')`,
      { grant_changes_differ: 5, package_differs: 1, batch_differs: 1, erasure_incomplete: 1 },
    ],
    [
      'an admission of a batch of which no worker is ever told',
      () =>
        `update svc.intake_pending set batch_id = (select min(batch_id::text)::uuid from svc.batch)`,
      { intake_lost: 1 },
    ],
    [
      'a batch that lost an item',
      () =>
        'update svc.batch_part set proof_ids = proof_ids[1:4], replayed = null where cardinality(proof_ids) > 4',
      { batch_differs: 1 },
    ],
    [
      'a batch that counts wrongly',
      () => `update svc.batch_progress set admitted = admitted - 1, denied = denied + 1
        where invalid > 0`,
      { batch_differs: 1 },
    ],
    [
      'a batch whose hash is not that of its items',
      () => `update svc.batch b set ${flip('items_hash', 3)} where ${isValid}`,
      { batch_differs: 1 },
    ],
    [
      'a batch with another item in place of one',
      () => `update svc.batch_part b set proof_ids[2] = ${old()} where ${isValid}`,
      { batch_differs: 1 },
    ],
    [
      'a batch whose hash is gone although nothing of it was erased',
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
