import type { Request, Response } from 'express';
import { HASH_PATTERN } from '#protocol/schemas/primitives';
import { revokeShareToken as storeRevocation } from '#sql/lifecycle/share-tokens';
import { authorize } from '../http/authorize.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { Problem } from '../http/problem.js';

const spec: OperationSpec = {
  id: 'revokeShareToken',
  method: 'delete',
  path: '/v1/share-tokens/{token_hash}',
  tag: 'Lifecycle',
  summary: 'Revoke a share token',
  description:
    'Revokes the token permanently. The shared artifact does not change. Revoking again changes ' +
    'nothing.',
  scopes: ['lifecycle'],
  produces: ['application/json'],
  responses: { 204: { description: 'Revoked.' } },
  problems: ['share_token_not_found'],
};

export const revokeShareTokenOperation: Operation = { spec, handler: revokeShareToken };

function revokeShareToken(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const tokenHash = String(req.params['token_hash']);
    const revoked =
      HASH_PATTERN.test(tokenHash) &&
      (await deps.ctx.tenantSql.run(caller.tenantNo, (sql) =>
        storeRevocation(sql, caller.tenantNo, {
          tokenHash: Buffer.from(tokenHash, 'hex'),
          keyNo: caller.keyNo,
        }),
      ));
    if (!revoked) {
      throw new Problem(
        'share_token_not_found',
        'This tenant has no share token with that hash. Check the hash in the list of share tokens.',
      );
    }
    res.statusCode = 204;
    res.end();
  };
}
