import type { RegistryView } from './registry/registry-view.js';
import type { Replica } from './registry/replica.js';

/** Counts what was asked of the registry and is answered, so that a long tick is told from one that hangs. */
export class Steps {
  count = 0;

  of(registry: RegistryView): RegistryView {
    const done = (): void => {
      this.count += 1;
    };
    return new Proxy(registry, {
      get: (target, name) => {
        const ask = Reflect.get(target, name) as (...args: unknown[]) => Promise<unknown>;
        return (...args: unknown[]) => ask.apply(target, args).finally(done);
      },
    });
  }

  ofReplica(replica: Replica): Replica {
    return { reading: (work) => replica.reading((copy) => work(this.of(copy))) };
  }
}
