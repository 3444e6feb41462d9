import type { Vkey } from '#protocol/note';
import type { Pool } from '#sql/db/transaction';
import type { Findings } from '../findings.js';
import type { KeyHistory } from './keys.js';

/** What the checks of the registry work with. */
export interface RegistryContext {
  sql: Pool;
  findings: Findings;
  /** The pinned log keys: what signed checkpoints. Nothing else is believed. */
  logVkeys: readonly [Vkey, ...Vkey[]];
  keys: KeyHistory;
  /** Leaves that are checked; what is appended meanwhile waits for the next run. */
  size: number;
}
