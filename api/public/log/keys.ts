import type { IncomingMessage, ServerResponse } from 'node:http';
import { formatVkey, type Vkey } from '#protocol/note';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { JSON_TYPE, CACHE_VERDICT, send } from '../http/answer.js';
import type { PublicContext } from '../context.js';
import { loadedSnapshot } from '../snapshot/serving.js';
import type { Snapshot } from '../snapshot/snapshot.js';

/**
 * GET /api/public/keys: the AEP keys with the log ranges they are valid for, and the current and retired
 * log and snapshot keys. Verifiers must pin log and snapshot keys from another channel.
 */
export function getKeys(ctx: PublicContext, req: IncomingMessage, res: ServerResponse): void {
  const snapshot = loadedSnapshot(ctx);
  send(ctx, req, res, snapshot, {
    status: 200,
    type: JSON_TYPE,
    cache: CACHE_VERDICT,
    body: Buffer.from(JSON.stringify(keysOf(ctx, snapshot))),
  });
}

export function keysOf(ctx: PublicContext, snapshot: Snapshot): PublicKeys {
  const { signedBy } = snapshot.opened;
  const { aep, retired = { log: [], snapshot: [] } } = snapshot.keys;
  const vkey = ({ name, publicKey }: Vkey): string => formatVkey(ctx.sha256, name, publicKey);
  return {
    schema_version: KEYS_SCHEMA,
    aep,
    log: { origin: signedBy.log.name, vkey: vkey(signedBy.log), retired: retired.log },
    snapshot: { vkey: vkey(signedBy.snapshot), retired: retired.snapshot },
  };
}
