import type { RegistryView } from './registry/registry-view.js';
import type { Replica } from './registry/replica.js';

/** Counts completed registry calls, so that the watchdog can distinguish a long cycle from a hung one. */
export class ProgressCounter {
  count = 0;

  of(registry: RegistryView): RegistryView {
    const done = (): void => {
      this.count += 1;
    };
    return new Proxy(registry, {
      get: (target, name) => {
        const call = Reflect.get(target, name) as (...args: unknown[]) => Promise<unknown>;
        return (...args: unknown[]) => call.apply(target, args).finally(done);
      },
    });
  }

  ofReplica(replica: Replica): Replica {
    return { reading: (work) => replica.reading((copy) => work(this.of(copy))) };
  }
}
