import { join } from 'node:path';
import { toBase64Url, toHex } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import type { LogVkey } from '#protocol/note';
import { whyNotRun } from '#policy/check';
import { activateWithOverlays } from '#policy/overlays';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Logger } from '#runtime/process/log';
import { packageRoot } from '#runtime/process/files';
import type { Db, Pool, Transaction } from '#sql/db/transaction';
import { ensureKeyActive } from '#sql/lifecycle/signing-keys';
import { ensureLogKeyActive } from '#sql/lifecycle/log-keys';
import { withAuditContext } from '#sql/tenants/audit';
import {
  activePolicy,
  readPolicySet,
  storePolicySet,
  type StoredPolicySet,
} from '#sql/admissions/policies';

/** Public keys, of 32 bytes each; null for a key that must not be activated. */
export interface AdmissionKeys {
  aep: Uint8Array | null;
  verifier: Uint8Array | null;
  log: LogVkey;
}

/** The command name in audit records of a stack's start. */
export const BOOTSTRAP = 'bootstrap';

/**
 * Activates a policy set, the AEP key, the verifier key and the log key. No admission can be committed
 * without policy set and AEP key. Idempotent: keeps what an operator activated or retired.
 */
export async function prepareAdmissions(
  sql: Pool,
  keys: AdmissionKeys,
  log: Logger,
  more: (tx: Transaction) => Promise<void> = () => Promise.resolve(),
): Promise<void> {
  const shipped = await shippedPolicy();
  await withAuditContext(sql, { actor: BOOTSTRAP, act: BOOTSTRAP }, async (tx) => {
    await ensurePolicy(tx, shipped, log);
    for (const use of ['aep', 'verifier'] as const) {
      const key = keys[use];
      if (key === null) continue;
      const keyId = jwkThumbprint(nativeSha256, key);
      await ensureKeyActive(tx, { use, keyId, publicKey: toBase64Url(key) });
    }
    await ensureLogKeyActive(tx, keys.log);
    await more(tx);
  });
}

export async function shippedPolicy(): Promise<StoredPolicySet> {
  return makePolicySet(await readPolicyFolder(join(packageRoot, 'policy', 'default')));
}

/**
 * Stores the shipped set. Activates it if no set is active, or if an earlier version shipped the
 * active set and this version cannot run that set: digests include Cedar's version, so a new Cedar
 * makes a new set from the same texts. Never replaces an operator's set.
 */
export async function ensurePolicy(
  sql: Transaction,
  shipped: StoredPolicySet,
  log: Logger,
): Promise<void> {
  await storePolicySet(sql, shipped);
  const inForce = await activePolicy(sql);
  if (inForce === null) {
    await activateWithOverlays(sql, shipped);
    return;
  }
  const stored = await readPolicySet(sql, inForce);
  const reason = stored === null ? 'the set is not stored' : await whyNotRun(stored);
  if (stored === null || reason === null) return;
  const digests = { in_force: toHex(inForce), shipped: toHex(shipped.digest) };
  if (await wasShipped(sql, stored, shipped)) {
    await activateWithOverlays(sql, shipped);
    log.warn(
      { ...digests, reason },
      'the active policy set cannot be run: the shipped set is rebuilt and activated',
    );
  } else {
    log.error(
      { ...digests, reason },
      'the active policy set cannot be run, so admissions are deferred: store the set again with admin policy put, and activate the new digest',
    );
  }
}

async function wasShipped(
  sql: Db,
  stored: StoredPolicySet,
  shipped: StoredPolicySet,
): Promise<boolean> {
  const sameTexts =
    stored.files.schema === shipped.files.schema &&
    JSON.stringify(Object.entries(stored.files.policies).sort()) ===
      JSON.stringify(Object.entries(shipped.files.policies).sort());
  if (sameTexts) return true;
  const [record] = await sql`
    select from svc.audit where object = 'policy_set' and act = ${BOOTSTRAP}
      and after ->> 'digest' = ${`\\x${toHex(stored.digest)}`} limit 1`;
  return record !== undefined;
}
