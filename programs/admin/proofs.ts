import { randomBytes } from 'node:crypto';
import { PROOF_ID_PATTERN } from '#protocol/ids';
import { ARTIFACT_KINDS } from '#protocol/status';
import { eraseAdmission, eraseListed, erasureOf } from '#sql/erasure/erase';
import { eraseKeysAfter, eraseTenantTraces, type KeyPlace, unerasedOf } from '#sql/erasure/tenant';
import { appendRevocation } from '#sql/lifecycle/revocations';
import { tenantNumber } from '#sql/tenants/audit';
import {
  confirmOption,
  oneOf,
  requireConfirmed,
  UsageError,
  words,
  type AddCommand,
  type Admin,
  Outcome,
} from './command.js';

const EXAMPLE_ID = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

const ERASURE_REASON = [
  '--reason <reference>',
  'reference of the erasure request, such as a case number; kept permanently, so name no person',
] as const;

export function addProofCommands(add: AddCommand): void {
  add(
    `revoke <proof_id> <${ARTIFACT_KINDS.join('|')}>`,
    'Revoke an artifact and everything that depends on it, permanently',
    `${EXAMPLE_ID} certificate --reason "issued in error"`,
    revoke,
  ).requiredOption('--reason <words>', 'stored in the database; only its salted hash is public');
  // Not requiredOption: Commander would require the options of `erase` for `erase tenant`, too.
  add(
    'erase <proof_id>',
    'Erase the payload of one admission permanently; the log keeps its salted commitments',
    `${EXAMPLE_ID} --reason CASE-17 --confirm ${EXAMPLE_ID}`,
    erase,
  )
    .option(...ERASURE_REASON)
    .option(...confirmOption('proof_id'));
  add(
    'erase tenant <tenant_id>',
    'Erase the payloads of all admissions of a tenant; resumes an interrupted run',
    'acme --reason CASE-18 --confirm acme',
    eraseTenant,
  )
    .option(...ERASURE_REASON)
    .option(...confirmOption('tenant_id'));
}

async function revoke(
  { act, actor }: Admin,
  proofId: string,
  kind: string,
  options: { reason: string },
) {
  requireProofId(proofId);
  const artifactKind = oneOf(kind, ARTIFACT_KINDS);
  const reason = words(options.reason, 'the reason', 512);
  const salt = randomBytes(32).toString('hex');
  const leafIndex = await act((tx) =>
    appendRevocation(tx, { proofId, artifactKind, reason, actor, salt }),
  );
  return { proof_id: proofId, artifact_kind: artifactKind, leaf_index: leafIndex };
}

interface ErasureOptions {
  reason?: string;
  confirm?: string;
}

async function erase(admin: Admin, proofId: string, options: ErasureOptions) {
  const order = erasureOrder(admin, proofId, options);
  requireProofId(proofId);
  return admin.act(async (tx) => {
    const erased = await eraseAdmission(tx, proofId, order);
    const record = await erasureOf(tx, proofId);
    return {
      proof_id: proofId,
      erased: erased.some(({ isNew }) => isNew),
      // Includes other admissions whose payload contains the same request.
      erased_proofs: erased.map((one) => one.proofId),
      erased_at: record?.erasedAt,
      actor: record?.actor,
      reason_ref: record?.reasonRef,
    };
  });
}

/** Admissions erased per transaction. After an interruption, the next run erases the other admissions. */
const GROUP = 500;
/** Limit of the proofs in `unsettled_proofs`. */
const LISTED = 100;

async function eraseTenant(admin: Admin, tenantId: string, options: ErasureOptions) {
  const order = erasureOrder(admin, tenantId, options);
  const sql = await admin.database();
  const tenantNo = await tenantNumber(sql, tenantId);
  let erased = 0;
  const unsettled = new Set<string>();
  for await (const ids of unerasedOf(sql, tenantNo, GROUP)) {
    const done = await admin.act((tx) => eraseListed(tx, ids, order));
    erased += done.erased.filter(({ isNew }) => isNew).length;
    for (const { proofId } of done.erased) unsettled.delete(proofId);
    for (const id of done.unsettled) unsettled.add(id);
    admin.say(`${String(erased)} admissions of ${tenantId} erased\n`);
  }
  for (let place: KeyPlace | null = { lane: 0, key: '' }; place !== null;) {
    const after: KeyPlace = place;
    place = await admin.act((tx) => eraseKeysAfter(tx, tenantNo, after));
  }
  for (const id of await admin.act((tx) => eraseTenantTraces(tx, tenantNo))) unsettled.add(id);
  const listed = { unsettled: unsettled.size, unsettled_proofs: [...unsettled].slice(0, LISTED) };
  // Admissions that cannot be erased yet need a second run, so the exit code reports them.
  return new Outcome({ tenant_id: tenantId, erased, ...listed }, { failed: unsettled.size > 0 });
}

function erasureOrder(
  { actor }: Admin,
  object: string,
  { reason = '', confirm }: ErasureOptions,
): { actor: string; reasonRef: string } {
  requireConfirmed(confirm, object);
  return { actor, reasonRef: words(reason, 'the reason', 128) };
}

function requireProofId(text: string): void {
  if (!PROOF_ID_PATTERN.test(text)) throw new UsageError('the argument is not a proof id');
}
