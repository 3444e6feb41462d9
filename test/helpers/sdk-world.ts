import type { EngineOptions } from '#sdk/options';
import { testLog, type TestLog } from './checkpoints.js';
import { breakNetwork, type BrokenNetwork } from './broken-network.js';
import { freshDatabase, type TestDatabase } from './database.js';
import { issueKey, startEngine, type TestEngine } from './engine.js';
import { openRegistry, TENANT, type TestRegistry } from './registry.js';

/** A real engine, and a network in between that breaks when it is told to. */
export interface SdkWorld {
  db: TestDatabase;
  registry: TestRegistry;
  engine: TestEngine;
  log: TestLog;
  network: BrokenNetwork;
  /** Straight to the engine. */
  options: EngineOptions;
  /** Through the network; repetitions come fast. */
  shaky: EngineOptions;
  close(): Promise<void>;
}

export const FAST = { baseDelayMs: 10, maxDelayMs: 40, attemptTimeoutMs: 10_000 };

export async function openSdkWorld(
  overrides: Parameters<typeof startEngine>[1] = {},
): Promise<SdkWorld> {
  const db = await freshDatabase();
  const registry = await openRegistry(db);
  const log = testLog(db);
  const engine = await startEngine(registry, {
    logVkey: log.vkey,
    rateLimit: 100_000,
    ...overrides,
  });
  const network = await breakNetwork(engine.url);
  const apiKey = await issueKey(registry, { scopes: ['admin'] });
  const options = { engineUrl: engine.url, apiKey, tenantId: TENANT };
  return {
    db,
    registry,
    engine,
    log,
    network,
    options,
    shaky: { ...options, engineUrl: network.url, retry: FAST },
    close: async () => {
      await network.close();
      await engine.close();
      await db.drop();
    },
  };
}

let counter = 0;

/** An input that differs from all others. */
export function intent(overrides: { action?: string } = {}): { intent_id: string; action: string } {
  return { intent_id: `sdk-${String(++counter)}`, action: 'BOOK_RESERVATION', ...overrides };
}
