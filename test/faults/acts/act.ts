import type { Audited } from '../audit.js';
import { until } from '../pace.js';
import type { World } from '../world.js';

/** What the public has to be told once an act is settled. */
export interface Told {
  /** Below `/api/public/verify/`. */
  path: string;
  /** A status; null where nothing may be shown. */
  status: string | null;
}

/** Something that is asked for besides admissions, with an identity that can be acknowledged. */
export interface Act {
  /** For whoever reads what is not as it must be. */
  readonly what: string;
  readonly acknowledged: boolean;
  /** Asks for it, for the first time or once more. Throws when there was no answer. */
  send(): Promise<boolean>;
  told(): Told[];
  /** Asks for it again, once it is settled: that must change nothing. */
  audit(world: World, found: Audited): Promise<void>;
}

const TIMEOUT_MS = 30_000;

/** Whether it is acknowledged once more; an engine may say that it is busy. */
export const isSaidAgain = (act: Act): Promise<boolean> =>
  until(() => act.send().catch(() => false), TIMEOUT_MS, 100);
