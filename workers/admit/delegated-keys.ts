import { toBase64, toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { delegationToSign } from '#protocol/state/log-keys';
import { keyStatusAt } from '#protocol/state/log-state';
import { formatTime } from '#protocol/time';
import { repeat } from '#runtime/concurrency';
import { type Signer, nativeSha256, type SigningKey } from '#runtime/crypto/node';
import type { Condition } from '#runtime/ops/health';
import { logRarely, type Logger } from '#runtime/process/log';
import { OperatorError } from '#runtime/process/operator-error';
import { isUnavailable } from '#sql/db/errors';
import { type Pool, databaseTime } from '#sql/db/transaction';
import { appendDelegation, isRetired, treeSize } from '#sql/log/log';
import type { AdmitContext } from './context.js';
import { keyEntryReader } from '#sql/log/keys';

/** Limit on the leaves, and so on the proofs, of one delegation; docs/decisions/0048 has the reasons. */
const MAX_PROOFS = 1_000_000;

export interface DelegationOptions {
  sql: Pool;
  log: Logger;
  root: Signer;
  /** Makes a key that exists in the memory of this process only. */
  newKey: () => Promise<SigningKey>;
  origin: string;
  maxProofs?: number;
  /** Milliseconds between two checks of the key. */
  everyMs?: number;
}

/** The part of an `AdmitContext` that a delegated key determines. */
type Current = Required<Pick<AdmitContext, 'signer' | 'keyId' | 'logOrigin'>>;

/**
 * A short-lived AEP key that only this process has, and for which a root key signs a delegation.
 * The key is renewed when half of its leaves are used, so that signing continues during an outage
 * of the root.
 */
export class DelegatedKeys {
  private key: (Current & { untilIndex: number }) | null = null;
  private isRootUp = true;
  private readonly rootId: string;
  private readonly maxProofs: number;

  constructor(private readonly options: DelegationOptions) {
    this.rootId = jwkThumbprint(nativeSha256, options.root.publicKey);
    this.maxProofs = options.maxProofs ?? MAX_PROOFS;
  }

  /** The key that signs now; null before the first delegation. */
  get current(): Current | null {
    return this.key;
  }

  /** `down` after a failed delegation that the database did not cause, even while the last key still signs. */
  get root(): Condition {
    return this.isRootUp ? 'up' : 'down';
  }

  /** Renews the key as needed, until the signal aborts. */
  async keepRenewed(signal: AbortSignal): Promise<void> {
    await repeat(
      this.options.everyMs ?? 1000,
      signal,
      () => this.renew(),
      () => undefined,
    );
  }

  /** Renews the key if that is due. Logs a failure. */
  async renew(): Promise<void> {
    try {
      await this.renewIfDue();
      this.isRootUp = true;
    } catch (err) {
      this.isRootUp &&= isUnavailable(err);
      const { keyId, untilIndex } = this.key ?? {};
      logRarely(
        this.options.log,
        'error',
        { err, key_id: keyId, until_index: untilIndex },
        this.key === null
          ? 'worker: this worker has no delegated key and signs nothing'
          : 'worker: the root key did not delegate to a new key; signing stops at until_index of the last key',
      );
    }
  }

  private async renewIfDue(): Promise<void> {
    const { origin, sql } = this.options;
    if (await isRetired(sql, origin)) {
      // Readers of the successor log ignore delegations for a retired log.
      this.key = null;
      throw new OperatorError(
        `LOG_ORIGIN is ${origin}, which is retired: restart this worker with the LOG_ORIGIN of the publisher`,
      );
    }
    const { states } = await keyEntryReader(sql, origin).read(sql);
    const size = await treeSize(sql);
    const { key } = this;
    const isActive = key !== null && states.at(key.keyId, size).state === 'active';
    if (isActive && key.untilIndex - size > this.maxProofs / 2) return;
    const root = states.keyOf(this.rootId);
    if (root?.use !== 'aep_root' || keyStatusAt(root, size) !== 'active') {
      throw new OperatorError(
        `the root key ${this.rootId} is not active in the log: activate it with admin aep-key activate --root`,
      );
    }
    await this.delegate(size);
  }

  private async delegate(size: number): Promise<void> {
    const { log, newKey, origin, root, sql } = this.options;
    const { publicKey, sign } = await newKey();
    const keyId = jwkThumbprint(nativeSha256, publicKey);
    const untilIndex = size + this.maxProofs;
    const limits = {
      root_key_id: this.rootId,
      until_index: untilIndex,
      max_proofs: this.maxProofs,
    };
    const sig = toBase64(await root.sign(delegationToSign(origin, keyId, limits)));
    const leafIndex = await appendDelegation(sql, {
      use: 'aep',
      key_id: keyId,
      public_key: toBase64Url(publicKey),
      change: 'activate',
      delegation: { ...limits, sig },
      time: formatTime(await databaseTime(sql)),
    });
    this.key = { signer: { publicKey, sign }, keyId, logOrigin: origin, untilIndex };
    log.info(
      { key_id: keyId, leaf_index: leafIndex, until_index: untilIndex },
      'worker: the root key delegated to a new AEP key',
    );
  }
}
