import type { Logger } from '#runtime/log';
import type { SigningKey } from '#runtime/crypto';
import type { Pool } from '#sql/db';
import type { PolicyEngine } from '#policy/decide';
import type { AdmitMetrics } from './metrics.js';

/** What the admit pipeline works with. */
export interface AdmitContext {
  sql: Pool;
  log: Logger;
  /** The AEP signing key of this process and its id, the RFC 7638 thumbprint. */
  signer: SigningKey;
  keyId: string;
  /** The prepared policy set of a digest. */
  policy(digest: Buffer): Promise<PolicyEngine>;
  /** True while the environment overrides the lane state in the database with `locked`. */
  laneLocked: boolean;
  /** Absent: nothing is counted. */
  metrics?: AdmitMetrics;
}
