import type { Request, Response } from 'express';
import { canonicalBytes } from '#protocol/canonical-json';
import { SCHEMA } from '#protocol/schemas/ids';
import { packageRequestSchema, packageSchema } from '#protocol/schemas/lifecycle';
import { nativeSha256 } from '#runtime/crypto/node';
import { createPackage as storePackage, type MemberFault } from '#sql/lifecycle/packages';
import { authorize } from '../http/authorize.js';
import { newUuidHex } from '../http/new-id.js';
import type { EngineDeps, Operation, OperationSpec } from '../operation.js';
import { packageMembers } from '../lifecycle/documents.js';
import { parseBody, readBody } from '../http/parse-body.js';
import { Problem } from '../http/problem.js';
import { sendJson } from '../http/send-json.js';

const spec: OperationSpec = {
  id: 'createPackage',
  method: 'post',
  path: '/v1/packages',
  tag: 'Lifecycle',
  summary: 'Create a trust package',
  description:
    'A package groups proofs of admissions and never changes. The same proofs in the same order ' +
    'are the same package: sending the same body again returns the first one.',
  scopes: ['lifecycle'],
  body: {
    schema: packageRequestSchema,
    examples: {
      two: {
        schema_version: SCHEMA.packageRequest,
        proof_ids: ['019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', '019aa2c1e0d87a51b1c20f9d8e7b6a53'],
      },
    },
  },
  produces: ['application/json'],
  responses: {
    200: {
      description: 'Existing package with the same proofs.',
      content: { 'application/json': packageSchema },
      headers: { 'Idempotent-Replayed': '`true`: nothing was added.' },
    },
    201: {
      description: 'Created.',
      content: { 'application/json': packageSchema },
      headers: { Location: 'Path of the package.' },
    },
  },
  problems: ['package_member_unfit'],
};

export const createPackageOperation: Operation = { spec, handler: createPackage };

const FAULTS: Record<MemberFault, string> = {
  unknown: 'is not the id of a proof of this tenant',
  denied: 'is a denial, not an admission',
  outcome: 'is the outcome of an action, not its admission',
  erased: 'has been erased',
};

function createPackage(deps: EngineDeps) {
  const { ctx } = deps;
  return async (req: Request, res: Response): Promise<void> => {
    const { caller } = await authorize(deps, spec, req, res);
    const body = await readBody(req, ctx.bodyLimit);
    const { document } = parseBody(packageRequestSchema, body, SCHEMA.packageRequest);
    const created = await ctx.tenantSql.run(caller.tenantNo, (sql) =>
      storePackage(sql, caller.tenantNo, {
        packageId: `pkg_${newUuidHex()}`,
        keyNo: caller.keyNo,
        proofIds: document.proof_ids,
        membersHash: nativeSha256(canonicalBytes(document.proof_ids)),
      }),
    );
    if (created.outcome === 'unfit') throw unfit(created.faults);
    const { package: made } = created;
    const isNew = created.outcome === 'created';
    if (isNew) res.setHeader('Location', `/v1/packages/${made.packageId}`);
    else res.setHeader('Idempotent-Replayed', 'true');
    const answer = { schema_version: SCHEMA.package, ...packageMembers(made) };
    sendJson(res, isNew ? 201 : 200, canonicalBytes(answer));
  };
}

/** Another tenant's proof is indistinguishable from one that does not exist. */
function unfit(faults: Map<number, MemberFault>): Problem {
  return new Problem(
    'package_member_unfit',
    'A package takes only proofs of this tenant’s own admitted actions. Remove the proofs listed in errors.',
    {
      errors: [...faults].map(([place, fault]) => ({
        pointer: `/proof_ids/${String(place)}`,
        detail: FAULTS[fault],
      })),
    },
  );
}
