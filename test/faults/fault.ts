import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from './client.js';
import type { TcpProxy } from '../fixtures/tcp-proxy.js';
import { inTime } from './pace.js';
import type { Seen } from './observation.js';
import type { Kind } from './signals.js';
import type { ProcessName, World } from './world.js';

/** The system under fault. */
export interface Scene {
  world: World;
  client: Client;
}

/** Ends a fault. */
export type Heal = () => unknown;

/** The default time limit of an injection. */
export const INJECT_MS = 30_000;

export interface Fault {
  name: string;
  /** The signs by which operators recognize the fault; required in the table. */
  kind?: Kind;
  /** Causes the fault. Resolves when the fault has happened, with a function to end a lasting fault. */
  inject(scene: Scene): Promise<Heal | undefined>;
  /** Time limit of `inject`, in milliseconds. */
  injectMs?: number;
  /**
   * Minimum duration of the fault, in milliseconds. In the table, the fault also lasts until operators can
   * recognize it.
   */
  holdMs?: number;
  /** The same fault at several places, which the table causes in one scenario. */
  places?: Fault[];
  /** `atPlaces` injects this fault during all other places, because only the load triggers the fault. */
  isBeside?: boolean;
  /** Time limit until everything is committed and public, in milliseconds. */
  recoverMs?: number;
  /** Requests must fail during the fault; otherwise the fault did not happen. */
  mustFail?: true;
  /** The load before and after the fault is short, because a longer load would detect no more. */
  isBrief?: true;
  /** The fault needs a file system that can be filled. */
  needsDisks?: true;
  /** The fault concerns a snapshot in a directory. */
  needsDirectory?: true;
  /** After this fault, no other fault can use the stack. */
  isLast?: true;
  mayExit?: ProcessName[];
  /** Replaces all other checks: checks that the programs reject requests, and returns the problems. */
  mustReject?(scene: Scene): Promise<string[]>;
  /** Further details for the report. */
  note?(): string;
  /** Additional checks after all work is complete; returns problems. */
  expects?(scene: Scene): Promise<string[]>;
}

type Act = (scene: Scene) => unknown;

/** A fault with a duration. */
export const lasting = (
  name: string,
  holdMs: number,
  start: Act,
  end: Act,
  more: Partial<Fault> = {},
): Fault => ({
  name,
  holdMs,
  ...more,
  inject: async (scene) => {
    await start(scene);
    return () => end(scene);
  },
});

/** A fault of the connections through some proxies. */
export const onLinks = (
  name: string,
  holdMs: number,
  linksOf: (world: World) => TcpProxy[],
  set: (link: TcpProxy, isFaulty: boolean) => void,
  kind: Kind,
): Fault => {
  const setAll = (isFaulty: boolean): Act => {
    return ({ world }) => linksOf(world).forEach((link) => set(link, isFaulty));
  };
  return lasting(name, holdMs, setAll(true), setAll(false), { kind });
};

/** A fault that happens several times in a row. */
export const repeated = (
  name: string,
  [times, everyMs]: [times: number, everyMs: number],
  strike: Act,
  more: Partial<Fault> = {},
): Fault => ({
  name,
  ...more,
  inject: async (scene) => {
    for (let time = 0; time < times; time += 1) {
      await strike(scene);
      await sleep(everyMs);
    }
  },
});

/**
 * One scenario for the same fault at several places. `inject` causes the fault at one place after the other, and at
 * the same time at every place with `isBeside`.
 */
export const atPlaces = (name: string, places: Fault[], more: Partial<Fault>): Fault => ({
  name,
  places,
  injectMs: places.reduce((sum, place) => sum + (place.injectMs ?? INJECT_MS), 0),
  ...more,
  inject: async (scene) => {
    const cause = async (place: Fault): Promise<void> => {
      const limit = place.injectMs ?? INJECT_MS;
      const heal = await inTime(
        place.inject(scene),
        limit,
        `${place.name}: the fault did not happen`,
      );
      await heal?.();
    };
    const inTurn = async (): Promise<void> => {
      for (const place of places) if (place.isBeside !== true) await cause(place);
    };
    await Promise.all([inTurn(), ...places.filter(({ isBeside }) => isBeside).map(cause)]);
  },
});

export function requireDisks({ world: { disks } }: Scene) {
  if (typeof disks === 'string') throw new Error(disks);
  return disks;
}

export interface Outcome {
  name: string;
  skipped?: string;
  /** Deduplication keys acknowledged before the fault. */
  before: number;
  /**
   * Requests that were not acknowledged at once during the fault. `lost`, `double` and `answeredMs`
   * are null when the scenario does not check them.
   */
  failed: number;
  lost: number | null;
  double: number | null;
  /**
   * Milliseconds from the end of the fault to the first good answer, and until everything is
   * committed and public.
   */
  answeredMs: number | null;
  settledMs: number | null;
  /** Duration of the scenario including its audit. */
  tookMs: number;
  note?: string;
  /** The signs that `/readyz`, `admin status`, alerts and logs showed. */
  seen: Seen[];
  /** A scenario passes if it has no problems. */
  problems: string[];
}

export const newOutcome = (name: string): Outcome => ({
  name,
  before: 0,
  failed: 0,
  lost: 0,
  double: 0,
  answeredMs: null,
  settledMs: null,
  tookMs: 0,
  seen: [],
  problems: [],
});
