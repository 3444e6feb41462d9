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

const PAGE_SIZE = 5_000;
const FIRST = '0'.repeat(32);
const MOST = 1_000;

/** Each admission must be exactly one of pending, rejected and proved; a proof must be in the log. */
export async function checkAdmissions(
  ctx: RegistryContext,
  damagedLeaves: ReadonlySet<number>,
  waitMs: number,
  step: (rows: number) => void,
): Promise<void> {
  const { sql, findings } = ctx;
  for (let after = FIRST, more = true; more;) {
    const rows = await admissionsFrom(sql, after, PAGE_SIZE);
    for (const row of rows) {
      const { proofId, isRefused, hasProof, hasRefusal, isPending } = row;
      const where = `svc.intake proof_id=${proofId}`;
      // The check of its leaf reports a proof.
      if (!hasProof && row.isErased && row.hasPayload) {
        findings.add('erasure_incomplete', where, 'nothing of an erased payload');
      } else if (!hasProof && !row.isErased && row.lacksPayload) {
        findings.add('proof_payload_missing', where, 'its request, or an erasure record');
      } else if (row.unproved !== null && !isRequestOf(row.unproved)) {
        const hash = toHex(row.unproved.requestHash);
        findings.add('request_altered', where, `a request of hash ${hash}, as accepted`);
      }
      const states = [hasProof, hasRefusal, isPending].filter(Boolean).length;
      if (states === 0) {
        findings.add('intake_lost', where, 'a proof, a rejection or a pending row');
      } else if (states > 1 || isRefused !== hasRefusal) {
        const found = `proved: ${String(hasProof)}, rejected: ${String(hasRefusal)}, pending: ${String(isPending)}, rejected by its row: ${String(isRefused)}`;
        findings.add(
          'intake_contradicts',
          where,
          `one of proved, rejected, pending; found ${found}`,
        );
      }
    }
    after = rows.at(-1)?.proofId ?? after;
    more = rows.length === PAGE_SIZE;
    step(rows.length);
  }
  await checkProofRows(ctx, damagedLeaves, step);
  for (const proofId of await strayPending(sql, MOST)) {
    const where = `svc.intake_pending proof_id=${proofId}`;
    findings.add('intake_missing', where, 'the intake row of a pending admission');
  }
  for (const proofIds of await sharedIdentities(sql, MOST)) {
    const where = `svc.intake proof_id=${proofIds.join(',')}`;
    findings.add(
      'identity_twice',
      where,
      'one admission per tenant, request type and request hash',
    );
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

/** Whether the request has its hash: a worker rejects an altered pending request, and it is lost. */
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
    const rows = await proofsFrom(sql, after, PAGE_SIZE);
    for (const { proofId, leafIndex, isInLog, isAccepted } of rows) {
      const where = `svc.proof proof_id=${proofId}`;
      // The check of its leaf reports proofs in the log and on damaged leaves.
      if (isInLog || damagedLeaves.has(leafIndex)) continue;
      findings.add(
        'proof_not_in_log',
        where,
        `the proof at leaf ${String(leafIndex)} of ${String(size)}`,
      );
      if (!isAccepted) findings.add('intake_missing', where, 'the intake row of a proof');
    }
    after = rows.at(-1)?.proofId ?? after;
    more = rows.length === PAGE_SIZE;
    step(rows.length);
  }
}
