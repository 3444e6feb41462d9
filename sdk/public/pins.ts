import type { OfflineTrust } from '../../protocol/offline.js';
import type { PublicKeys } from '../../protocol/snapshot/keys.js';

/**
 * The keys that a registry publishes, as `verifyOffline` takes them: AEP keys with the log positions
 * they are good for, the log's key and those it had before. Kept in a file, they are pins, and as
 * good as the way they came: what the registry says of itself is believed once, unless somebody
 * compares it with what the operator gave out elsewhere.
 */
export function pinsOf({ aep, log }: PublicKeys): OfflineTrust {
  return { aepKeys: aep, log: { vkey: [log.vkey, ...log.retired], origin: log.origin } };
}
