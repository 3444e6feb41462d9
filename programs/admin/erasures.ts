import { PROOF_ID_PATTERN } from '#protocol/ids';
import { erasePayloads, erasureOf, requireErasable } from '#sql/erasure/payloads';
import { eraseTenantTraces, tenantNumber, unerasedFrom } from '#sql/erasure/tenant';
import { eraseTraces, holdKeys } from '#sql/erasure/traces';
import {
  confirmOption,
  required,
  requireConfirmed,
  UsageError,
  words,
  type Admin,
  type Command,
  type ParsedArgs,
  type Option,
} from './command.js';

/** Each group has its own transaction: an interrupted run continues where it stopped. */
const AT_ONCE = 500;
const FIRST = '0'.repeat(32);

const REASON: Option = {
  value: 'reference',
  required: true,
  help: 'reference of the erasure request, such as a case number; kept permanently, so no name',
};

export const erasureCommands: Command[] = [
  {
    name: 'erase',
    takes: ['<proof_id>'],
    role: 'erase',
    options: { reason: REASON, confirm: confirmOption('proof_id') },
    help: 'erase the payload of one admission permanently; the log keeps its salted commitments',
    example:
      'erase 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --reason CASE-17 --confirm 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    run: async (admin, given) => {
      const proofId = given.argument(0);
      requireConfirmed(given, proofId);
      if (!PROOF_ID_PATTERN.test(proofId)) throw new UsageError('the argument is not a proof id');
      const order = orderOf(admin, given);
      return admin.act(async (tx) => {
        await holdKeys(tx);
        const erased = await erasePayloads(tx, [proofId], order);
        if (erased.length === 0) await requireErasable(tx, proofId);
        await eraseTraces(tx, erased);
        const record = await erasureOf(tx, proofId);
        return {
          document: {
            proof_id: proofId,
            erased: erased.some(({ isNew }) => isNew),
            erased_at: record?.erasedAt,
            actor: record?.actor,
            reason_ref: record?.reasonRef,
          },
        };
      });
    },
  },
  {
    name: 'erase tenant',
    takes: ['<tenant_id>'],
    role: 'erase',
    options: { reason: REASON, confirm: confirmOption('tenant_id') },
    help: 'erase the payloads of all admissions of a tenant; resumes an interrupted run',
    example: 'erase tenant acme --reason CASE-18 --confirm acme',
    run: async (admin, given) => {
      const tenantId = given.argument(0);
      requireConfirmed(given, tenantId);
      const order = orderOf(admin, given);
      const tenantNo = await tenantNumber(await admin.database(), tenantId);
      let erased = 0;
      let unsettled = 0;
      for (let after = FIRST, more = true; more;) {
        const ids = await unerasedFrom(await admin.database(), tenantNo, after, AT_ONCE);
        const done = await admin.act((tx) => erasePayloads(tx, ids, order));
        erased += done.filter(({ isNew }) => isNew).length;
        unsettled += ids.length - done.length;
        after = ids.at(-1) ?? after;
        more = ids.length === AT_ONCE;
        if (ids.length > 0) admin.say(`${String(erased)} admissions of ${tenantId} erased\n`);
      }
      unsettled += await admin.act((tx) => eraseTenantTraces(tx, tenantNo));
      // Admissions without an outcome need a second run, so the exit code reports them.
      return { document: { tenant_id: tenantId, erased, unsettled }, failed: unsettled > 0 };
    },
  },
];

function orderOf(admin: Admin, given: ParsedArgs) {
  return { actor: admin.actor, reasonRef: words(required(given, 'reason'), 'the reason', 128) };
}
