import type { IncomingMessage, ServerResponse } from 'node:http';
import { formatVkey, type Vkey } from '#protocol/note';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { JSON_TYPE, CACHE_VERDICT, send } from '../http/answer.js';
import type { PublicContext } from '../context.js';
import { loadedSnapshot } from '../snapshot/serving.js';
import type { Snapshot } from '../snapshot/snapshot.js';

/**
 * GET /api/public/keys: AEP keys with the log positions they are good for, as the log has them, the
 * keys that signed what this facade serves, and those that signed before them. Whoever verifies
 * should pin the latter two from elsewhere.
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

/** The document of the keys of one snapshot. */
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
