import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { PACKAGE_ID_PATTERN } from '#protocol/ids';
import { SCHEMA } from '#protocol/schemas/ids';
import { packageListSchema } from '#protocol/schemas/lifecycle';
import { listPackages as readPackages, type TrustPackage } from '#sql/lifecycle/packages';
import { authorize } from '../http/authorize.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { packageMembers } from '../lifecycle/documents.js';
import { pageOf, pageQuerySchema, parseQuery, readPage } from '../http/paging.js';
import { sendJson } from '../http/send-json.js';

const spec: OperationSpec = {
  id: 'listPackages',
  method: 'get',
  path: '/v1/packages',
  tag: 'Lifecycle',
  summary: 'List trust packages',
  description: 'Newest first.',
  scopes: ['read', 'lifecycle'],
  query: pageQuerySchema,
  produces: ['application/json'],
  responses: {
    200: {
      description: 'A page of packages.',
      content: { 'application/json': packageListSchema },
    },
  },
  problems: ['invalid_query'],
};

export const listPackagesOperation: Operation = { spec, handler: listPackages };

function listPackages(deps: EngineDeps) {
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const page = pageOf(parseQuery(pageQuerySchema, req), PACKAGE_ID_PATTERN);
    const after = page.after && { createdAt: page.after.createdAt, packageId: page.after.id };
    const { members, nextCursor } = await readPage(
      page,
      ({ createdAt, packageId }: TrustPackage) => ({ createdAt, id: packageId }),
      (limit) =>
        deps.ctx.tenantSql.run(caller.tenantNo, (sql) =>
          readPackages(sql, caller.tenantNo, limit, after),
        ),
    );
    const list = {
      schema_version: SCHEMA.packageList,
      packages: members.map(packageMembers),
      next_cursor: nextCursor,
    };
    sendJson(res, 200, canonicalBytes(list));
  };
}
