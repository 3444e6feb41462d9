import { idsOf } from '#protocol/ids';
import { PUBLIC_FLAGS } from '#protocol/snapshot/head';
import { isProofOnly, NO_TRUST_CHAIN, TRUST_CHAIN } from '#protocol/status';
import { entriesPath, TILE_WIDTH, tilePath } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import type { ProofFacts } from './proof-facts.js';

/**
 * The rest of the artifact with its closing brace, and the members that all kinds share. It is written
 * as JSON text: building and printing an object took twice as long as all other work on a proof. Text
 * columns are quoted; ids, numbers and paths need no quotes.
 *
 * @param verifies whether the proof verifies; otherwise the record claims no trust chain
 */
export function tailOf(facts: ProofFacts, verifies: boolean): string {
  const { proofId, leafIndex, effect } = facts;
  const extent = isProofOnly(facts) ? PROOF_ONLY : WITH_TRUST;
  const hashes = `"aep_hash":${quoted(facts.aepHash)},"proof_record_hash":${quoted(facts.proofRecordHash)}`;
  return (
    `"execution_id":"exec_${proofId}",${hashes},"effect":${quoted(effect)},` +
    `"environment":${quoted(facts.environment)}},` +
    `"trust_chain":${verifies ? extent.chain : NO_CHAIN},${FLAGS},` +
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

/** The JSON members of an object of ids, split where the proof id belongs. */
const cutAtId = (ids: Record<string, string>): string[] =>
  JSON.stringify(ids).slice(1, -1).split(ID_MARK);
const ID_MARK = '#';
const IDS = idsOf(ID_MARK);

/** Resolvable ids and the trust chain. */
const WITH_TRUST = {
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

/** Cached, because neighbouring proofs share a tile. */
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
