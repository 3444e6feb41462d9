import { fromBase64 } from './bytes.js';
import { pae } from './dsse.js';
import { canonicalBytes } from './json.js';
import type { VerdictEntry } from './schemas/log-entry.js';
import type { KeyStates } from './state/log-keys.js';
import type { VerifyCrypto } from './verify.js';

const PAYLOAD_TYPE = 'application/vnd.svc.registry.verdict+json';

/** The bytes that the verifier key signs. */
export function verdictMessage(origin: string, entry: Omit<VerdictEntry, 'sig'>): Uint8Array {
  return pae(PAYLOAD_TYPE, canonicalBytes({ origin, ...entry }));
}

/** Whether a verifier key that is active at `leafIndex` signed the entry for the log of this origin. */
export function isSignedVerdict(
  { verify }: Pick<VerifyCrypto, 'verify'>,
  origin: string,
  { sig, ...entry }: VerdictEntry,
  keys: KeyStates,
  leafIndex: number,
): boolean {
  const key = keys.verifierAt(entry.key_id, leafIndex);
  return key !== null && verify(key, verdictMessage(origin, entry), fromBase64(sig));
}

/**
 * The leaves that verdict entries list as failed and not as restored since.
 *
 * @param entries verdict entries that count, in log order
 * @param before the result for the verdict entries before `entries`
 */
export function listedFailures(
  entries: Iterable<VerdictEntry>,
  before: Iterable<number> = [],
): Set<number> {
  const listed = new Set(before);
  for (const { failed, restored } of entries) {
    for (const leaf of failed) listed.add(leaf);
    for (const leaf of restored) listed.delete(leaf);
  }
  return listed;
}
