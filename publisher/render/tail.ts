import { idsOf } from '#protocol/ids';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { isProofOnly, NO_TRUST_CHAIN, TRUST_CHAIN } from '#protocol/status';
import { entriesPath, TILE_WIDTH, tilePath } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import type { ProofFacts } from './proof-facts.js';

/**
 * The rest of the artifact, its closing brace, and what all kinds have in common. Of each proof it is
 * written out in JSON as it stands here: making an object of it and printing that took twice as long
 * as all else that is done to publish a proof. Ids, numbers and paths need no quoting; what is text
 * in a column is quoted.
 *
 * @param holds whether the proof verifies: else nothing is claimed of it, a chain least of all
 */
export function tailOf(facts: ProofFacts, holds: boolean): string {
  const { proofId, leafIndex, effect } = facts;
  const extent = isProofOnly(facts) ? PROOF_ONLY : WHOLE;
  const hashes = `"aep_hash":${quoted(facts.aepHash)},"proof_record_hash":${quoted(facts.proofRecordHash)}`;
  return (
    `"execution_id":"exec_${proofId}",${hashes},"effect":${quoted(effect)},` +
    `"environment":${quoted(facts.environment)}},` +
    `"trust_chain":${holds ? extent.chain : NO_CHAIN},${FLAGS},` +
    `"references":{${extent.references.join(proofId)}},` +
    `"downloads":{"log_entry":"/log/entry/${leafIndex}",${tileDownloads(facts)},` +
    `"checkpoint":"/log/checkpoint","inclusion_proof":"/log/proof/${leafIndex}","keys":"/api/public/keys"},` +
    `"integrity":{${hashes},"log_origin":${quoted(facts.logOrigin)},"leaf_index":${leafIndex},` +
    `"key_id":${quoted(facts.keyId)},"accepted_at":"${formatTime(facts.acceptedAt)}"}}`
  );
}

const quoted = (text: string): string => JSON.stringify(text);

const NO_CHAIN = JSON.stringify(NO_TRUST_CHAIN);
const FLAGS = JSON.stringify(PUBLIC_FLAGS).slice(1, -1);

/** The members of an object of ids, cut wherever the proof's id goes. */
const cutAtId = (ids: Record<string, string>): string[] =>
  JSON.stringify(ids).slice(1, -1).split(HERE);
const HERE = '#';
const IDS = idsOf(HERE);

/** The ids that lead somewhere, and the chain. */
const WHOLE = {
  references: cutAtId({ ...IDS }),
  chain: JSON.stringify(TRUST_CHAIN.FULL),
};
const PROOF_ONLY = {
  references: cutAtId({
    proof_id: IDS.proof_id,
    registry_proof_id: IDS.registry_proof_id,
    registry_entry_id: IDS.registry_entry_id,
    execution_id: IDS.execution_id,
  }),
  chain: JSON.stringify(TRUST_CHAIN.PROOF_ONLY),
};

/** Proofs next to each other lie in one tile. */
let latest = { index: -1, width: 0, text: '' };

function tileDownloads({ leafIndex, tileWidth }: ProofFacts): string {
  const index = Math.floor(leafIndex / TILE_WIDTH);
  if (latest.index !== index || latest.width !== tileWidth) {
    const entries = `"entry_bundle":"/log/${entriesPath(index, tileWidth)}"`;
    const text = `${entries},"tile":"/log/${tilePath(0, index, tileWidth)}"`;
    latest = { index, width: tileWidth, text };
  }
  return latest.text;
}
