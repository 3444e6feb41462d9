import { AEP_PAYLOAD_TYPE, aepBytes, buildProofRecord, laneOf, proofRecordHash } from './aep.js';
import { fromBase64, fromBase64Url } from './bytes.js';
import { canonicalBytes, canonicalize } from './canonical-json.js';
import { openCheckpoint, type Checkpoint } from './checkpoint.js';
import { pae, parseEnvelope } from './dsse.js';
import { hashHex } from './hash.js';
import { jwkThumbprint } from './keys.js';
import { leafHash, verifyInclusion } from './merkle.js';
import { parseVkey, type Vkey } from './note.js';
import { proofExportSchema, type ProofExport } from './schemas/proof-export.js';
import type { VerifyCrypto } from './verify.js';

/** What the reader believes already, from elsewhere than the document that is checked. */
export interface OfflineTrust {
  /** AEP public keys, 32 bytes each. */
  aepKeys: readonly Uint8Array[];
  /** The log's verifier key and origin; without them nothing is said about inclusion. */
  log?: { vkey: string; origin: string };
}

export type UndecidableCause = 'no_pinned_key' | 'signing_key_not_pinned';

/** Why something is not so; for people and for tests. */
export type OfflineFault =
  'malformed_export' | 'inconsistent_export' | 'bad_signature' | 'bad_checkpoint' | 'not_in_tree';

/**
 * What can be said without the service. `authentic`: the hashes fit together and a pinned key
 * signed. `included`: the entry is in the tree of a checkpoint that the pinned log signed; absent
 * when no log is pinned. Whether the proof has been revoked since nobody can know offline, so there
 * is no positive status.
 */
export type OfflineResult =
  | {
      decidable: true;
      authentic: boolean;
      included?: boolean;
      /** The checkpoint that vouches for the inclusion. */
      under?: Checkpoint;
      status: string;
      faults: OfflineFault[];
    }
  | { decidable: false; cause: UndecidableCause; detail: string };

/**
 * Checks an exported proof (`svc.registry.proof_export/1.0`, read with `parseStrict`) against pinned
 * keys. Nothing in the document is believed, its keys least of all, and nothing in it makes this
 * throw. Unusable pins do: those are the caller's. Its verdict is nobody's signature and is not
 * looked at: whether the registry said it, and whether it still says so, the registry can tell.
 *
 * Undecidable is not a failure of the document: without the pinned key that signed it nobody can say
 * whether it is genuine.
 */
export function verifyOffline(
  exported: unknown,
  trust: OfflineTrust,
  crypto: VerifyCrypto,
): OfflineResult {
  const log = trust.log && {
    vkey: parseVkey(trust.log.vkey, crypto.sha256),
    origin: trust.log.origin,
  };
  if (trust.aepKeys.length === 0) {
    return undecidable('no_pinned_key', 'pin the AEP key of the service, obtained elsewhere');
  }
  const document = proofExportSchema.safeParse(exported).data;
  if (document === undefined) return notAuthentic('malformed_export', log);
  if (!holdsTogether(document, crypto)) return notAuthentic('inconsistent_export', log);

  const pinned = trust.aepKeys.find(
    (key) => jwkThumbprint(crypto.sha256, key) === document.aep.key_id,
  );
  if (pinned === undefined) {
    return undecidable(
      'signing_key_not_pinned',
      `signed under key ${document.aep.key_id}, which is not among the pinned ones`,
    );
  }
  const { payload, signature } = parseEnvelope(document.envelope);
  if (!crypto.verify(pinned, pae(AEP_PAYLOAD_TYPE, payload), signature)) {
    return notAuthentic('bad_signature', log);
  }
  return { ...inclusionOf(document, log, crypto), decidable: true, authentic: true };
}

interface PinnedLog {
  vkey: Vkey;
  origin: string;
}

/** A text that has no UTF-8 form cannot have been signed, so it is a contradiction like any other. */
function holdsTogether(document: ProofExport, crypto: VerifyCrypto): boolean {
  try {
    return fitsTogether(document, crypto);
  } catch {
    return false;
  }
}

/** Whether every part of the document is the one that the other parts imply. */
function fitsTogether(document: ProofExport, { sha256 }: VerifyCrypto): boolean {
  const { aep, entry, keys } = document;
  const payload = aepBytes(aep);
  const { signature } = parseEnvelope(document.envelope);
  const record = buildProofRecord(sha256, {
    proof_id: document.proof_id,
    aep: payload,
    signature,
    key_id: aep.key_id,
    request_hash: aep.request_hash,
    effect: aep.decision.effect,
    lane: laneOf(aep.subject),
  });
  return (
    aep.proof_id === document.proof_id &&
    canonicalize(document.envelope) === canonicalize(record.envelope) &&
    canonicalize(document.proof_record) === canonicalize(record) &&
    document.request_hash === record.request_hash &&
    document.response_hash === record.response_hash &&
    entry.proof_id === document.proof_id &&
    entry.time === aep.accepted_at &&
    entry.aep_hash === hashHex(sha256, payload) &&
    entry.proof_record_hash === proofRecordHash(sha256, record) &&
    keys[0].key_id === aep.key_id &&
    jwkThumbprint(sha256, fromBase64Url(keys[0].public_key)) === aep.key_id
  );
}

function inclusionOf(
  document: ProofExport,
  log: PinnedLog | undefined,
  { sha256, verify }: VerifyCrypto,
): { included?: boolean; under?: Checkpoint; status: string; faults: OfflineFault[] } {
  if (log === undefined) return { status: 'unknown', faults: [] };
  const { leaf_index, tree_size, path, checkpoint } = document.inclusion;
  let under: Checkpoint;
  try {
    under = openCheckpoint(checkpoint, log.vkey, log.origin, verify, sha256);
  } catch {
    return { included: false, status: 'unknown', faults: ['bad_checkpoint'] };
  }
  const included =
    tree_size === under.size &&
    verifyInclusion(sha256, {
      index: leaf_index,
      size: under.size,
      leafHash: leafHash(sha256, canonicalBytes(document.entry)),
      path: path.map(fromBase64),
      root: under.root,
    });
  return included
    ? { included, under, status: `unknown since checkpoint ${under.size}`, faults: [] }
    : { included, status: 'unknown', faults: ['not_in_tree'] };
}

function notAuthentic(fault: OfflineFault, log: PinnedLog | undefined): OfflineResult {
  return {
    decidable: true,
    authentic: false,
    // An entry that vouches for something else says nothing about this document.
    ...(log === undefined ? {} : { included: false }),
    status: 'unknown',
    faults: [fault],
  };
}

function undecidable(cause: UndecidableCause, detail: string): OfflineResult {
  return { decidable: false, cause, detail };
}
