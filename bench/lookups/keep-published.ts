import type { Open } from '../closing.js';
import { LOAD_CORE, pin } from './pinning.js';
import { startProgram } from '../service/programs.js';
import type { BenchRegistry } from '../service/registry.js';

/**
 * Has a verifier and a publisher keep the snapshot valid while it is asked, as they always do, on the
 * core of what asks.
 */
export async function keepPublished(
  registry: BenchRegistry,
  recentLookupLimit: number,
  open: Open,
): Promise<void> {
  for (const name of ['verifier', 'publisher'] as const) {
    const program = startProgram(name, registry, { recentLookupLimit });
    open.push(() => program.stop());
    await program.ready;
    await pin(program.pid, LOAD_CORE);
  }
}
