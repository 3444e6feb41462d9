import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { isPackageId } from '#protocol/ids';
import { SCHEMA } from '#protocol/schemas/ids';
import { packageSchema } from '#protocol/schemas/lifecycle';
import { readPackage as findPackage } from '#sql/lifecycle/packages';
import { authorize } from '../http/authorize.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { packageMembers } from '../lifecycle/documents.js';
import { Problem } from '../http/problem.js';
import { sendRevalidatable } from '../http/send-json.js';

const spec: OperationSpec = {
  id: 'readPackage',
  method: 'get',
  path: '/v1/packages/{package_id}',
  tag: 'Lifecycle',
  summary: 'Retrieve a trust package',
  scopes: ['read', 'lifecycle'],
  produces: ['application/json'],
  responses: {
    200: {
      description: 'The package, which never changes.',
      content: { 'application/json': packageSchema },
      headers: { ETag: 'Strong; send it back in `If-None-Match`.' },
    },
    304: { description: 'Not changed since the ETag that was sent.' },
  },
  problems: ['package_not_found'],
};

export const readPackageOperation: Operation = { spec, handler: readPackage };

function readPackage(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const packageId = String(req.params['package_id']);
    const found = isPackageId(packageId)
      ? await deps.ctx.tenantSql.run(caller.tenantNo, (sql) =>
          findPackage(sql, caller.tenantNo, packageId),
        )
      : null;
    if (found === null) {
      throw new Problem(
        'package_not_found',
        'This tenant has no package with that id. Check the id.',
      );
    }
    const document = { schema_version: SCHEMA.package, ...packageMembers(found) };
    sendRevalidatable(req, res, 'application/json', canonicalBytes(document));
  };
}
