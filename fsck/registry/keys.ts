import { fromBase64Url } from '#protocol/bytes';
import { isUsablePublicKey } from '#protocol/ed25519';
import { readEntry } from '#protocol/entries';
import { keyStateAt, voidedAt, type KeyedEntry, type KeyState } from '#protocol/key-state';
import { jwkThumbprint } from '#protocol/keys';
import { leafHash } from '#protocol/merkle';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Report } from '../findings.js';

const NO_KEYS = Buffer.alloc(32);

/**
 * What the log has about signing keys. Whether its rows are the log's very own shows when the walk
 * comes to them; until the end it is not known whether one is missing, so what hangs on a key that
 * the history does not know is kept until then.
 */
export class KeyHistory {
  /** By key, the proofs that are signed under it though the log does not know it: how many, and the first. */
  private readonly strangers = new Map<string, { proofs: number; first: number }>();

  constructor(
    readonly entries: readonly KeyedEntry[],
    private readonly size: number,
    /** After each key entry, the chain over it and all before it. */
    private readonly digests: readonly { leafIndex: number; digest: Buffer }[] = [],
  ) {}

  static read(rows: readonly { leafIndex: number; body: Uint8Array }[], size: number): KeyHistory {
    const entries = rows.flatMap(({ leafIndex, body }): KeyedEntry[] => {
      const entry = readKeyEntry(body);
      return entry === null || leafIndex >= size ? [] : [{ leafIndex, entry }];
    });
    let digest = NO_KEYS;
    const digests = rows.flatMap(({ leafIndex, body }) => {
      if (leafIndex >= size) return [];
      const index = Buffer.alloc(8);
      index.writeBigUInt64BE(BigInt(leafIndex));
      digest = Buffer.from(
        nativeSha256(Buffer.concat([digest, index, leafHash(nativeSha256, body)])),
      );
      return [{ leafIndex, digest }];
    });
    return new KeyHistory(entries, size, digests);
  }

  /** What a verdict on the first `size` leaves must have seen of keys. */
  digestAt(size: number): Buffer {
    return this.digests.findLast(({ leafIndex }) => leafIndex < size)?.digest ?? NO_KEYS;
  }

  stateAt(keyId: string, leafIndex: number): KeyState {
    return keyStateAt(this.entries, keyId, leafIndex, this.size);
  }

  /** The index of the entry that voids a signature; null when none does. */
  voidedAt(keyId: string, leafIndex: number): number | null {
    return voidedAt(this.entries, keyId, leafIndex);
  }

  /** A proof names a key that the log does not know. */
  stranger(keyId: string, leafIndex: number): void {
    const known = this.strangers.get(keyId) ?? { proofs: 0, first: leafIndex };
    this.strangers.set(keyId, { ...known, proofs: known.proofs + 1 });
  }

  /**
   * Says what hangs on unknown keys. Where key entries are lost or damaged they are what is wrong,
   * and of the signatures nothing is known; where none is, somebody signed with a key of their own.
   */
  settle(isBroken: boolean, report: Report, unchecked: (what: string) => void): void {
    for (const [keyId, { proofs, first }] of this.strangers) {
      const said = `${String(proofs)} signatures under key ${keyId}, from leaf ${String(first)} on`;
      if (isBroken) unchecked(`${said}: its key entries are lost or damaged`);
      else {
        report(
          'key_not_active',
          `svc.proof leaf ${String(first)}`,
          `the log never activated: ${said}`,
        );
      }
    }
    this.strangers.clear();
  }

  /** What no program appends: a key that is not its id's, that comes twice, or ends before it begins. */
  checkChain(report: Report): void {
    const active = new Map<string, string>();
    for (const { leafIndex, entry } of this.entries) {
      if (entry.type !== 'key') continue;
      const fault = chainFault(entry, leafIndex, active.get(entry.key_id));
      if (fault !== null)
        report('key_chain_wrong', `svc.log_entry leaf ${String(leafIndex)}`, fault);
      if (entry.change === 'activate') active.set(entry.key_id, entry.public_key);
    }
  }
}

function chainFault(entry: KeyEntry, leafIndex: number, active: string | undefined): string | null {
  const publicKey = fromBase64Url(entry.public_key);
  if (!isUsablePublicKey(publicKey)) return 'expected a public key that is not of small order';
  if (jwkThumbprint(nativeSha256, publicKey) !== entry.key_id) {
    return `expected the thumbprint of the public key as its id, found ${entry.key_id}`;
  }
  if (entry.change === 'activate' && active !== undefined) {
    return `expected key ${entry.key_id} to be activated once`;
  }
  if (entry.change !== 'activate' && active === undefined) {
    return `expected key ${entry.key_id} to be activated before it is said to be ${entry.change}d`;
  }
  if (entry.change !== 'activate' && active !== entry.public_key) {
    return `expected key ${entry.key_id} to stay the same key`;
  }
  if ((entry.from_index ?? 0) > leafIndex) return 'expected a compromise of leaves that there are';
  return null;
}

export function readKeyEntry(body: Uint8Array): KeyEntry | null {
  const entry = readEntry(body);
  return entry?.type === 'key' ? entry : null;
}
