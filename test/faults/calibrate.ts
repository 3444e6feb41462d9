import type { Scene } from './fault.js';
import { NO_ACTS } from './acts/acts.js';
import { openScene } from './lanes.js';

const AT_ONCE = 32;
const WARM_MS = 2_000;
const MEASURED_MS = 6_000;

/** Single requests a second that a stack answers here when each answer is followed by the next request. */
export async function calibrate(): Promise<number> {
  const scene: Scene = await openScene({
    singlesPerSecond: 0,
    batchesPerSecond: 0,
    itemsPerBatch: 1,
    actsPerSecond: NO_ACTS,
    withDisks: false,
  });
  const { client, world } = scene;
  const began = performance.now();
  let answered = 0;
  const isOver = (): boolean => performance.now() - began > WARM_MS + MEASURED_MS;
  const send = async (): Promise<void> => {
    while (!isOver()) {
      const isGood = await client.send(client.newSingle());
      if (isGood && performance.now() - began > WARM_MS) answered += 1;
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, send));
  } finally {
    await world.close();
  }
  return (answered * 1000) / MEASURED_MS;
}
