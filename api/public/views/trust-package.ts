import { parseStrict } from '#protocol/json';
import type { Facade } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofEntrySchema } from '#protocol/schemas/log-entry';
import type { PublicTrustPackage } from '#protocol/schemas/public-views';
import { toHex } from '#protocol/bytes';
import { malformed } from '#protocol/snapshot/malformed';
import type { PublicContext } from '../context.js';
import { entryAt, keysOf, tlogProofAt } from '../log/files.js';
import type { Resolved } from '../lookup/resolve.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { chainOf } from './chain.js';
import { historyOf } from './history.js';
import { integrityOf, membersOf } from './published.js';

/**
 * Builds the trust package from one snapshot, so that the verdict and the inclusion proof share one
 * checkpoint.
 */
export async function trustPackageOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  response: Facade,
  resolved: Resolved | null,
): Promise<PublicTrustPackage> {
  return {
    schema_version: SCHEMA.trustPackage,
    ...membersOf(response),
    facade: response,
    history: historyOf(response, resolved),
    chain: chainOf(response, resolved),
    evidence: resolved === null ? null : await evidenceOf(ctx, snapshot, response, resolved),
  };
}

async function evidenceOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  response: Facade,
  { record }: Resolved,
): Promise<NonNullable<PublicTrustPackage['evidence']>> {
  const { leaf_index, aep_hash, proof_record_hash } = integrityOf(response);
  const bytes = await entryAt(ctx, snapshot, leaf_index);
  const entry = proofEntrySchema.safeParse(parseStrict(bytes));
  if (
    !entry.success ||
    entry.data.proof_id !== toHex(record.id) ||
    entry.data.aep_hash !== aep_hash ||
    entry.data.proof_record_hash !== proof_record_hash
  ) {
    throw malformed(`leaf ${leaf_index} does not match the record that refers to it`);
  }
  return {
    log_entry: entry.data,
    leaf_index,
    tlog_proof: await tlogProofAt(ctx, snapshot, leaf_index),
    keys: keysOf(ctx, snapshot),
  };
}
