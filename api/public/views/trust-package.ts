import { parseStrict } from '#protocol/json';
import type { Facade } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofEntrySchema } from '#protocol/schemas/log-entry';
import type { PublicTrustPackage } from '#protocol/schemas/public-views';
import { toHex } from '#protocol/bytes';
import { malformed } from '#protocol/snapshot/malformed';
import type { PublicContext } from '../context.js';
import { entryAt, tlogProofAt } from '../log/files.js';
import { keysOf } from '../log/keys.js';
import type { Resolved } from '../lookup/resolve.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { chainOf } from './chain.js';
import { historyOf } from './history.js';
import { integrityOf, membersOf } from './published.js';

/**
 * All that the public has on a trust artifact, in one document and of one snapshot: the verdict
 * holds as of the very checkpoint under which the log entry is shown to be included.
 */
export async function trustPackageOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  facade: Facade,
  resolved: Resolved | null,
): Promise<PublicTrustPackage> {
  return {
    schema_version: SCHEMA.trustPackage,
    ...membersOf(facade),
    facade,
    history: historyOf(facade, resolved),
    chain: chainOf(facade, resolved),
    evidence: resolved === null ? null : await evidenceOf(ctx, snapshot, facade, resolved),
  };
}

async function evidenceOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  facade: Facade,
  { record }: Resolved,
): Promise<NonNullable<PublicTrustPackage['evidence']>> {
  const { leaf_index, aep_hash, proof_record_hash } = integrityOf(facade);
  const bytes = await entryAt(ctx, snapshot, leaf_index);
  const entry = proofEntrySchema.safeParse(parseStrict(bytes));
  if (
    !entry.success ||
    entry.data.proof_id !== toHex(record.id) ||
    entry.data.aep_hash !== aep_hash ||
    entry.data.proof_record_hash !== proof_record_hash
  ) {
    throw malformed(`leaf ${leaf_index} is not the entry of the proof that a record puts there`);
  }
  return {
    log_entry: entry.data,
    leaf_index,
    tlog_proof: await tlogProofAt(ctx, snapshot, leaf_index),
    keys: keysOf(ctx, snapshot),
  };
}
