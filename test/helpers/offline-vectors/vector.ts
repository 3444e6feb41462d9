import type { OfflineTrust } from '#protocol/offline';

/** What is pinned, as JSON: keys in base64url or as JWK. */
export interface VectorTrust {
  aep_keys: unknown[];
  log_vkey?: string | string[];
  log_origin?: string;
}

/** A case of offline verification: an export, a tlog-proof with its log entry, or both of the first. */
export interface OfflineVector {
  /** Of an invalid one the defect. */
  name: string;
  /** One sentence: what is wrong, or what is special. */
  about: string;
  trust: VectorTrust;
  /** Text of an export; in base64 where it is not UTF-8. */
  export?: string;
  export_base64?: string;
  /** Text of a tlog-proof: beside an export in place of its inclusion, else about `entry`. */
  tlog_proof?: string;
  /** Text of a log entry. */
  entry?: string;
  expected: Outcome;
}

/** What a check comes to, without the words for people. */
export type Outcome =
  | { error: string }
  | { undecidable: string }
  | { authentic?: boolean; included?: boolean; status: string; fault?: string };

interface Result {
  decidable: boolean;
  cause?: string;
  authentic?: boolean;
  included?: boolean;
  status?: string;
  faults?: { code: string }[];
}

/** The two functions under test, wherever they run and however they were packed. */
export interface OfflineApi {
  verifyOffline(
    exported: unknown,
    trust: OfflineTrust,
    options?: { tlogProof?: string | undefined },
  ): Result;
  verifyTlogProof(tlogProof: string, entry: string, trust: OfflineTrust): Result;
  /** The code of the error that an unusable pin is answered with; throws what is none. */
  pinErrorOf(error: unknown): string;
}

/** Runs in a browser too, so it imports nothing. */
export function outcomeOf(vector: OfflineVector, api: OfflineApi): Outcome {
  const { log_vkey: vkey, log_origin: origin } = vector.trust;
  const trust = {
    aepKeys: vector.trust.aep_keys,
    ...(vkey === undefined ? {} : { log: { vkey, origin } }),
  } as OfflineTrust;
  let result: Result;
  try {
    result = check(vector, trust, api);
  } catch (error) {
    return { error: api.pinErrorOf(error) };
  }
  const { decidable, cause, authentic, included, status, faults = [] } = result;
  if (!decidable) return { undecidable: String(cause) };
  if (faults.length > 1) throw new Error(`${vector.name} has several faults`);
  return {
    ...(authentic === undefined ? {} : { authentic }),
    ...(included === undefined ? {} : { included }),
    status: String(status),
    ...(faults[0] === undefined ? {} : { fault: faults[0].code }),
  };
}

function check(vector: OfflineVector, trust: OfflineTrust, api: OfflineApi): Result {
  const { tlog_proof: tlogProof, entry } = vector;
  if (entry !== undefined) return api.verifyTlogProof(String(tlogProof), entry, trust);
  const exported =
    vector.export ??
    Uint8Array.from(atob(String(vector.export_base64)), (character) => character.charCodeAt(0));
  return api.verifyOffline(exported, trust, { tlogProof });
}
