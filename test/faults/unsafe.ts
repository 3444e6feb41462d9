import { NO_ACTS } from './acts/acts.js';
import type { Outcome } from './fault.js';
import { LOAD, openScene } from './lanes.js';
import { ALL_KILLED, FORGETFUL, makeForgetful } from './rows/unsafe.js';
import { walk } from './walk.js';

/** Nothing of what is lost comes back, however long it is waited for. */
const RECOVER_MS = 1_000;

/**
 * Whether the table can fail: the row that kills Postgres, over a Postgres that acknowledges commits
 * which are nowhere but in its memory.
 */
export async function walkUnsafe(): Promise<Outcome> {
  const load = { ...LOAD, actsPerSecond: NO_ACTS, withDisks: false };
  const scene = await openScene(load, FORGETFUL);
  try {
    await makeForgetful(scene);
    const name = `unsafe: ${ALL_KILLED.name}`;
    return await walk(scene, { ...ALL_KILLED, name, holdMs: 0, recoverMs: RECOVER_MS });
  } finally {
    await scene.world.close();
  }
}

/** Red for what was acknowledged and is gone, not for anything else. */
export const isRed = ({ lost, problems }: Outcome): boolean =>
  (lost ?? 0) > 0 && problems.length > 0;
