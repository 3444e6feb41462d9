import { toHex } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import { parseStrict } from '#protocol/json';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  admissionsFrom,
  proofsFrom,
  sharedIdentities,
  strayPending,
  waitingLongerThan,
} from '#sql/fsck/admissions';
import type { RegistryContext } from './context.js';

const AT_ONCE = 5_000;
const FIRST = '0'.repeat(32);
const MOST = 1_000;

/** What was accepted is pending, refused or proved, and nothing else is; what is proved is in the log. */
export async function checkAdmissions(
  ctx: RegistryContext,
  damagedLeaves: ReadonlySet<number>,
  waitMs: number,
  step: (rows: number) => void,
): Promise<void> {
  const { sql, findings } = ctx;
  for (let after = FIRST, more = true; more;) {
    const rows = await admissionsFrom(sql, after, AT_ONCE);
    for (const row of rows) {
      const { proofId, isRefused, hasProof, hasRefusal, isPending } = row;
      const where = `svc.intake proof_id=${proofId}`;
      // Of a proof it is told where its leaf is.
      if (!hasProof && row.isErased && row.hasPayload) {
        findings.add('erasure_incomplete', where, 'nothing of an erased payload');
      } else if (!hasProof && !row.isErased && row.lacksPayload) {
        findings.add('proof_payload_missing', where, 'its request, or a record that it was erased');
      } else if (row.unproved !== null && !isRequestOf(row.unproved)) {
        const hash = toHex(row.unproved.requestHash);
        findings.add('request_altered', where, `a request of hash ${hash}, as it was accepted`);
      }
      const states = [hasProof, hasRefusal, isPending].filter(Boolean).length;
      if (states === 0) {
        findings.add('intake_lost', where, 'a proof, a refusal, or a place among the pending');
      } else if (states > 1 || isRefused !== hasRefusal) {
        const found = `proved: ${String(hasProof)}, refused: ${String(hasRefusal)}, pending: ${String(isPending)}, refused by its row: ${String(isRefused)}`;
        findings.add(
          'intake_contradicts',
          where,
          `one of proved, refused, pending; found ${found}`,
        );
      }
    }
    after = rows.at(-1)?.proofId ?? after;
    more = rows.length === AT_ONCE;
    step(rows.length);
  }
  await checkProofRows(ctx, damagedLeaves, step);
  for (const proofId of await strayPending(sql, MOST)) {
    const where = `svc.intake_pending proof_id=${proofId}`;
    findings.add('intake_missing', where, 'the admission that is pending');
  }
  for (const proofIds of await sharedIdentities(sql, MOST)) {
    const where = `svc.intake proof_id=${proofIds.join(',')}`;
    findings.add('identity_twice', where, 'one admission of a tenant, lane and request hash');
  }
  const { count, oldest } = await waitingLongerThan(sql, waitMs);
  if (count > 0) {
    const where = `svc.intake_pending, ${String(count)} rows`;
    const since = oldest?.toISOString() ?? '';
    findings.add(
      'admissions_wait',
      where,
      `none older than ${String(waitMs)} ms, the oldest is of ${since}`,
    );
  }
}

/** Of what waits to be signed a worker refuses what is not what was accepted: then it is too late. */
function isRequestOf({ request, requestHash }: { request: Uint8Array; requestHash: Uint8Array }) {
  try {
    return hashHex(nativeSha256, canonicalBytes(parseStrict(request))) === toHex(requestHash);
  } catch {
    return false;
  }
}

async function checkProofRows(
  { sql, findings, size }: RegistryContext,
  damagedLeaves: ReadonlySet<number>,
  step: (rows: number) => void,
): Promise<void> {
  for (let after = FIRST, more = true; more;) {
    const rows = await proofsFrom(sql, after, AT_ONCE);
    for (const { proofId, leafIndex, isInLog, isAccepted } of rows) {
      const where = `svc.proof proof_id=${proofId}`;
      // Of a leaf that is lost or altered it is told there, and what is in the log is checked there.
      if (isInLog || damagedLeaves.has(leafIndex)) continue;
      findings.add(
        'proof_not_in_log',
        where,
        `the proof at leaf ${String(leafIndex)} of ${String(size)}`,
      );
      if (!isAccepted) findings.add('intake_missing', where, 'the admission that was proved');
    }
    after = rows.at(-1)?.proofId ?? after;
    more = rows.length === AT_ONCE;
    step(rows.length);
  }
}
