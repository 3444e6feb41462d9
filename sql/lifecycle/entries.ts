import { fromBase64Url } from '#protocol/bytes';
import { isUsablePublicKey } from '#protocol/ed25519';
import { keyEntryBytes, parseEntry, statusEntryBytes } from '#protocol/entries';
import type { Sha256 } from '#protocol/hash';
import { isProofId } from '#protocol/ids';
import { revocationReasonBytes } from '#protocol/revocation-reason';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import type { ArtifactKind } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { AdministrationError, joinTransaction } from '../tenants/audit.js';
import type { Db, Pool, Transaction } from '../db/transaction.js';
import { toUuid } from '../db/columns.js';
import { appendLocked, keyEntries, lockHead } from '../log/log.js';

/** Times in the log are the database's, like every other time in it. */
export async function databaseTime(tx: Db): Promise<number> {
  const [row] = await tx<{ at: Date }[]>`
    select date_trunc('milliseconds', clock_timestamp()) as at`;
  if (row === undefined) throw new Error('the database told no time');
  return row.at.getTime();
}

export interface KeyChange {
  keyId: string;
  /** base64url of the raw 32 bytes. */
  publicKey: string;
  change: KeyEntry['change'];
  /** For a compromise: the first log index whose signatures do not count. */
  fromIndex?: number;
}

async function changesOf(sql: Db, keyId: string): Promise<KeyEntry['change'][]> {
  return (await keyEntries(sql)).flatMap(({ body }) => {
    const entry = parseEntry(body);
    return entry.type === 'key' && entry.key_id === keyId ? [entry.change] : [];
  });
}

/**
 * Appends a key entry, and returns its index: from there on the log knows the key in its new state.
 * A key is activated once, and only what was activated can be retired or compromised.
 *
 * @throws AdministrationError
 */
export function appendKeyChange(
  sql: Pool | Transaction,
  sha256: Sha256,
  key: KeyChange,
): Promise<number> {
  return joinTransaction(sql, async (tx) => {
    if (key.change === 'activate' && !isUsablePublicKey(fromBase64Url(key.publicKey))) {
      throw new AdministrationError(
        `key ${key.keyId} is of small order or not canonical: anybody could sign under it`,
      );
    }
    const size = await lockHead(tx);
    const before = await changesOf(tx, key.keyId);
    if (key.change === 'activate' && before.length > 0) {
      throw new AdministrationError(`the log knows key ${key.keyId} already: make a new one`);
    }
    if (key.change !== 'activate' && !before.includes('activate')) {
      throw new AdministrationError(`the log never activated key ${key.keyId}`);
    }
    if ((key.fromIndex ?? 0) > size) {
      throw new AdministrationError(`the log has only ${size} leaves: nothing would be void`);
    }
    const at = await databaseTime(tx);
    const body = keyEntryBytes({
      key_id: key.keyId,
      public_key: key.publicKey,
      change: key.change,
      ...(key.fromIndex === undefined ? {} : { from_index: key.fromIndex }),
      time: formatTime(at),
    });
    await appendLocked(tx, sha256, size, [{ kind: 'key', at, body }]);
    return size;
  });
}

/** Activates a key unless the log has an entry about it already. */
export async function ensureKeyActive(
  sql: Pool | Transaction,
  sha256: Sha256,
  key: { keyId: string; publicKey: string },
): Promise<void> {
  if ((await changesOf(sql, key.keyId)).length > 0) return;
  await appendKeyChange(sql, sha256, { ...key, change: 'activate' });
}

export interface Revocation {
  proofId: string;
  artifactKind: ArtifactKind;
  reason: string;
  actor: string;
  /** 32 random bytes in hex: nobody can confirm a guessed reason from its public hash. */
  salt: string;
}

/**
 * Revokes an artifact, for ever, and returns the index of the log entry that says so. The reason
 * goes into the database as `svc.registry.revocation_reason/1.0`, and only its hash into the log.
 *
 * @throws AdministrationError when there is no such proof
 */
export function appendRevocation(
  sql: Pool | Transaction,
  sha256: Sha256,
  revocation: Revocation,
): Promise<number> {
  const { proofId, artifactKind, reason, actor, salt } = revocation;
  const unknown = new AdministrationError(`there is no proof ${proofId}`);
  if (!isProofId(proofId)) return Promise.reject(unknown);
  const document = revocationReasonBytes({
    proof_id: proofId,
    artifact_kind: artifactKind,
    reason,
    actor,
    salt,
  });
  const reasonHash = Buffer.from(sha256(document));
  return joinTransaction(sql, async (tx) => {
    const size = await lockHead(tx);
    const [proof] = await tx`
      select from svc.proof where proof_id = ${toUuid(proofId)}::uuid`;
    if (proof === undefined) throw unknown;
    await tx`
      insert into svc.revocation_reason (reason_hash, document)
      values (${reasonHash}, ${Buffer.from(document)})`;
    const at = await databaseTime(tx);
    const body = statusEntryBytes({
      proof_id: proofId,
      artifact_kind: artifactKind,
      reason_hash: reasonHash.toString('hex'),
      time: formatTime(at),
    });
    await appendLocked(tx, sha256, size, [{ kind: 'status', proofId, at, body }]);
    return size;
  });
}
