import type { IncomingMessage, ServerResponse } from 'node:http';
import { formatVkey, type Vkey } from '#protocol/note';
import { KEYS_SCHEMA } from '#protocol/snapshot/keys';
import { JSON_TYPE, CACHE_VERDICT, send } from './answer.js';
import type { PublicContext } from './context.js';
import { loadedSnapshot } from './serving.js';

/**
 * GET /api/public/keys: AEP keys with the log positions they are good for, as the log has them,
 * and the keys that this facade pins. Whoever verifies should pin the latter from elsewhere.
 */
export function getKeys(ctx: PublicContext, req: IncomingMessage, res: ServerResponse): void {
  const snapshot = loadedSnapshot(ctx);
  const vkey = ({ name, publicKey }: Vkey): string => formatVkey(ctx.sha256, name, publicKey);
  const document = {
    schema_version: KEYS_SCHEMA,
    aep: snapshot.aepKeys,
    log: { origin: ctx.trust.log.name, vkey: vkey(ctx.trust.log) },
    snapshot: { vkey: vkey(ctx.trust.snapshot) },
  };
  send(ctx, req, res, snapshot, {
    status: 200,
    type: JSON_TYPE,
    cache: CACHE_VERDICT,
    body: Buffer.from(JSON.stringify(document)),
  });
}
