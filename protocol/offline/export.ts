import { AEP_PAYLOAD_TYPE } from '../aep.js';
import { fromBase64 } from '../bytes.js';
import { canonicalBytes } from '../canonical-json.js';
import { pae, parseEnvelope } from '../dsse.js';
import type { ProofExport } from '../schemas/proof-export.js';
import type { VerifyCrypto } from '../verify.js';
import { findInconsistency } from './fit.js';
import { placeOf, readTlogProof, type InclusionClaim } from './inclusion.js';
import { readExport, type TextOrBytes } from './read.js';
import {
  toldPlace,
  undecidable,
  type OfflineFault,
  type OfflineResult,
  type Placed,
} from './result.js';
import { readAepKeys, readLog, type AepKeyPin, type LogPin, type OfflineTrust } from './trust.js';

export interface OfflineOptions {
  /** A C2SP tlog-proof of the same entry, under a later checkpoint say, in place of the export's own. */
  tlogProof?: TextOrBytes | undefined;
}

/**
 * Checks an exported proof (`svc.registry.proof_export/1.0`) against pinned keys. Text and bytes are
 * parsed strictly; a value that was parsed already is taken as it is. Nothing in the document is
 * believed, its keys least of all, and nothing in it makes this throw. Unusable pins do, as `PIN_ERRORS`
 * says: those are the caller's. Its verdict is nobody's signature and is not looked at: whether the
 * registry said it, and whether it still says so, the registry can tell.
 *
 * Undecidable is not a failure of the document: without the pinned key that signed it nobody can say
 * whether it is genuine.
 */
export function verifyOffline(
  exported: unknown,
  trust: OfflineTrust,
  crypto: VerifyCrypto,
  { tlogProof }: OfflineOptions = {},
): OfflineResult {
  const pins = readAepKeys(crypto.sha256, trust.aepKeys);
  const log = readLog(crypto.sha256, trust.log);
  if (pins.length === 0) {
    return undecidable('no_pinned_key', 'pin the AEP key of the service, obtained elsewhere');
  }
  const read = readExport(exported);
  if ('fault' in read) return notAuthentic(read.fault, log);
  const { document } = read;
  const fault = findInconsistency(document, crypto.sha256);
  if (fault !== null) return notAuthentic(fault, log);

  const { key_id: keyId } = document.aep;
  const pinned = pins.filter((pin) => pin.keyId === keyId);
  const [pin] = pinned;
  if (pin === undefined) {
    return undecidable(
      'signing_key_not_pinned',
      `signed under key ${keyId}, which is not among the pinned ones`,
    );
  }
  const { payload, signature } = parseEnvelope(document.envelope);
  if (!crypto.verify(pin.publicKey, pae(AEP_PAYLOAD_TYPE, payload), signature)) {
    const detail = 'the signature does not verify under the pinned key';
    return notAuthentic({ code: 'bad_signature', detail }, log);
  }
  return placed(document, pinned, log, log && placeInLog(document, tlogProof, log, crypto));
}

function placeInLog(
  document: ProofExport,
  tlogProof: TextOrBytes | undefined,
  log: LogPin,
  crypto: VerifyCrypto,
): Placed {
  const read = tlogProof === undefined ? { claim: ownClaim(document) } : readTlogProof(tlogProof);
  return 'fault' in read ? read : placeOf(canonicalBytes(document.entry), read.claim, log, crypto);
}

function ownClaim({ inclusion }: ProofExport): InclusionClaim {
  const { leaf_index: index, tree_size: treeSize, path, checkpoint } = inclusion;
  return { index, treeSize, path: path.map(fromBase64), checkpoint };
}

/** What a good signature is worth, by where in the log it stands. */
function placed(
  { aep }: ProofExport,
  pins: readonly AepKeyPin[],
  log: LogPin | null,
  found: Placed | null,
): OfflineResult {
  // A key that came to an end signs what it likes afterwards: only the log tells before from after.
  const ends = pins.some(({ before }) => before !== Infinity);
  if (found === null) {
    return ends
      ? undecidable('no_pinned_log', 'the key came to an end; pin the log to tell what came before')
      : { decidable: true, authentic: true, aep, status: 'unknown', faults: [] };
  }
  if ('fault' in found) {
    if (ends) return notAuthentic(found.fault, log);
    const faults = [found.fault];
    return { decidable: true, authentic: true, included: false, aep, status: 'unknown', faults };
  }
  const { leafIndex } = found.place;
  if (!pins.every(({ after, before }) => after < leafIndex && leafIndex < before)) {
    const detail = `by its pin the key does not count at leaf ${leafIndex}`;
    return notAuthentic({ code: 'key_not_in_force', detail }, log);
  }
  const told = toldPlace(found.place);
  return { decidable: true, authentic: true, included: true, ...told, aep, faults: [] };
}

function notAuthentic(fault: OfflineFault, log: LogPin | null): OfflineResult {
  return {
    decidable: true,
    authentic: false,
    // An entry that vouches for something else says nothing about this document.
    ...(log === null ? {} : { included: false }),
    status: 'unknown',
    faults: [fault],
  };
}
