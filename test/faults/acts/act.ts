import type { Audited } from '../audit.js';
import { until } from '../pace.js';
import type { World } from '../world.js';

/** A public status that must follow a committed act. */
export interface ExpectedStatus {
  /** Below `/api/public/verify/`. */
  path: string;
  /** A status; null where nothing may be shown. */
  status: string | null;
}

/** A request other than an admission, with an acknowledged id. */
export interface Act {
  /** Description for the report. */
  readonly what: string;
  readonly acknowledged: boolean;
  /** Sends it, the first time or again. Throws without an answer. */
  send(): Promise<boolean>;
  expectedStatuses(): ExpectedStatus[];
  /** Sends it again after it is committed; this must change nothing. */
  audit(world: World, found: Audited): Promise<void>;
}

const TIMEOUT_MS = 30_000;

/** Whether it is acknowledged once more; an engine may say that it is busy. */
export const isSaidAgain = (act: Act): Promise<boolean> =>
  until(() => act.send().catch(() => false), TIMEOUT_MS, 100);
