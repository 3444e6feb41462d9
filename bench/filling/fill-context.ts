import { policyCache } from '#policy/cache';
import { jwkThumbprint } from '#protocol/keys';
import { loadSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import type { FillContext } from './fill.js';

/** As whom a process fills, and with what. */
export interface FillAs {
  engineUrl: string;
  workerUrl: string;
  aepKeyFile: string;
  tenant: FillContext['tenant'];
}

/** What the engine and a worker would work with, for so many groups in work at a time. */
export function openFillContext(
  { engineUrl, workerUrl, aepKeyFile, tenant }: FillAs,
  lanes: number,
): { context: FillContext; close: () => Promise<void> } {
  const engine = connect(engineUrl, { application: 'bench-engine', max: lanes });
  const sql = connect(workerUrl, { application: 'bench-worker', max: lanes + 2 });
  const close = async (): Promise<void> => {
    await engine.end({ timeout: 5 });
    await sql.end({ timeout: 5 });
  };
  try {
    const signer = loadSigningKey(aepKeyFile);
    const admit = {
      sql,
      log: logger('bench', 'warn'),
      signer,
      keyId: jwkThumbprint(nativeSha256, signer.publicKey),
      policy: policyCache(sql),
      laneLocked: false,
    };
    return { context: { engine, admit, tenant }, close };
  } catch (error) {
    void close();
    throw error;
  }
}
