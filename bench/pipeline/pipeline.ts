import { generateKeyPairSync } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { connect } from '#runtime/postgres/connect';
import { startChild, urlOf, type Child } from '../service/child.js';
import type { Watched } from '../figures/cpu-shares.js';
import { builtFile } from '../service/programs.js';
import type { BenchRegistry } from '../service/registry.js';
import { createPipelineTables, dropPipelineTables } from './tables.js';
import type { PipelineTask } from './task.js';

/**
 * What the service's way takes at the least: processes that hand on what is committed, each reading
 * back what the one before it wrote, and nothing else of the service. No key, policy, tenant, log,
 * queue or check of a field, and none of what a proof is found by.
 */
export interface Pipeline {
  engineUrl: string;
  publicUrl: string;
  watched: Watched;
  /** Rejects when a stage fails: what it did not do cannot have been measured. */
  failed: Promise<never>;
  close(): Promise<void>;
}

const STAGES = ['publisher', 'verifier', 'signer', 'intake'] as const;

/**
 * Starts it over the registry's own Postgres, in tables of its own.
 *
 * @throws Error when a stage does not start
 */
export async function startPipeline(
  registry: Pick<BenchRegistry, 'ownerUrl' | 'postgresPid'>,
  dir: string,
): Promise<Pipeline> {
  const directory = join(dir, 'pipeline');
  await mkdir(directory, { recursive: true });
  const owner = connect(registry.ownerUrl, { application: 'bench', max: 1 });
  let fail: (error: Error) => void = () => undefined;
  const failed = new Promise<never>((_, reject) => (fail = reject));
  failed.catch(() => undefined);
  const children = new Map<(typeof STAGES)[number], Child>();
  const close = async (): Promise<void> => {
    for (const child of [...children.values()].reverse()) await child.stop();
    await dropPipelineTables(owner);
    await owner.end({ timeout: 5 });
    await rm(directory, { recursive: true, force: true });
  };
  try {
    await createPipelineTables(owner);
    const { privateKey, publicKey } = generateKeyPairSync('ed25519', {
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
      publicKeyEncoding: { type: 'spki', format: 'pem' },
    });
    const task: PipelineTask = { databaseUrl: registry.ownerUrl, directory, privateKey, publicKey };
    for (const stage of STAGES) {
      const child = startChild({
        file: builtFile(`bench/pipeline/${stage}`),
        onMessage: (said) => fail(new Error(`the bare pipeline: ${JSON.stringify(said)}`)),
      });
      void child.exited.then(() => fail(new Error(`the bare pipeline's ${stage} ended`)));
      children.set(stage, child);
      child.send(task);
      await child.ready;
    }
    const urlFrom = (stage: (typeof STAGES)[number]): Promise<string> =>
      urlOf(children.get(stage)!, `the bare pipeline's ${stage}`);
    const pids = [...children].map(([stage, { pid }]) => [stage, [pid]] as const);
    return {
      engineUrl: await urlFrom('intake'),
      publicUrl: await urlFrom('publisher'),
      watched: { ...Object.fromEntries(pids), Postgres: [registry.postgresPid] },
      failed,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
