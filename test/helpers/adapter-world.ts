import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createFacade } from '#api/public/facade';
import { directorySource } from '#api/public/snapshot/source';
import { formatVkey } from '#protocol/note';
import type { Aep } from '#protocol/schemas/aep';
import { systemClock } from '#runtime/process/clock';
import { nativeSha256 } from '#runtime/crypto/node';
import { listen } from '#runtime/http/server';
import { logger } from '#runtime/process/log';
import type { LostOutcome } from '#sdk/adapters/index';
import { listProofsHttp, lookupHttp, readProofHttp, type EngineOptions } from '#sdk/index';
import { breakNetwork, type BrokenNetwork } from './broken-network.js';
import { freshDatabase } from './database.js';
import { issueKey, startEngine, type TestEngine } from './engine.js';
import { openRegistry, TENANT } from './registry.js';
import { FAST } from './sdk-world.js';
import { ORIGIN, SNAPSHOT_NAME, testKey } from './snapshot.js';
import { sqlPublisher } from './sql-publisher.js';

/** An engine behind a network that breaks when it is told to, and a facade over what it signs. */
export interface AdapterWorld {
  engine: TestEngine;
  network: BrokenNetwork;
  publicUrl: string;
  /** Through the network; repetitions come fast. */
  options: EngineOptions;
  /** What adapters are opened with; `lost` and `admitted` have what was called back. */
  common: {
    engine: EngineOptions;
    agent: { id: string };
    onOutcomeError: (lost: LostOutcome) => void;
    onAdmitted: (admission: { proofId: string }) => void;
  };
  lost: LostOutcome[];
  admitted: string[];
  /** The public verdict, after a round of the verifier and the publisher. */
  verdict(proofId: string): Promise<Verdict>;
  /** The tenant's proofs, newest first. */
  proofs(): Promise<Aep[]>;
  /** What became of an admission. */
  outcomesOf(proofId: string): Promise<Aep['subject'][]>;
  /** Forgets what was seen and called back. */
  clear(): void;
  close(): Promise<void>;
}

export interface Verdict {
  status: string;
  effect: unknown;
}

export async function openAdapterWorld(
  overrides: Parameters<typeof startEngine>[1] = {},
): Promise<AdapterWorld> {
  const db = await freshDatabase();
  const registry = await openRegistry(db);
  const engine = await startEngine(registry, { rateLimit: 100_000, ...overrides });
  const network = await breakNetwork(engine.url);
  const apiKey = await issueKey(registry, { scopes: ['admin'] });
  const options = { engineUrl: network.url, apiKey, tenantId: TENANT, retry: FAST };
  const directory = await mkdtemp(join(tmpdir(), 'svc-adapters-'));
  const [logKey, snapshotKey] = [testKey(), testKey()];
  const publisher = sqlPublisher(db.as('svc_publisher'), { directory, logKey, snapshotKey });
  const facade = createFacade({
    snapshotSource: directorySource(directory),
    logVkey: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
    snapshotVkey: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
    clock: systemClock,
    log: logger('facade', 'silent'),
  });
  const server = await listen(facade.handler, { host: '127.0.0.1', port: 0 });
  const direct = { ...options, engineUrl: engine.url };
  const lost: LostOutcome[] = [];
  const admitted: string[] = [];

  const proofs = async (): Promise<Aep[]> => {
    const found: Aep[] = [];
    for await (const { proof_id } of listProofsHttp(direct)) {
      const { response } = await readProofHttp(direct, { proof_id });
      if (response.aep !== null) found.push(response.aep);
    }
    return found;
  };
  return {
    engine,
    network,
    publicUrl: server.url,
    options,
    common: {
      engine: options,
      agent: { id: 'agent-7' },
      onOutcomeError: (one) => lost.push(one),
      onAdmitted: ({ proofId }) => admitted.push(proofId),
    },
    lost,
    admitted,
    verdict: async (proofId) => {
      await registry.verifyAll();
      await publisher.runCycle();
      await facade.follower.refresh();
      const input = { kind: 'proof', identifier: proofId } as const;
      const { record, verification_status } = await lookupHttp({ publicUrl: server.url }, input);
      const effect = 'artifact' in record ? record.artifact.effect : undefined;
      return { status: verification_status, effect };
    },
    proofs,
    outcomesOf: async (proofId) =>
      (await proofs())
        .map(({ subject }) => subject)
        .filter((one) => one.kind === 'outcome' && one.parent_proof_id === proofId),
    clear: () => {
      lost.length = 0;
      admitted.length = 0;
      network.faults.length = 0;
      network.seen.length = 0;
    },
    close: async () => {
      await server.close(0);
      facade.close();
      await publisher.close();
      await network.close();
      await engine.close();
      await db.drop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
